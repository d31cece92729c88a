"""An operating-system lock on a data folder, so that it has one owner process; knows nothing of what lies in it."""

import fcntl
import json
import os
import time
from pathlib import Path
from typing import NoReturn, cast

from hopnode.worker.errors import DataFolderInUse

GRACE_SECONDS = 5.0


class FolderLock:
    """Holds `<folder>/owner.lock` until `release`; the system frees it when the process dies, however it dies."""

    def __init__(self, folder: Path, purpose: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "owner.lock"
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        ends_at = time.monotonic() + GRACE_SECONDS
        while not self._taken():
            # What an owner that was killed had open is closed a moment after it is gone.
            if process_lives(self._owner_pid()) or time.monotonic() > ends_at:
                self._refuse(folder)
            time.sleep(0.05)
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps({"pid": os.getpid(), "purpose": purpose}).encode(), 0)

    @property
    def fileno(self) -> int:
        """The descriptor; a child that inherits it keeps the folder locked while it lives."""
        return self._file

    def release(self) -> None:
        """Gives the folder free."""
        if self._file >= 0:
            os.close(self._file)  # closing and not unlocking: a child that inherited it keeps its share
            self._file = -1

    def _taken(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _refuse(self, folder: Path) -> NoReturn:
        owner = self._owner()
        os.close(self._file)
        pid, purpose = owner.get("pid", "unknown"), owner.get("purpose", "just started")
        raise DataFolderInUse(
            f"The data folder {folder} is in use by process {pid} ({purpose}). Stop that process, or let it do the "
            "work: talk to the running node over HTTP (`hopnode` finds it by itself), or give this one a folder of its "
            "own with HOPNODE_DATA_DIR. To run several processes on one folder set HOPNODE_CHROMA_URL to a Chroma "
            "server.",
            folder=str(folder),
            owner=pid,
        )

    def _owner(self) -> dict[str, object]:
        try:
            owner: object = json.loads(os.pread(self._file, 4096, 0))
        except ValueError:
            return {}
        return cast(dict[str, object], owner) if isinstance(owner, dict) else {}

    def _owner_pid(self) -> int:
        pid = self._owner().get("pid")
        return pid if isinstance(pid, int) else 0


def process_lives(pid: int) -> bool:
    """Whether a process of that number runs on this machine, whoever owns it; an unknown one (0) counts as living."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
