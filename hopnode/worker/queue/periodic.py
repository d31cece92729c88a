"""Runs chores at intervals, each in one process of the node at a time; knows nothing of what the chores do.

A chore belongs to whoever holds the lease of its name in the database, so a process that dies is succeeded by another.
A chore that takes longer than its lease may run twice at once: every chore has to bear that.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import uuid4

from hopnode.worker.logs import get_logger
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs.leases import drop_lease, try_lease

SHORTEST_LEASE_SECONDS = 6.0

_log = get_logger(__name__)


@dataclass(frozen=True)
class Chore:
    """Something to do every `every_seconds`; the name is the name of its lease too, so it must not change."""

    name: str
    every_seconds: float
    run: Callable[[], None]


class Housekeeping:
    """One daemon thread for each chore, so that a slow chore holds up no other."""

    def __init__(self, db: Database, chores: Sequence[Chore]) -> None:
        self._db = db
        self._token = uuid4().hex
        self._stopping = threading.Event()
        self._chores = chores
        self._threads = [
            threading.Thread(target=self._keep_doing, args=(chore,), name=f"chore-{chore.name}", daemon=True)
            for chore in chores
        ]

    def start(self) -> None:
        """Starts the threads; each chore is due at once."""
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Waits up to `timeout` seconds for chores under way, and hands their leases on."""
        self._stopping.set()
        until = time.monotonic() + timeout
        for chore, thread in zip(self._chores, self._threads, strict=True):
            thread.join(max(0, until - time.monotonic()))
            if not thread.is_alive():
                self._hand_on(chore)

    def _keep_doing(self, chore: Chore) -> None:
        while True:
            try:
                if try_lease(self._db, chore.name, self._token, max(SHORTEST_LEASE_SECONDS, 3 * chore.every_seconds)):
                    chore.run()
            except Exception as error:  # noqa: BLE001 - the thread is a boundary: the chore gets its next turn
                _log.warning("chore_failed", chore=chore.name, error=f"{type(error).__name__}: {error}")
            if self._stopping.wait(chore.every_seconds):
                return

    def _hand_on(self, chore: Chore) -> None:
        try:
            drop_lease(self._db, chore.name, self._token)
        except Exception as error:  # noqa: BLE001 - at the end of the process; the lease ends by itself
            _log.warning("lease_not_dropped", chore=chore.name, error=str(error))
