"""The queue of record as its users see it: create, read, list, cancel; `claims` has the worker's verbs.

A job that was created here is not lost whatever happens to brokers and workers; who wakes the workers is not known here.
"""

import base64
import math
import secrets
from collections.abc import Collection
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from hopnode.worker import tracing
from hopnode.worker.errors import Conflict, IdempotencyMismatch, InvalidRequest, NotFound
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs.claims import (
    Reaped,
    add_step,
    beat,
    claim_next,
    count_claimable,
    end_in,
    finish,
    give_back,
    has_claimable,
    is_in_the_way,
    look,
    reap,
    release,
)
from hopnode.worker.store.jobs.record import (
    OPEN_STATUSES,
    Job,
    JobFilter,
    JobStatus,
    JsonObject,
    Step,
    json_or_null,
    to_job,
)
from hopnode.worker.store.jobs.room import check_room
from hopnode.worker.store.secrets.vault import HiddenFields, Owner
from hopnode.worker.store.tables import idempotency_keys, job_steps, jobs

__all__ = [
    "Idempotency",
    "Job",
    "JobFilter",
    "JobStatus",
    "Reaped",
    "Step",
    "add_step",
    "beat",
    "cancel",
    "claim_next",
    "count_claimable",
    "count_steps",
    "create_job",
    "create_job_in",
    "delete_old",
    "finish",
    "get_job",
    "give_back",
    "has_claimable",
    "is_in_the_way",
    "job_counts",
    "list_jobs",
    "list_steps",
    "look",
    "oldest_queued_seconds",
    "page_cursor",
    "reap",
    "release",
    "remember_in",
]


@dataclass(frozen=True)
class Idempotency:
    """What makes a repeated request the same request: the caller's key and the hash of the body (hexadecimal)."""

    key: str
    body_sha256: str


def create_job(
    db: Database,
    *,
    workspace_id: str,
    kind: str,
    role: str,
    request: JsonObject,
    priority: int = 0,
    max_attempts: int = 3,
    deadline_at: float | None = None,
    callback: JsonObject | None = None,
    hidden: HiddenFields | None = None,
    idempotency: Idempotency | None = None,
    most_waiting: int | None = None,
) -> tuple[Job, bool]:
    """Queues a job and says whether it is new: the same idempotency key and body give the earlier job again.

    `callback` is `{url, events, metadata}`, `hidden` are the headers that go with it. `deadline_at` is in seconds since the
    epoch. Raises `IdempotencyMismatch` for a known key with another body, and `QueueFull` when `most_waiting` jobs of the
    workspace wait already.
    """
    with db.write() as connection:
        job = create_job_in(
            connection,
            now=db.now(connection),
            workspace_id=workspace_id,
            kind=kind,
            role=role,
            request=request,
            priority=priority,
            max_attempts=max_attempts,
            deadline_at=deadline_at,
            callback=callback,
        )
        if idempotency is None or remember_in(connection, job, idempotency):
            check_room(connection, workspace_id, most_waiting, besides=job.id)
            if hidden is not None:
                hidden.write_in(connection, Owner(workspace_id, "job", job.id))
            return job, True
        connection.execute(jobs.delete().where(jobs.c.id == job.id))
        return _earlier(connection, workspace_id, idempotency), False


def create_job_in(
    connection: sa.Connection,
    *,
    now: float,
    workspace_id: str,
    kind: str,
    role: str,
    request: JsonObject,
    priority: int = 0,
    max_attempts: int = 3,
    deadline_at: float | None = None,
    callback: JsonObject | None = None,
    fingerprint: str | None = None,
) -> Job:
    """Queues a job in the caller's transaction; `now` is `Database.now(connection)`. `fingerprint`: see `joining`."""
    insert = (
        jobs.insert()
        .values(
            id=secrets.token_hex(12),
            workspace_id=workspace_id,
            kind=kind,
            role=role,
            status=str(JobStatus.QUEUED),
            priority=priority,
            max_attempts=max_attempts,
            request=request,
            result=sa.null(),
            error=sa.null(),
            callback=json_or_null(callback),
            next_at=now,
            deadline_at=deadline_at,
            created_at=now,
            fingerprint=fingerprint,
            origin=json_or_null(tracing.origin()),
        )
        .returning(*jobs.c)
    )
    return to_job(connection.execute(insert).mappings().one())


