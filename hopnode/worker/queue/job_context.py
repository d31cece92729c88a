"""What a running job holds on to: its record, the steps it writes, and the question whether it may go on.

A heartbeat thread keeps the lease; this module knows the job table's verbs and nothing of what the job does.
"""

import contextvars
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from pydantic import JsonValue

from hopnode.worker.errors import DeadlineExceeded, JobCancelled, LeaseLost, NodeError
from hopnode.worker.logs import get_logger
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.jobs import Job

LOOK_SECONDS = 0.5
"""How often a running job is looked at for a cancellation: one read by primary key, no write."""

OVERRUN_SECONDS = 60.0
"""A job that goes on this long after its deadline is stuck: its lease is no longer kept, and the reaper ends it."""

_log = get_logger(__name__)


class JobContext:
    """Handed to the code that runs a job; safe to use from several threads.

    `cancelled` is set as soon as the job has to stop, for whatever reason; `check()` says which one.
    """

    def __init__(self, db: Database, job: Job, *, lease_seconds: float, claimed_at: float) -> None:
        """`claimed_at` is the monotonic time just before the claim, so that our idea of the lease ends early."""
        self.job = job
        self.cancelled = threading.Event()
        self.claimed_at = claimed_at
        self._db = db
        self._lease_seconds = lease_seconds
        self._lease_end = claimed_at + lease_seconds
        self._deadline = _monotonic_deadline(job, lease_seconds, claimed_at)
        self._reason: NodeError | None = None

    def step(self, kind: str, data: Mapping[str, JsonValue]) -> int:
        """Records a step and returns its number; raises `JobCancelled` or `LeaseLost` when the job is not ours."""
        return jobs.add_step(self._db, self.job, kind, data)

    def check(self) -> None:
        """Returns when the job may go on.

        Raises JobCancelled, LeaseLost, JobInterrupted (the process has to end) or DeadlineExceeded. Call it between
        any two things that take time; it asks no database.
        """
        if self._reason is None and not self.held:
            self.stop(LeaseLost("The lease could not be kept, and the job may belong to another worker now."))
        if self._reason is not None:
            raise type(self._reason)(str(self._reason))
        if self.overrun > 0:
            raise DeadlineExceeded("The job ran past its deadline.")

    def stop(self, reason: NodeError) -> None:
        """Makes every later `check()` raise such an error; the first reason counts."""
        if self._reason is None:
            self._reason = reason
        self.cancelled.set()

    @property
    def reason(self) -> NodeError | None:
        """Why the job has to stop, if it has to."""
        return self._reason

    @property
    def seconds(self) -> float:
        """Seconds since the claim."""
        return time.monotonic() - self.claimed_at

    @property
    def held(self) -> bool:
        """Whether the lease is surely ours still, by this process's own clock."""
        return time.monotonic() < self._lease_end

    @property
    def overrun(self) -> float:
        """Seconds since the deadline; negative before it, and for jobs without one."""
        return float("-inf") if self._deadline is None else time.monotonic() - self._deadline

    def renew(self) -> None:
        """Extends the lease; raises `LeaseLost` or `JobCancelled`."""
        asked_at = time.monotonic()
        jobs.beat(self._db, self.job, self._lease_seconds)
        self._lease_end = asked_at + self._lease_seconds

    def look(self) -> None:
        """Asks the table, without writing, whether the job is still ours; raises as `renew` does."""
        jobs.look(self._db, self.job)


class Heartbeat:
    """Keeps the lease of a job while the `with` block runs: a beat every third of it, a look for a cancel in between."""

    def __init__(self, context: JobContext, lease_seconds: float) -> None:
        self._context = context
        self._beat_seconds = lease_seconds / 3
        self._look_seconds = min(LOOK_SECONDS, self._beat_seconds)
        self._done = threading.Event()
        ids = contextvars.copy_context()  # so that its log lines carry the job's ids
        self._thread = threading.Thread(target=ids.run, args=(self._keep,), name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()

    def _keep(self) -> None:
        next_beat = time.monotonic() + self._beat_seconds
        while not self._done.wait(self._look_seconds):
            if self._context.overrun > OVERRUN_SECONDS:
                _log.error("job_overran", overrun_seconds=round(self._context.overrun))
                return
            due = time.monotonic() >= next_beat
            if not self._ask(write=due):
                return
            if due:
                next_beat = time.monotonic() + self._beat_seconds

    def _ask(self, *, write: bool) -> bool:
        """One beat or look. Returns False when there is nothing left to keep."""
        try:
            self._context.renew() if write else self._context.look()
        except (JobCancelled, LeaseLost) as error:
            self._context.stop(error)
            return False
        except Exception as error:  # noqa: BLE001 - the thread is the boundary: one failed beat must not lose the lease
            if self._done.is_set():
                return False
            _log.warning("heartbeat_failed", error=str(error))
        return True


def _monotonic_deadline(job: Job, lease_seconds: float, claimed_at: float) -> float | None:
    """The deadline on this process's clock: the lease tells what the database's clock said at the claim."""
    if job.deadline_at is None or job.lease_until is None:
        return None
    return claimed_at + job.deadline_at - (job.lease_until - lease_seconds)
