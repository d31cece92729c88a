"""Maintenance: duties done at intervals, each by one process of the node at a time. Knows nothing of what they do.

A duty belongs to whoever holds the lease of its name in the database, so a process that dies is succeeded by another.
A duty that takes longer than its lease may run twice at once: every duty has to bear that.
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
class MaintenanceDuty:
    """Something to do every `every_seconds`; the name is the name of its lease too, so it must not change."""

    name: str
    every_seconds: float
    run: Callable[[], None]


class MaintenanceThreads:
    """One daemon thread for each duty, so that a slow duty holds up no other."""

    def __init__(self, db: Database, duties: Sequence[MaintenanceDuty]) -> None:
        self._db = db
        self._token = uuid4().hex
        self._stopping = threading.Event()
        self._duties = duties
        self._threads = [
            threading.Thread(target=self._repeat, args=(duty,), name=f"duty-{duty.name}", daemon=True)
            for duty in duties
        ]

    def start(self) -> None:
        """Starts the threads; each duty is due at once."""
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Waits up to `timeout` seconds for duties under way, and hands their leases on."""
        self._stopping.set()
        until = time.monotonic() + timeout
        for duty, thread in zip(self._duties, self._threads, strict=True):
            thread.join(max(0, until - time.monotonic()))
            if not thread.is_alive():
                self._hand_on(duty)

    def _repeat(self, duty: MaintenanceDuty) -> None:
        while True:
            try:
                if try_lease(self._db, duty.name, self._token, max(SHORTEST_LEASE_SECONDS, 3 * duty.every_seconds)):
                    duty.run()
            except Exception as error:  # noqa: BLE001 - the thread is a boundary: the duty gets its next turn
                _log.warning("duty_failed", duty=duty.name, error=f"{type(error).__name__}: {error}")
            if self._stopping.wait(duty.every_seconds):
                return

    def _hand_on(self, duty: MaintenanceDuty) -> None:
        try:
            drop_lease(self._db, duty.name, self._token)
        except Exception as error:  # noqa: BLE001 - at the end of the process; the lease ends by itself
            _log.warning("lease_not_dropped", duty=duty.name, error=str(error))
