"""A real Redis server on a free loopback port, without persistence unless asked; ends with the test by its pid."""

import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import redis

START_SECONDS = 30.0


class RedisServer:
    """One server process; it can be frozen, killed and started again on the same port."""

    def __init__(self, folder: Path) -> None:
        binary = shutil.which("redis-server")
        if binary is None:
            raise RuntimeError("These tests need a Redis server: install it with `apt-get install redis-server`.")
        self._binary = binary
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()
        self.url = self.database(0)

    def database(self, number: int) -> str:
        """The URL of one of its sixteen databases: nodes that share one take each other's wake-ups."""
        return f"redis://127.0.0.1:{self.port}/{number}"

    def start(self) -> None:
        """Starts with an empty database and returns when it answers."""
        options = {"port": self.port, "bind": "127.0.0.1", "dir": self._folder, "save": "", "appendonly": "no"}
        argv = [self._binary, *(str(part) for name, value in options.items() for part in (f"--{name}", value))]
        self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        until = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"redis-server did not start on port {self.port}")
            time.sleep(0.02)

    def kill(self) -> None:
        """kill -9: everything in memory is gone."""
        self._send(signal.SIGKILL)
        self._running().wait()

    def freeze(self) -> None:
        """The process answers nobody and keeps its connections (SIGSTOP)."""
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets a frozen process go on."""
        self._send(signal.SIGCONT)

    def stop(self) -> None:
        """Ends the process, frozen or not."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def client(self) -> redis.Redis:
        """A client for looking inside; the caller closes it."""
        return redis.Redis(port=self.port, socket_timeout=2)

    def _answers(self) -> bool:
        client = self.client()
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
        finally:
            client.close()

    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "start() first"
        return self._process

    def _send(self, number: signal.Signals) -> None:
        self._running().send_signal(number)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
