"""What the queue needs to have done now and then; opens no part of the node but the database, so any process may do it."""

from typing import Protocol

from hopnode.worker.logs import get_logger
from hopnode.worker.queue.maintenance import MaintenanceDuty
from hopnode.worker.settings import WorkerSettings
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs

REAP_SECONDS = 2.0
RETENTION_SECONDS = 3600.0

_DAY = 86_400
_BATCH = 1000

_log = get_logger(__name__)


class Waker(Protocol):
    """The dispatchers, as far as they are needed here."""

    def top_up(self, role: str, wanted: int) -> None: ...  # noqa: D102


def queue_duties(db: Database, settings: WorkerSettings, waker: Waker) -> list[MaintenanceDuty]:
    """The duties that keep the queue going: every process of a node may offer to do them."""
    return [
        MaintenanceDuty("queue", REAP_SECONDS, lambda: tend_queue(db, settings, waker)),
        MaintenanceDuty(
            "retention", RETENTION_SECONDS, lambda: forget_old_jobs(db, settings.job_retention_days * _DAY)
        ),
    ]


def tend_queue(db: Database, settings: WorkerSettings, waker: Waker) -> None:
    """Frees the jobs of silent workers, then sees to it that enough kicks are on their way for what can be claimed."""
    reaped = jobs.reap(db)
    for job_id in reaped.job_ids:
        _log.warning("job_reaped", job=job_id)
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
