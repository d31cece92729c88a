"""Jobs that are shared: who asks the very same as an open job gets that job. What makes two orders the same, the caller says.

A fingerprint stands for an order, and one look into an index finds the open job that has it. The row of the workspace is held
meanwhile: of many callers at once one makes the job, and the others join it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from hopnode.worker.errors import IdempotencyMismatch, QueueFull
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs.jobs import Idempotency, create_job_in, remember_in
from hopnode.worker.store.jobs.record import OPEN_STATUSES, Job, JobStatus, JsonObject, to_job
from hopnode.worker.store.jobs.room import check_room
from hopnode.worker.store.secrets.vault import HiddenFields, Owner
from hopnode.worker.store.tables import idempotency_keys, jobs, workspaces


@dataclass(frozen=True)
class JobOrder:
    """A job to find or to queue. Jobs of one workspace and kind with the same `fingerprint` (64 characters) are alike; None:
    this one joins nothing, and nothing joins it. `callback` and `hidden` are those of `create_job`."""

    kind: str
    role: str
    request: JsonObject
    fingerprint: str | None
    callback: JsonObject | None = None
    hidden: HiddenFields | None = None


def join_or_create_job(
    db: Database,
    workspace_id: str,
    order: JobOrder,
    *,
    ended_within_seconds: float = 0,
    most_waiting: int | None = None,
) -> tuple[Job, bool]:
    """The newest job of this workspace that is alike and has not ended; else a new one. Also says whether the job is new.

    One that succeeded within the last `ended_within_seconds` will do too. Raises `QueueFull` where a new job would be one
    more than `most_waiting`.
    """
    with db.write() as connection:
        _take_turn(connection, workspace_id)
        now = db.now(connection)
        found = _alike(connection, workspace_id, order, now - ended_within_seconds)
        return (found, False) if found else (_create(connection, workspace_id, order, now, most_waiting), True)


def join_or_create_jobs(
    db: Database,
    workspace_id: str,
    orders: Sequence[JobOrder],
    *,
    idempotency: Sequence[Idempotency] | None = None,
    most_waiting: int | None = None,
) -> list[tuple[Job, bool] | QueueFull]:
    """All orders in one transaction, in their order, each as by `join_or_create_job`; one for which there is no room brings
    its error instead of a job.

    `idempotency` has an entry for each order, and gives the jobs of an earlier time again. Raises `IdempotencyMismatch` when
    any of its keys belongs to another body; nothing is queued then.
    """
    outcomes = list[tuple[Job, bool] | QueueFull]()
    with db.write() as connection:
        _take_turn(connection, workspace_id)
        now = db.now(connection)
        earlier = _earlier(connection, workspace_id, idempotency or ())
        for number, order in enumerate(orders):
            known = earlier.get(idempotency[number].key) if idempotency else None
            found = known or _alike(connection, workspace_id, order, now)
            try:
                job = found or _create(connection, workspace_id, order, now, most_waiting)
            except QueueFull as error:
                outcomes.append(error)
                continue
            if idempotency and not known:
                remember_in(connection, job, idempotency[number])
            outcomes.append((job, found is None))
    return outcomes


def _take_turn(connection: sa.Connection, workspace_id: str) -> None:
    """Holds the row of the workspace, so that looking and creating are one step; its other jobs go on."""
    turn = sa.select(workspaces.c.id).where(workspaces.c.id == workspace_id).with_for_update(key_share=True)
    connection.execute(turn)


def _alike(connection: sa.Connection, workspace_id: str, order: JobOrder, since: float) -> Job | None:
    if order.fingerprint is None:
        return None
    fresh = sa.and_(jobs.c.status == str(JobStatus.SUCCEEDED), jobs.c.ended_at > since)
    newest = (
        sa.select(jobs)
        .where(jobs.c.workspace_id == workspace_id, jobs.c.fingerprint == order.fingerprint)
        .where(jobs.c.kind == order.kind, sa.or_(jobs.c.status.in_(OPEN_STATUSES), fresh))
        .order_by(jobs.c.created_at.desc(), jobs.c.id.desc())
        .limit(1)
    )
    row = connection.execute(newest).mappings().one_or_none()
    return None if row is None else to_job(row)


def _create(connection: sa.Connection, workspace_id: str, order: JobOrder, now: float, most_waiting: int | None) -> Job:
    check_room(connection, workspace_id, most_waiting)
    job = create_job_in(
        connection,
        now=now,
        workspace_id=workspace_id,
        kind=order.kind,
        role=order.role,
        request=order.request,
        callback=order.callback,
        fingerprint=order.fingerprint,
    )
    if order.hidden is not None:
        order.hidden.write_in(connection, Owner(workspace_id, "job", job.id))
    return job


def _earlier(connection: sa.Connection, workspace_id: str, given: Sequence[Idempotency]) -> dict[str, Job]:
    """The jobs that these keys led to before, by key."""
    if not given:
        return {}
    statement = (
        sa.select(idempotency_keys.c.key, idempotency_keys.c.body_sha256, *jobs.c)
        .join(jobs, jobs.c.id == idempotency_keys.c.job_id)
        .where(idempotency_keys.c.workspace_id == workspace_id)
        .where(idempotency_keys.c.key.in_([one.key for one in given]))
    )
    bodies = {one.key: one.body_sha256 for one in given}
    found = connection.execute(statement).mappings().all()
    if any(bodies[row["key"]] != row["body_sha256"] for row in found):
        raise IdempotencyMismatch("This idempotency key was used before with another body; use a new key.")
    return {row["key"]: to_job(row) for row in found}
