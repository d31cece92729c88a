"""The worker's verbs on the job table: claim, beat, step, finish, release, reap; each is fenced by the token of the claim.

A worker may run a job only between a claim and the end of its lease. Whatever it writes carries the token of that claim, a
fencing token. So a worker that lost its job can say nothing about it any more.
"""

import zlib
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import sqlalchemy as sa
from pydantic import JsonValue
from sqlalchemy.sql.dml import ReturningUpdate

from hopnode.worker.errors import JobCancelled, LeaseLost
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs.deliveries import add_deliveries_in
from hopnode.worker.store.jobs.record import Job, JobStatus, JsonObject, json_or_null, to_job
from hopnode.worker.store.jobs.turns import QUEUED, RUNNING, claimable, next_in_turn
from hopnode.worker.store.tables import job_steps, jobs


@dataclass(frozen=True)
class Reaped:
    """How many jobs went back to the queue, how many ended because nothing was left to try, and which they were."""

    requeued: int
    failed: int
    job_ids: tuple[str, ...] = field(default=(), compare=False)


def claim_next(
    db: Database,
    *,
    role: str,
    lease_seconds: float,
    workspace_limit: int,
    kinds: Collection[str] | None = None,
) -> Job | None:
    """Takes the job of `role` whose turn it is, with a fresh fencing token and a lease. Returns None when there is none.

    Turn: first the workspaces with the fewest running jobs of this role, then the smaller `priority`, then age. A
    workspace never has more than `workspace_limit` running jobs of one role. A job whose lease has ended may be taken
    over while attempts are left. `kinds` leaves out jobs that the caller could not run.
    """
    with db.write() as connection:
        if db.dialect == "postgresql":  # SQLite has one writer anyway; here the count behind the cap needs one claimer
            key = zlib.crc32(f"hopnode.claim.{role}".encode())
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(key)))
        now = db.now(connection)
        for _ in range(_TRIES):
            job_id = next_in_turn(connection, role, now, workspace_limit, kinds)
            if job_id is None:
                return None
            row = connection.execute(_claim(job_id, now, lease_seconds)).mappings().one_or_none()
            if row is not None:
                return to_job(row)
        return None


_TRIES = 5
"""Between the look and the claim somebody may cancel the job, on PostgreSQL; then it is the turn of another."""


def _claim(job_id: str, now: float, lease_seconds: float) -> ReturningUpdate[Any]:
    claim = jobs.update().where(jobs.c.id == job_id, claimable(now))
    return claim.values(
        status=RUNNING,
        attempt=jobs.c.attempt + 1,
        lease_token=uuid4().hex,
        lease_until=now + lease_seconds,
        started_at=sa.func.coalesce(jobs.c.started_at, now),
    ).returning(*jobs.c)


def beat(db: Database, job: Job, lease_seconds: float) -> None:
    """Extends the lease to `lease_seconds` from now; raises `LeaseLost`, or `JobCancelled` when somebody cancelled."""
    with db.write() as connection:
        until = db.now(connection) + lease_seconds
        if connection.execute(jobs.update().where(_held(job)).values(lease_until=until)).rowcount == 0:
            raise _why_lost(connection, job)


def look(db: Database, job: Job) -> None:
    """Raises what `beat` would raise, writing nothing: cheap enough to be asked several times a second."""
    with db.read() as connection:
        if connection.execute(sa.select(jobs.c.id).where(_held(job))).first() is None:
            raise _why_lost(connection, job)


def add_step(db: Database, job: Job, kind: str, data: JsonObject) -> int:
    """Records a step and returns its number; numbers go on over attempts. Raises as `beat` does."""
    with db.write() as connection:
        seq = connection.execute(_ADVANCE, {"held_id": job.id, "held_token": job.lease_token}).scalar_one_or_none()
        if seq is None:
            raise _why_lost(connection, job)
        step = {"job_id": job.id, "seq": seq, "attempt": job.attempt, "kind": kind, "data": data}
        connection.execute(_ADD_STEP, step | {"created_at": db.now(connection)})
        return seq


_ADVANCE = (
    jobs.update()
    .where(
        jobs.c.id == sa.bindparam("held_id"),
        jobs.c.status == RUNNING,
        jobs.c.lease_token == sa.bindparam("held_token"),
    )
    .values(last_step=jobs.c.last_step + 1)
    .returning(jobs.c.last_step)
)
_ADD_STEP = job_steps.insert()
"""Made once: a running search writes several steps a turn, and making the statements took longer than running them."""


def finish(
    db: Database, job: Job, status: JobStatus, *, result: JsonValue = None, error: JsonObject | None = None
) -> bool:
    """Ends the job, together with the delivery that its callback is owed. Returns False when the job is not ours any more."""
    with db.write() as connection:
        return bool(end_in(connection, _held(job), status, now=db.now(connection), result=result, error=error))


def release(db: Database, job: Job, *, error: JsonObject, delay_seconds: float) -> bool:
    """Hands the job back for another attempt in `delay_seconds`; without attempts left it fails with `error`.

    False when the job is not ours any more.
    """
    with db.write() as connection:
        now = db.now(connection)
        if job.attempt >= job.max_attempts:
            return bool(end_in(connection, _held(job), JobStatus.FAILED, now=now, error=error))
        back = _requeue(next_at=now + delay_seconds).where(_held(job)).values(error=error)
        return connection.execute(back).rowcount == 1


