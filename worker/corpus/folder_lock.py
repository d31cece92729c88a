"""An operating-system lock on a data folder, so that it has one owner process; knows nothing of what lies in it."""

import fcntl
import json
import os
from pathlib import Path

from worker.errors import DataFolderInUse


class FolderLock:
    """Holds `<folder>/owner.lock` until `release`; the system frees it when the process dies, however it dies."""

    def __init__(self, folder: Path, purpose: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "owner.lock"
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = self._owner()
            os.close(self._file)
            raise DataFolderInUse(
                f"The data folder {folder} is in use by process {owner}. Stop that process, or let it do the work: "
                "talk to the running node over HTTP (`hopnode` finds it by itself), or give this one a folder of its "
                "own with HOPNODE_DATA_DIR. To run several processes on one folder set HOPNODE_CHROMA_URL to a Chroma "
                "server.",
                folder=str(folder),
                owner=owner,
            ) from error
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

    def _owner(self) -> str:
        try:
            owner = json.loads(os.pread(self._file, 4096, 0))
            return f"{owner['pid']} ({owner['purpose']})"
        except (ValueError, KeyError, TypeError):
            return "that has just started"
