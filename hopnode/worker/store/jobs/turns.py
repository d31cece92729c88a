"""Whose turn it is among the jobs that wait: the statement behind a claim; changes nothing, and knows no worker.

It looks at the first job of each workspace that waits, and at nothing behind it. So a long queue takes no longer than a short
one. All of it is read from the index `ix_jobs_turn` but whether a job is due.
"""

from collections.abc import Collection
from functools import cache
from typing import Any

import sqlalchemy as sa

from hopnode.worker.store.jobs.record import JobStatus
from hopnode.worker.store.tables import jobs

QUEUED, RUNNING = str(JobStatus.QUEUED), str(JobStatus.RUNNING)


def next_in_turn(
    connection: sa.Connection, role: str, now: float, workspace_limit: int, kinds: Collection[str] | None = None
) -> str | None:
    """The id of the job of `role` to claim at `now` (seconds since the epoch); None when there is none.

    First the workspaces with the fewest running jobs of this role, then the smaller priority, then age; none of a workspace
    that runs `workspace_limit` already. A silent job counts as running, so taking it over needs no further room.
    """
    values: dict[str, Any] = {"role": role, "now": now, "most": workspace_limit}
    if kinds is not None:
        values["kinds"] = list(kinds)
    return connection.scalar(turn_statement(of_kinds=kinds is not None), values)


@cache
def turn_statement(*, of_kinds: bool) -> sa.Select[str]:
    """Selects that id for the parameters `role`, `now`, `most` and, where asked for, `kinds`.

    Made once, since making it takes longer than running it.
    """
    role: sa.ColumnElement[str] = sa.bindparam("role", type_=sa.String)
    now: sa.ColumnElement[float] = sa.bindparam("now", type_=sa.Double)
    waiting = _waiting_workspaces(role)
    mine = [jobs.c.role == role]
    if of_kinds:
        mine.append(jobs.c.kind.in_(sa.bindparam("kinds", expanding=True)))
    first = (
        sa.select(jobs.c.id)
        .where(*mine, jobs.c.workspace_id == waiting.c.workspace_id, _due(now))
        .order_by(jobs.c.priority, jobs.c.created_at, jobs.c.id)
        .limit(1)
        .correlate(waiting)
    )
    heads = sa.select(
        _running(role, waiting.c.workspace_id).label("others"),
        first.with_only_columns(jobs.c.priority).scalar_subquery().label("priority"),
        first.with_only_columns(jobs.c.created_at).scalar_subquery().label("created_at"),
        first.scalar_subquery().label("id"),
    ).where(waiting.c.workspace_id.is_not(None))
    taken_over = sa.select(
        (_running(role, jobs.c.workspace_id) - 1).label("others"), jobs.c.priority, jobs.c.created_at, jobs.c.id
    ).where(*mine, _silent(now))
    candidate = sa.union_all(heads, taken_over).subquery("candidate")
    return (
        sa.select(candidate.c.id)
        .where(candidate.c.id.is_not(None), candidate.c.others < sa.bindparam("most"))
        .order_by(candidate.c.others, candidate.c.priority, candidate.c.created_at, candidate.c.id)
        .limit(1)
    )


def claimable(now: float | sa.ColumnElement[float]) -> sa.ColumnElement[bool]:
    """Queued and due, or running for a worker that fell silent; never past its deadline."""
    return sa.or_(_due(now), _silent(now))


def _due(now: float | sa.ColumnElement[float]) -> sa.ColumnElement[bool]:
    return sa.and_(jobs.c.status == QUEUED, jobs.c.next_at <= now, _in_time(now))


def _silent(now: float | sa.ColumnElement[float]) -> sa.ColumnElement[bool]:
    return sa.and_(
        jobs.c.status == RUNNING, jobs.c.lease_until < now, jobs.c.attempt < jobs.c.max_attempts, _in_time(now)
    )


def _in_time(now: float | sa.ColumnElement[float]) -> sa.ColumnElement[bool]:
    return sa.or_(jobs.c.deadline_at.is_(None), jobs.c.deadline_at >= now)


def _waiting_workspaces(role: sa.ColumnElement[str]) -> sa.CTE:
    """The workspaces with a queued job of `role`, each found from the one before by one look into the index; the last is NULL."""
    queued = sa.select(sa.func.min(jobs.c.workspace_id).label("workspace_id")).where(
        jobs.c.status == QUEUED, jobs.c.role == role
    )
    found = queued.cte("waiting", recursive=True)
    behind = queued.where(jobs.c.workspace_id > found.c.workspace_id).correlate(found).scalar_subquery()
    return found.union_all(sa.select(behind).where(found.c.workspace_id.is_not(None)))


def _running(role: sa.ColumnElement[str], workspace_id: sa.ColumnElement[Any]) -> sa.ScalarSelect[int]:
    """How many jobs of `role` the workspace runs now."""
    other = jobs.alias("other")
    return (
        sa.select(sa.func.count())
        .select_from(other)
        .where(other.c.role == role, other.c.status == RUNNING, other.c.workspace_id == workspace_id)
        .scalar_subquery()
    )
