"""A server-mode node made from the shell block of docs/deploy.md: its settings, and its commands as real processes."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil

from support.node.queue import wait_until

ROOT = Path(__file__).parents[3]
START_SECONDS, STOP_SECONDS = 90.0, 40.0


def printed_block() -> list[str]:
    """The lines of the page's shell block, without comments."""
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    return [line for line in block.splitlines() if line and not line.startswith("#")]


class Deployment:
    """Runs the printed lines with `places` put in for the page's example places, and `settings` beside its exports."""

    def __init__(self, lines: list[str], places: Mapping[str, str], folder: Path, settings: Mapping[str, str]) -> None:
        for old, new in places.items():
            assert any(old in line for line in lines), f"the page no longer says {old}"
            lines = [line.replace(old, new) for line in lines]
        self.exports = [line for line in lines if line.startswith("export ")]
        self.commands = [line for line in lines if not line.startswith("export ")]
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._seen: dict[int, psutil.Process] = {}
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HOPNODE_")}
        path = f"{Path(sys.executable).parent}:{kept['PATH']}"
        self._environment = kept | {"PATH": path, "COLUMNS": "200"} | dict(settings)
        self.url = ""

    def command(self, words: str) -> str:
        """The one printed command that begins with these words."""
        (found,) = [line for line in self.commands if line.startswith(words)]
        return found

    def finish(self, command: str) -> str:
        """Runs a command with the printed settings to its end, which must be good; returns what it said."""
        done = subprocess.run(self._shell(command), **self._where(), capture_output=True, timeout=120)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def start(self, words: str) -> subprocess.Popen[bytes]:
        """Starts a printed command that stays."""
        with self.log(words).open("ab") as log:
            process = subprocess.Popen(self._shell(self.command(words)), **self._where(), stdout=log, stderr=log)
        self.processes[words] = process
        return process

    def start_api(self) -> None:
        """Starts the API and returns when it is ready."""
        port = re.search(r"--port (\d+)", self.command("hopnode api"))
        assert port
        self.url = f"http://127.0.0.1:{port[1]}"
        process = self.start("hopnode api")
        wait_until(lambda: self._ready() or process.poll() is not None, START_SECONDS, "the API is ready")
        assert process.poll() is None, self.log("hopnode api").read_text()

    def client(self) -> httpx.Client:
        """A client with the key that the node left in the data folder; the caller closes it."""
        key = (self.folder / "data" / "api_key").read_text().strip()
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {key}"}, timeout=90, trust_env=False)

    def family(self, words: str) -> list[psutil.Process]:
        """What a command started, the nearest first."""
        found = psutil.Process(self.processes[words].pid).children(recursive=True)
        self._seen |= {process.pid: process for process in found}
        return found

    def stop(self, words: str, number: signal.Signals = signal.SIGTERM) -> int:
        """Sends one process a signal and waits until it has ended."""
        process = self.processes[words]
        if process.poll() is None:
            self.family(words)
            process.send_signal(number)
        return process.wait(STOP_SECONDS)

    def log(self, words: str) -> Path:
        """Where a command writes what it says."""
        return self.folder / f"{re.sub(r'[^a-z]+', '-', words)}.log"

    def logged(self, words: str) -> list[dict[str, Any]]:
        """The log lines of a command; those that are no JSON are left out."""
        lines = self.log(words).read_text(errors="replace").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def close(self) -> None:
        """Ends everything, the last started first, each by its pid."""
        try:
            for words in reversed(self.processes):
                self.stop(words)
        finally:
            for process in self.processes.values():
                if process.poll() is None:
                    process.kill()
                    process.wait()
            for child in self._seen.values():
                if child.is_running():  # psutil compares the start time, so a reused pid is not hit
                    child.kill()

    def _ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz", timeout=5, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def _shell(self, command: str) -> list[str]:
        return ["bash", "-c", "\n".join([*self.exports, f"exec {command}"])]

    def _where(self) -> dict[str, Any]:
        return {"cwd": self.folder, "env": self._environment, "stdin": subprocess.DEVNULL}
