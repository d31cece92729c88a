"""What has to be done now and then so that the node keeps its promises; who runs it, and where, is `worker.chores`' matter."""

from typing import TYPE_CHECKING, Protocol

from worker.chores import Chore, Housekeeping
from worker.errors import Conflict, NotFound
from worker.logs import get_logger
from worker.settings import WorkerSettings
from worker.store import jobs
from worker.store.database import Database
from worker.store.sources import due_sources
from worker.store.syncs import create_sync

if TYPE_CHECKING:  # the supervisor of a worker runs some of these chores and should not load what a runtime needs
    from worker.runtime import Runtime

REAP_SECONDS = 2.0
SCHEDULE_SECONDS = 5.0
VECTORS_SECONDS = 5.0
RETENTION_SECONDS = 3600.0

_DAY = 86_400
_BATCH = 1000

_log = get_logger(__name__)


class Waker(Protocol):
    """The dispatchers, as far as they are needed here."""

    def kick(self, role: str) -> None: ...  # noqa: D102
    def top_up(self, role: str, wanted: int) -> None: ...  # noqa: D102


class Maintenance(Housekeeping):
    """All chores of a node, in threads of a process that has its parts open."""

    def __init__(self, runtime: "Runtime", waker: Waker) -> None:
        vectors = Chore("vectors", VECTORS_SECONDS, lambda: drain_vectors(runtime))
        super().__init__(runtime.db, [*queue_chores(runtime.db, runtime.settings, waker), vectors])


def queue_chores(db: Database, settings: WorkerSettings, waker: Waker) -> list[Chore]:
    """The chores that keep the queue going: every process of a node may offer to do them."""
    return [
        Chore("queue", REAP_SECONDS, lambda: tend_queue(db, settings, waker)),
        Chore("schedule", SCHEDULE_SECONDS, lambda: start_due_syncs(db, waker)),
        Chore("retention", RETENTION_SECONDS, lambda: forget_old_jobs(db, settings.job_retention_days * _DAY)),
    ]


def tend_queue(db: Database, settings: WorkerSettings, waker: Waker) -> None:
    """Frees the jobs of silent workers, then sees to it that enough kicks are on their way for what can be claimed."""
    reaped = jobs.reap(db)
    if reaped.requeued or reaped.failed:
        _log.warning("job_reaped", requeued=reaped.requeued, failed=reaped.failed)
    for role, slots in (("agent", settings.agent_slots), ("sync", settings.sync_slots)):
        if claimable := jobs.count_claimable(db, role, settings.workspace_job_limit):
            waker.top_up(role, min(claimable, slots))


def forget_old_jobs(db: Database, older_than_seconds: float) -> None:
    """Deletes ended jobs in small transactions until none is left."""
    total = 0
    while deleted := jobs.delete_old(db, older_than_seconds=older_than_seconds, limit=_BATCH):
        total += deleted
    if total:
        _log.info("jobs_forgotten", count=total)


def start_due_syncs(db: Database, waker: Waker) -> None:
    """Queues a sync for every source whose time has come."""
    for source in due_sources(db):
        try:
            sync = create_sync(db, source.workspace_id, source.id)
        except (Conflict, NotFound):  # somebody else started it, or deleted the source, a moment ago
            continue
        _log.info("sync_scheduled", workspace=source.workspace_id, source=source.id, sync=sync.id)
        waker.kick("sync")


def drain_vectors(runtime: "Runtime") -> None:
    """Applies what the vector index lags behind the documents."""
    if applied := runtime.corpora.drain_vectors():
        _log.info("vectors_drained", changes=applied)
