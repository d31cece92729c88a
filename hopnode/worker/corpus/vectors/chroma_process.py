"""A `chroma run` server as a supervised child on loopback: restarted when it dies, gone when its parent is gone.

Knows processes and ports; what is stored there is the business of `chroma.py`.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Self

import httpx

from hopnode.worker.corpus.folder_lock import FolderLock
from hopnode.worker.corpus.vectors.chroma import mend
from hopnode.worker.errors import VectorsUnavailable
from hopnode.worker.logs import get_logger

_log = get_logger(__name__)

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
STEADY_SECONDS = 60.0
"""A child that lived this long starts with a short pause again."""
_LOG_BYTES = 1_000_000

# The server is a console script around an extension module; calling its entry point needs no search for the script.
# Linux kills the child with the thread that started it, however the parent ends (prctl 1 is PR_SET_PDEATHSIG).
_CHILD = """
import ctypes, os, signal, sys
try:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
except (AttributeError, OSError):
    pass
if os.getppid() != int(sys.argv[1]):
    sys.exit(0)
sys.argv = ["chroma", *sys.argv[2:]]
from chromadb.cli.cli import app
app()
"""


class ChromaProcess:
    """The server of one data folder; `DataFolderInUse` when another process owns the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = FolderLock(folder, "chroma server")
        self._port = _free_port()
        self._child: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name="chroma-supervisor", daemon=True)

    @property
    def url(self) -> str:
        """Where the server listens; the same after a restart."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        """The present child, None while there is none."""
        return self._child.pid if self._child else None

    def start(self, timeout_seconds: float = 60) -> Self:
        """Starts the server and returns when it answers. Raises `VectorsUnavailable` when it does not in time."""
        self._thread.start()
        ends_at = time.monotonic() + timeout_seconds
        while not self._answers():
            if time.monotonic() > ends_at:
                self.stop()
                raise VectorsUnavailable(f"The Chroma server did not start; its last words: {self._last_words()}")
            self._stopping.wait(0.05)
        return self

    def stop(self) -> None:
        """Ends the server and gives the folder free."""
        self._stopping.set()
        if self._child and self._child.poll() is None:
            self._child.terminate()
        if self._thread.is_alive():
            self._thread.join(10)
        if self._child and self._child.poll() is None:
            self._child.kill()
            self._child.wait()
        (self._folder / "chroma.json").unlink(missing_ok=True)
        self._lock.release()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _supervise(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            started = time.monotonic()
            code = self._run_child()
            if self._stopping.is_set():
                return
            lived = time.monotonic() - started
            pause = FIRST_PAUSE_SECONDS if lived > STEADY_SECONDS else min(pause * 2, LONGEST_PAUSE_SECONDS)
            _log.warning("chroma_exited", code=code, lived_seconds=round(lived, 1), pause_seconds=pause)
            self._stopping.wait(pause)

    def _run_child(self) -> int:
        mend(self._folder)
        arguments = ["run", "--path", str(self._folder), "--host", "127.0.0.1", "--port", str(self._port)]
        command = [sys.executable, "-c", _CHILD, str(os.getpid()), *arguments]
        log = self._folder / "chroma.log"
        mode = "ab" if log.exists() and log.stat().st_size < _LOG_BYTES else "wb"
        with log.open(mode) as output:
            # The child inherits the lock: a server that outlives its parent keeps the folder locked.
            self._child = subprocess.Popen(  # noqa: S603 - our own interpreter and arguments
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self._folder,
                pass_fds=(self._lock.fileno,),
            )
        _write_private(self._folder / "chroma.json", {"url": self.url, "pid": self._child.pid})
        if self._stopping.is_set():
            self._child.terminate()
        return self._child.wait()

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/api/v2/heartbeat", timeout=2).is_success
        except httpx.HTTPError:
            return False

    def _last_words(self) -> str:
        try:
            words = (self._folder / "chroma.log").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return "none"
        return " ".join(words.split())[-300:] or "none"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _write_private(path: Path, content: dict[str, object]) -> None:
    draft = path.with_suffix(".new")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps(content), encoding="utf-8")
    draft.replace(path)
