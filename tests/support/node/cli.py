"""Runs the real `hopnode` command in processes of its own, each with the environment that a test gives it and no other."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

COMMAND_SECONDS = 120.0
START_SECONDS = 90.0


def environment(data_dir: Path, **settings: str) -> dict[str, str]:
    """The environment of a user who set only the data folder and `settings` (names without `HOPNODE_`)."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOPNODE_", "NO_COLOR"))}
    kept |= {"HOPNODE_DATA_DIR": str(data_dir), "COLUMNS": "100"}
    return kept | {f"HOPNODE_{name.upper()}": value for name, value in settings.items()}


class Cli:
    """`hopnode` on one data folder."""

    def __init__(self, data_dir: Path, cwd: Path, **settings: str) -> None:
        self.data_dir = data_dir
        self.cwd = cwd
        self.environment = environment(data_dir, **settings)

    def run(
        self, *arguments: str | Path, seconds: float = COMMAND_SECONDS, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end, for `seconds` at most."""
        return subprocess.run(
            [sys.executable, "-m", "hopnode.node_service", *map(str, arguments)],
            cwd=self.cwd,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
        )

    def json(self, *arguments: str | Path, code: int = 0) -> Any:
        """Runs a command that prints JSON and must end with `code`."""
        done = self.run(*arguments, "--json")
        assert done.returncode == code, f"exit {done.returncode}: {done.stdout}{done.stderr}"
        return json.loads(done.stdout)

    @contextmanager
    def serve(self, *arguments: str) -> Generator[subprocess.Popen[str]]:
        """`hopnode serve` on a free port, up when this yields, told to stop after."""
        process = self.start("serve", "--port", "0", *arguments)
        try:
            wait_for(lambda: self.node_url is not None or process.poll() is not None, START_SECONDS)
            assert process.poll() is None, process.communicate()
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts a command and leaves it running."""
        return subprocess.Popen(
            [sys.executable, "-m", "hopnode.node_service", *arguments],
            cwd=self.cwd,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def node_url(self) -> str | None:
        """Where the node of the data folder says it listens."""
        try:
            return json.loads((self.data_dir / "node.json").read_text())["url"]
        except (OSError, ValueError):
            return None

    def client(self, timeout: float = 30) -> httpx.Client:
        """A client of the node of the data folder, with its first key; the caller closes it."""
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx.Client(base_url=str(self.node_url), headers=headers, timeout=timeout, trust_env=False)

    @property
    def key(self) -> str:
        """The first key of the data folder."""
        return (self.data_dir / "api_key").read_text().strip()


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    """Polls until `condition` holds; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not true within {seconds} s"
        time.sleep(0.05)