def give_back(db: Database, job: Job) -> bool:
    """Hands the job back untried, because the process was told to stop: one attempt more is allowed in its place."""
    with db.write() as connection:
        back = _requeue(next_at=db.now(connection)).where(_held(job)).values(max_attempts=jobs.c.max_attempts + 1)
        return connection.execute(back).rowcount == 1


def reap(db: Database) -> Reaped:
    """Frees jobs whose worker fell silent, and fails those without attempts (`worker-lost`) or time left.

    Safe to run anywhere at any time, several times at once too.
    """
    with db.write() as connection:
        now = db.now(connection)
        silent = sa.and_(jobs.c.status == RUNNING, jobs.c.lease_until < now)
        tried = jobs.c.attempt >= jobs.c.max_attempts
        late = sa.and_(jobs.c.status == QUEUED, jobs.c.deadline_at < now)
        freed = _requeue(next_at=now).where(silent, sa.not_(tried)).returning(jobs.c.id)
        requeued = connection.execute(freed).scalars().all()
        failed = end_in(connection, sa.and_(silent, tried), JobStatus.FAILED, now=now, error=_WORKER_LOST)
        failed += end_in(connection, late, JobStatus.FAILED, now=now, error=_TOO_LATE)
        ids = (*requeued, *(job.id for job in failed))
        return Reaped(requeued=len(requeued), failed=len(failed), job_ids=ids)


def has_claimable(db: Database, role: str, workspace_limit: int) -> bool:
    """Whether a claim now would get a job; as quick behind a long queue as behind a short one."""
    with db.read() as connection:
        return next_in_turn(connection, role, db.now(connection), workspace_limit) is not None


def count_claimable(db: Database, role: str, workspace_limit: int | None = None) -> int:
    """How many jobs could be claimed now; with `workspace_limit`, no more of a workspace than its cap leaves room for."""
    with db.read() as connection:
        now = db.now(connection)
        waiting = sa.func.sum(sa.case((claimable(now), 1), else_=0))
        busy = sa.func.sum(sa.case((sa.and_(jobs.c.status == RUNNING, jobs.c.lease_until >= now), 1), else_=0))
        statement = (
            sa.select(waiting, busy)
            .where(jobs.c.role == role, jobs.c.status.in_((QUEUED, RUNNING)))
            .group_by(jobs.c.workspace_id)
        )
        rows = connection.execute(statement).all()
    if workspace_limit is None:
        return sum(waiting for waiting, _ in rows)
    return sum(min(waiting, max(workspace_limit - busy, 0)) for waiting, busy in rows)


def is_in_the_way(db: Database, job: Job, patience_seconds: float, workspace_limit: int) -> bool:
    """Whether `job` keeps others of its role from starting. These have more weight (a smaller `priority`) and have been due
    for longer than `patience_seconds`. They could be claimed if `job` gave up its place."""
    with db.read() as connection:
        now = db.now(connection)
        due = sa.and_(claimable(now - patience_seconds), jobs.c.status == QUEUED, jobs.c.priority < job.priority)
        busy = sa.and_(jobs.c.status == RUNNING, jobs.c.id != job.id)
        statement = (
            sa.select(sa.func.count().filter(due), sa.func.count().filter(busy))
            .where(jobs.c.role == job.role, jobs.c.status.in_((QUEUED, RUNNING)))
            .group_by(jobs.c.workspace_id)
        )
        return any(waiting and running < workspace_limit for waiting, running in connection.execute(statement))


def end_in(
    connection: sa.Connection,
    condition: sa.ColumnElement[bool],
    status: JobStatus,
    *,
    now: float,
    result: JsonValue = None,
    error: JsonObject | None = None,
) -> list[Job]:
    """Ends every job that meets `condition`, each with the deliveries it owes, and returns them."""
    end = (
        jobs.update()
        .where(condition)
        .values(
            status=str(status),
            result=json_or_null(result),
            error=json_or_null(error),
            lease_token=None,
            lease_until=None,
            ended_at=now,
        )
        .returning(*jobs.c)
    )
    ended = [to_job(row) for row in connection.execute(end).mappings().all()]
    for job in ended:
        add_deliveries_in(connection, job, now=now)
    return ended


_WORKER_LOST: JsonObject = {
    "code": "worker-lost",
    "message": "The worker that ran this job fell silent, and no attempts are left.",
}
_TOO_LATE: JsonObject = {
    "code": "deadline-exceeded",
    "message": "The deadline of this job passed before a worker could finish it.",
}


def _held(job: Job) -> sa.ColumnElement[bool]:
    """The fence: the row is still running under the token of this claim."""
    return sa.and_(jobs.c.id == job.id, jobs.c.status == RUNNING, jobs.c.lease_token == job.lease_token)


def _requeue(next_at: float) -> sa.Update:
    return jobs.update().values(status=QUEUED, lease_token=None, lease_until=None, next_at=next_at)


def _why_lost(connection: sa.Connection, job: Job) -> JobCancelled | LeaseLost:
    status = connection.execute(sa.select(jobs.c.status).where(jobs.c.id == job.id)).scalar_one_or_none()
    if status == JobStatus.CANCELLED:
        return JobCancelled("The job was cancelled.")
    return LeaseLost("The lease of this job ended, and it may belong to another worker now.")
