"""Starts the programs of the probe node as processes, with settings from the environment, and ends all they started."""

import os
import subprocess
import sys
from pathlib import Path

import psutil

TESTS = Path(__file__).parents[2]
LEASE_SECONDS = 4.0


class Program:
    """A program of the probe node, restarted on demand; everything it ever started is ended by `close`."""

    def __init__(self, arguments: list[str], environment: dict[str, str], log: Path) -> None:
        self.log = log
        self._arguments = [sys.executable, "-m", "support.node.probe_node", *arguments]
        self._environment = os.environ | environment | {"PYTHONPATH": str(TESTS)}
        self._seen: dict[int, psutil.Process] = {}
        self.process = self._start()

    def family(self) -> list[psutil.Process]:
        """The children of the program and their children, the nearest first."""
        try:
            found = psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        self._seen |= {process.pid: process for process in found}
        return found

    def worker(self) -> psutil.Process | None:
        """The Celery worker under a supervisor, when it lives."""
        mine = [process for process in self.family() if parent_of(process) == self.process.pid]
        return mine[0] if mine else None

    def restart(self) -> None:
        """What a container's restart policy does."""
        self.family()
        self.process.kill()
        self.process.wait()
        self.process = self._start()

    def close(self) -> None:
        """Asks the program to stop, then ends whatever is left of it by pid."""
        self.family()
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for process in self._seen.values():
            if process.is_running():  # psutil compares the start time, so a reused pid is not hit
                process.kill()

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                self._arguments, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )


def probe_environment(folder: Path, database_url: str, **more: str) -> dict[str, str]:
    """Settings for quick tests, and where the run log goes."""
    values = {
        "data_dir": str(folder),
        "database_url": database_url,
        "lease_seconds": str(LEASE_SECONDS),
        "poll_seconds": "0.2",
        "shutdown_seconds": "2",
        "agent_slots": "3",
        "sync_slots": "2",
        "workspace_job_limit": "4",
        "log_format": "json",
    }
    names = {f"HOPNODE_{name.upper()}": value for name, value in (values | more).items()}
    return names | {"PROBE_LOG": str(folder / "runs.jsonl")}


def parent_of(process: psutil.Process) -> int | None:
    """Pid of the parent; None when the process is gone."""
    try:
        return process.ppid()
    except psutil.NoSuchProcess:
        return None