def get_job(db: Database, workspace_id: str, job_id: str) -> Job:
    """The job of this workspace; raises `NotFound`."""
    with db.read() as connection:
        return _get(connection, workspace_id, job_id)


def list_jobs(
    db: Database,
    workspace_id: str,
    *,
    kind: str,
    limit: int,
    before: str | None = None,
    wanted: JobFilter | None = None,
) -> list[Job]:
    """Newest first, at most `limit`; `before` is the `page_cursor` of the last job of the page before.

    Raises `InvalidRequest` for a cursor that did not come from here.
    """
    wanted = wanted or JobFilter()
    statement = sa.select(jobs).where(jobs.c.workspace_id == workspace_id, jobs.c.kind == kind)
    if wanted.statuses:
        statement = statement.where(jobs.c.status.in_([str(status) for status in wanted.statuses]))
    if wanted.created_from is not None:
        statement = statement.where(jobs.c.created_at >= wanted.created_from)
    if wanted.created_before is not None:
        statement = statement.where(jobs.c.created_at < wanted.created_before)
    if before is not None:
        statement = statement.where(sa.tuple_(jobs.c.created_at, jobs.c.id) < sa.tuple_(*_read_cursor(before)))
    statement = statement.order_by(jobs.c.created_at.desc(), jobs.c.id.desc()).limit(limit)
    with db.read() as connection:
        return [to_job(row) for row in connection.execute(statement).mappings()]


def page_cursor(job: Job) -> str:
    """What to hand to `list_jobs(before=…)` to go on behind this job; opaque to everybody else."""
    return base64.urlsafe_b64encode(f"{job.created_at!r} {job.id}".encode()).decode().rstrip("=")


def list_steps(db: Database, job_id: str, *, after: int = 0, limit: int = 1000) -> list[Step]:
    """Steps with a number above `after`, in order."""
    statement = (
        sa.select(job_steps)
        .where(job_steps.c.job_id == job_id, job_steps.c.seq > after)
        .order_by(job_steps.c.seq)
        .limit(limit)
    )
    with db.read() as connection:
        return [Step(**row) for row in connection.execute(statement).mappings()]


def count_steps(db: Database, job_ids: Collection[str], kind: str) -> dict[str, int]:
    """How many steps of this kind each of the jobs has; those without any are left out."""
    statement = sa.select(job_steps.c.job_id, sa.func.count()).where(
        job_steps.c.job_id.in_(job_ids), job_steps.c.kind == kind
    )
    with db.read() as connection:
        return dict(connection.execute(statement.group_by(job_steps.c.job_id)).all())


def cancel(db: Database, workspace_id: str, job_id: str) -> Job:
    """Ends a queued or running job at once, with the delivery it owes; a worker that runs it learns so by itself.

    Raises `NotFound`, and `Conflict` when the job has ended already.
    """
    with db.write() as connection:
        mine = sa.and_(jobs.c.id == job_id, jobs.c.workspace_id == workspace_id, jobs.c.status.in_(OPEN_STATUSES))
        cancelled = end_in(connection, mine, JobStatus.CANCELLED, now=db.now(connection), error=_CANCELLED)
        job = _get(connection, workspace_id, job_id)
        if not cancelled:
            raise Conflict(f"The job {job_id} has ended already: {job.status}.", job_status=str(job.status))
        return job


def call_back(db: Database, workspace_id: str, job_id: str, callback: JsonObject, hidden: HiddenFields) -> Job:
    """Has the end of an open job told to `callback`, in place of an earlier one; returns the job.

    A job that has ended is returned as it is, and tells nobody. Raises `NotFound`.
    """
    mine = sa.and_(jobs.c.id == job_id, jobs.c.workspace_id == workspace_id)
    with db.write() as connection:
        update = (
            jobs.update().where(mine, jobs.c.status.in_(OPEN_STATUSES)).values(callback=callback).returning(*jobs.c)
        )
        row = connection.execute(update).mappings().one_or_none()
        if row is None:
            return _get(connection, workspace_id, job_id)
        hidden.write_in(connection, Owner(workspace_id, "job", job_id))
        return to_job(row)


