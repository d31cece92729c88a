"""Runs one job from claim to end: heartbeat, handler, result or retry; knows neither what jobs do nor who woke it."""

import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Generic, Protocol, TypeVar

import structlog
from pydantic import JsonValue

from hopnode.worker import tracing
from hopnode.worker.errors import HopnodeError, JobCancelled, JobInterrupted, LeaseLost, NodeError, StoreUnavailable
from hopnode.worker.logs import get_logger
from hopnode.worker.queue.job_context import Heartbeat, JobContext
from hopnode.worker.settings import WorkerSettings
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.jobs import JobStatus

BACKOFF_SECONDS, BACKOFF_MOST_SECONDS = 2.0, 300.0
STORE_RETRY_SECONDS = 0.5

_log = get_logger(__name__)


class Surroundings(Protocol):
    """What a runner needs to know of the process it runs in; the runtime of the node is one."""

    @property
    def db(self) -> Database: ...  # noqa: D102
    @property
    def settings(self) -> WorkerSettings: ...  # noqa: D102


S = TypeVar("S", bound=Surroundings)


class QueueRunner(Generic[S]):
    """Claims jobs and runs them with the handler of their kind; safe to call from many threads.

    A handler gets the surroundings and a `JobContext`, calls `context.check()` now and then, and returns the result.
    """

    def __init__(self, surroundings: S, handlers: Mapping[str, Callable[[S, JobContext], JsonValue]]) -> None:
        self._surroundings = surroundings
        self._handlers = handlers
        self._db = surroundings.db
        self._lease_seconds = surroundings.settings.lease_seconds
        self._workspace_limit = surroundings.settings.workspace_job_limit
        self._running: set[JobContext] = set()
        self._interrupted = False
        self._lock = threading.Lock()

    def run_next(self, role: str) -> bool:
        """Runs the next job of `role` to its end. Returns False when there was none to run. Raises `StoreUnavailable`."""
        if self._interrupted:
            return False
        claimed_at = time.monotonic()
        job = jobs.claim_next(
            self._db,
            role=role,
            lease_seconds=self._lease_seconds,
            workspace_limit=self._workspace_limit,
            kinds=list(self._handlers),
        )
        if job is None:
            return False
        context = JobContext(self._db, job, lease_seconds=self._lease_seconds, claimed_at=claimed_at)
        ids = {"job": job.id, "workspace": job.workspace_id, "kind": job.kind, "attempt": job.attempt}
        with (
            tracing.continued(job.origin),
            structlog.contextvars.bound_contextvars(**ids),
            tracing.span(f"job {job.kind}", "consumer", **{f"hopnode.{name}": value for name, value in ids.items()}),
        ):
            _log.info("job_claimed")
            self._register(context)
            try:
                with Heartbeat(context, self._lease_seconds):
                    self._run(context)
            finally:
                self._unregister(context)
        return True

    @property
    def busy(self) -> int:
        """How many jobs run in this process now."""
        return len(self._running)

    def more(self, role: str) -> bool:
        """Whether another job of `role` could be claimed now."""
        return not self._interrupted and jobs.has_claimable(self._db, role, self._workspace_limit)

    def interrupt(self) -> None:
        """Stops for good: running jobs go back to the queue as soon as their handlers look, no other is claimed."""
        with self._lock:
            self._interrupted = True
            running = list(self._running)
        for context in running:
            context.stop(JobInterrupted("The process was told to stop."))

    def _register(self, context: JobContext) -> None:
        with self._lock:
            self._running.add(context)
            interrupted = self._interrupted
        if interrupted:
            context.stop(JobInterrupted("The process was told to stop."))

    def _unregister(self, context: JobContext) -> None:
        with self._lock:
            self._running.discard(context)

    def _run(self, context: JobContext) -> None:
        try:
            result = self._handlers[context.job.kind](self._surroundings, context)
            self._end(context, JobStatus.SUCCEEDED, result=result)
        except Exception as error:  # noqa: BLE001 - the task is a boundary: whatever a job raises ends the job only
            self._end_badly(context, context.reason or error)

    def _end_badly(self, context: JobContext, error: Exception) -> None:
        job = context.job
        if isinstance(error, JobCancelled | LeaseLost):
            _log.info("job_dropped", reason=error.code)
        elif isinstance(error, JobInterrupted):
            if self._store(context, lambda: jobs.give_back(self._db, job)):
                _log.info("job_given_back")
        elif isinstance(error, NodeError) and error.retryable and job.attempt < job.max_attempts:
            delay = backoff_seconds(job.attempt)
            if self._store(context, lambda: jobs.release(self._db, job, error=_told(error), delay_seconds=delay)):
                _log.warning("job_released", code=error.code, error=str(error), delay_seconds=round(delay, 1))
        else:
            if not isinstance(error, NodeError):
                _log.error("job_crashed", exc_info=error)
            self._end(context, JobStatus.FAILED, error=_told(error))

    def _end(
        self,
        context: JobContext,
        status: JobStatus,
        *,
        result: JsonValue = None,
        error: Mapping[str, JsonValue] | None = None,
    ) -> None:
        job = context.job
        if self._store(context, lambda: jobs.finish(self._db, job, status, result=result, error=error)):
            code = error["code"] if error else None
            _log.info("job_finished", status=str(status), seconds=round(context.seconds, 3), code=code)

    def _store(self, context: JobContext, write: Callable[[], bool]) -> bool:
        """Writes the end of a job; a database that is away is asked again for as long as the lease is ours."""
        while True:
            try:
                stored = write()
            except StoreUnavailable as error:
                if not context.held:
                    _log.error("job_end_not_stored", error=str(error))
                    return False
                time.sleep(STORE_RETRY_SECONDS)
                continue
            if not stored:
                _log.info("job_end_refused")
            return stored


def backoff_seconds(attempt: int) -> float:
    """Full jitter: anything between nothing and twice as much after each attempt, at most five minutes."""
    return random.uniform(0, min(BACKOFF_MOST_SECONDS, BACKOFF_SECONDS * 2 ** (attempt - 1)))  # noqa: S311 - no secret


def _told(error: Exception) -> Mapping[str, JsonValue]:
    """What the owner of the job gets to read: our own errors in their words, others without their text."""
    if isinstance(error, HopnodeError):
        return {"code": error.code, "message": str(error)}
    return {"code": HopnodeError.code, "message": "An unexpected error ended this job; the node's log has the details."}
