"""Whether a workspace may have one more job that waits; knows nothing of who asks, and changes nothing."""

import sqlalchemy as sa

from hopnode.worker.errors import QueueFull
from hopnode.worker.store.jobs.record import JobStatus
from hopnode.worker.store.tables import jobs


def check_room(
    connection: sa.Connection, workspace_id: str, most_waiting: int | None, *, besides: str | None = None
) -> None:
    """Raises `QueueFull` when `most_waiting` jobs of the workspace wait already; None means that there is always room.

    The job whose id is `besides` does not count.

    On PostgreSQL callers that come at the same moment do not see one another, unless they hold the row of the workspace.
    """
    if most_waiting is None:
        return
    waiting = sa.select(jobs.c.id).where(jobs.c.workspace_id == workspace_id, jobs.c.status == str(JobStatus.QUEUED))
    waiting = waiting if besides is None else waiting.where(jobs.c.id != besides)
    counted = sa.select(sa.func.count()).select_from(waiting.limit(most_waiting).subquery())
    if connection.execute(counted).scalar_one() >= most_waiting:
        raise QueueFull(
            f"{most_waiting:,} jobs of this workspace wait already, as many as this node allows. Wait until some have ended, or "
            "cancel some.",
            retry_after=10,
        )
