"""A whole node as real processes on loopback, embedded or API and agent worker; knows no test and no question."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import httpx
import psutil

from hopnode.worker.settings import WorkerSettings
from support.node.queue import wait_until
from support.servers.postgres import free_port

START_SECONDS, STOP_SECONDS = 90.0, 40.0


class RunningNode:
    """`hopnode serve`, or `hopnode api` with `hopnode worker --role agent`; each process is ended by its pid."""

    def __init__(self, folder: Path, settings: Mapping[str, str], extra: Mapping[str, str]) -> None:
        """`settings` are settings of the worker by their field's name, `extra` are other variables of the environment."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self._processes = folder, list[subprocess.Popen[bytes]]()
        self.url = f"http://127.0.0.1:{free_port()}"
        values = {"data_dir": str(folder / "data"), "log_format": "json", "poll_seconds": "0.5"} | dict(settings)
        whole = WorkerSettings(_env_file=None, **values)  # type: ignore[arg-type, call-arg]
        self.database_url, self._key_file = whole.sql_url, whole.key_file
        self.agent_slots, self.workspace_limit = whole.agent_slots, whole.workspace_job_limit
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOPNODE_", "OTEL_"))}
        named = {f"HOPNODE_{name.upper()}": value for name, value in values.items()}
        self._environment = kept | named | dict(extra)

    @classmethod
    @contextmanager
    def of_mode(
        cls, folder: Path, settings: Mapping[str, str], *, server: bool, extra: Mapping[str, str] | None = None
    ) -> Generator[Self]:
        """A node that runs and is ready; `server` needs `database_url` and `redis_url` in the settings."""
        node = cls(folder, settings, extra or {})
        try:
            node.run("api" if server else "serve", "--port", node.url.rsplit(":", 1)[1])
            wait_until(node._ready, START_SECONDS, f"the node is ready: {node.said()[-2000:]}")
            if server:
                node.run("worker", "--role", "agent")
            yield node
        finally:
            node.stop()

    def run(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Starts one command of `hopnode` that stays."""
        command = [sys.executable, "-m", "hopnode.node_service", *arguments]
        with (self.folder / "node.log").open("ab") as log:
            process = subprocess.Popen(
                command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder
            )
        self._processes.append(process)
        return process

    def client(self, token: str | None = None) -> httpx.Client:
        """A client with this key, or with that of the node's first workspace; the caller closes it."""
        key = token or self._key_file.read_text().strip()
        limits = httpx.Limits(max_connections=64)
        headers = {"Authorization": f"Bearer {key}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=90, trust_env=False, limits=limits)

    def said(self) -> str:
        """All that its processes wrote."""
        return (self.folder / "node.log").read_text(errors="replace")

    def memory(self) -> float:
        """Resident memory of all its processes, in MB."""
        total = 0
        for process in self._family():
            with suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total / 2**20

    def stop(self) -> None:
        """Ends everything, the last started first."""
        family = self._family()
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)
        for process in family:
            if process.is_running():  # psutil compares the start time, so a reused pid is not hit
                process.kill()
        self._processes.clear()

    def _family(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for one in self._processes:
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(one.pid)
                found += [process, *process.children(recursive=True)]
        return found

    def _ready(self) -> Any:
        with suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}/readyz", timeout=5, trust_env=False).status_code == 200
        return False
