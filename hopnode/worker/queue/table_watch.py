"""Work without kicks: while Redis is away, a worker looks into the job table by itself, at the pace of an idle embedded node.

Knows no message and no pool: it is told how to ask for Redis and how to run one job.
"""

import threading
from collections.abc import Callable
from typing import Protocol

from hopnode.worker.errors import BrokerUnavailable, NodeError
from hopnode.worker.logs import get_logger

_log = get_logger(__name__)


class JobTaker(Protocol):
    """What the watch asks of a runner."""

    @property
    def busy(self) -> int: ...  # noqa: D102
    def more(self, role: str) -> bool: ...  # noqa: D102
    def run_next(self, role: str) -> bool: ...  # noqa: D102


class TableWatch:
    """One daemon thread that looks every `poll_seconds`; jobs run in threads of their own, in at most `slots` at once with
    those that kicks brought."""

    def __init__(
        self,
        role: str,
        slots: int,
        poll_seconds: float,
        *,
        ask_broker: Callable[[], None],
        taker: Callable[[], JobTaker],
    ) -> None:
        """`ask_broker` raises `BrokerUnavailable` while Redis is away; `taker` opens the runner when it is first needed."""
        self._role = role
        self._slots = slots
        self._poll_seconds = poll_seconds
        self._ask_broker = ask_broker
        self._taker = taker
        self._stopping = threading.Event()
        self._away = False
        self._running: set[threading.Thread] = set()
        self._thread = threading.Thread(target=self._watch, name="table-watch", daemon=True)

    def start(self) -> None:
        """Starts to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Takes no more jobs; those under way go on."""
        self._stopping.set()

    def _watch(self) -> None:
        while not self._stopping.wait(self._poll_seconds):
            try:
                if self._is_broker_away():
                    self._take_jobs(self._taker())
            except Exception as error:  # noqa: BLE001 - the thread is a boundary: it outlives a database that is away
                _log.warning("claim_failed", role=self._role, error=f"{type(error).__name__}: {error}")

    def _is_broker_away(self) -> bool:
        try:
            self._ask_broker()
            away = False
        except BrokerUnavailable:
            away = True
        if away is not self._away:
            _log.warning("looking_without_broker" if away else "broker_is_back", role=self._role)
            self._away = away
        return away

    def _take_jobs(self, taker: JobTaker) -> None:
        """One thread a look: as the first job is claimed, the next look finds whether there is more."""
        self._running = {thread for thread in self._running if thread.is_alive()}
        if max(len(self._running), taker.busy) < self._slots and taker.more(self._role):
            thread = threading.Thread(target=self._run_jobs, args=(taker,), name=f"{self._role}-polled", daemon=True)
            self._running.add(thread)
            thread.start()

    def _run_jobs(self, taker: JobTaker) -> None:
        """Goes on while there is work: whoever ended a job need not wait for the next look."""
        try:
            while not self._stopping.is_set() and taker.busy < self._slots and taker.run_next(self._role):
                pass
        except NodeError as error:
            _log.warning("claim_failed", role=self._role, error=str(error))