def find_job(db: Database, job_id: str) -> Job | None:
    """The job of any workspace: only for callers who proved otherwise that they may."""
    with db.read() as connection:
        row = connection.execute(sa.select(jobs).where(jobs.c.id == job_id)).mappings().one_or_none()
    return None if row is None else to_job(row)


def job_counts(db: Database) -> dict[tuple[str, JobStatus], int]:
    """How many jobs there are of each kind in each status; what does not occur is left out."""
    statement = sa.select(jobs.c.kind, jobs.c.status, sa.func.count()).group_by(jobs.c.kind, jobs.c.status)
    with db.read() as connection:
        return {(kind, JobStatus(status)): count for kind, status, count in connection.execute(statement)}


def oldest_queued_seconds(db: Database) -> float | None:
    """How long the oldest job that is due has been waiting since it became due; None when none waits."""
    with db.read() as connection:
        now = db.now(connection)
        due = sa.and_(jobs.c.status == str(JobStatus.QUEUED), jobs.c.next_at <= now)
        since = connection.execute(sa.select(sa.func.min(jobs.c.next_at)).where(due)).scalar_one_or_none()
    return None if since is None else max(now - since, 0.0)


def delete_old(db: Database, *, older_than_seconds: float, limit: int = 1000) -> int:
    """Forgets up to `limit` jobs that ended longer ago, with their steps, deliveries and idempotency keys."""
    with db.write() as connection:
        before = db.now(connection) - older_than_seconds
        old = sa.select(jobs.c.id).where(jobs.c.ended_at < before).limit(limit).correlate(None)
        return connection.execute(jobs.delete().where(jobs.c.id.in_(old))).rowcount


_CANCELLED: JsonObject = {"code": "cancelled", "message": "The job was cancelled."}


def _get(connection: sa.Connection, workspace_id: str, job_id: str) -> Job:
    statement = sa.select(jobs).where(jobs.c.id == job_id, jobs.c.workspace_id == workspace_id)
    row = connection.execute(statement).mappings().one_or_none()
    if row is None:
        raise NotFound(f"There is no job {job_id} in this workspace.")
    return to_job(row)


def remember_in(connection: sa.Connection, job: Job, idempotency: Idempotency) -> bool:
    """Ties the key to the job; False when the key is taken. The key's own uniqueness decides between two at once."""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = insert(idempotency_keys).values(
        workspace_id=job.workspace_id,
        key=idempotency.key,
        body_sha256=idempotency.body_sha256,
        job_id=job.id,
        created_at=job.created_at,
    )
    statement = statement.on_conflict_do_nothing().returning(idempotency_keys.c.key)
    return connection.execute(statement).first() is not None


def _earlier(connection: sa.Connection, workspace_id: str, idempotency: Idempotency) -> Job:
    statement = sa.select(idempotency_keys.c.body_sha256, idempotency_keys.c.job_id).where(
        idempotency_keys.c.workspace_id == workspace_id, idempotency_keys.c.key == idempotency.key
    )
    known = connection.execute(statement).one()
    if known.body_sha256 != idempotency.body_sha256:
        raise IdempotencyMismatch("This idempotency key was used before with another body; use a new key.")
    return _get(connection, workspace_id, known.job_id)


def _read_cursor(cursor: str) -> tuple[float, str]:
    try:
        created_at, job_id = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode().split(" ")
        position = float(created_at), job_id
    except ValueError as error:
        raise InvalidRequest("This is not a cursor of a list of jobs.") from error
    if not math.isfinite(position[0]) or not job_id.isalnum():  # no database is asked for what it cannot hold
        raise InvalidRequest("This is not a cursor of a list of jobs.")
    return position
