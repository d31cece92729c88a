"""Runs of a source: each is tied to one job, which alone says whether it waits, runs or has ended. Lists and fetches nothing."""

import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import sqlalchemy as sa
from pydantic import JsonValue

from hopnode.worker.errors import Conflict, NotFound
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs.jobs import create_job_in
from hopnode.worker.store.jobs.record import JobStatus
from hopnode.worker.store.tables import jobs, sources, syncs

_MAX_ATTEMPTS = 5  # reference/jobs-webhooks-connectors.md, summary 3
_OPEN = (str(JobStatus.QUEUED), str(JobStatus.RUNNING))


@dataclass(frozen=True)
class SyncCounts:
    """What a sync met so far, in items, and `bytes` as fetched."""

    listed: int = 0
    unchanged: int = 0
    added: int = 0
    changed: int = 0
    deleted: int = 0
    skipped: int = 0
    failed: int = 0
    bytes: int = 0

    def to_json(self) -> dict[str, JsonValue]:
        """The counts by name."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`; a count that is absent is 0, a name that is unknown is passed over."""
        return cls(**{field.name: int(value.get(field.name, 0)) for field in fields(cls)})


@dataclass(frozen=True)
class Sync:
    """One run of a source. `resume` is where a listing can go on after a crash, `note` a slug that says how it ended.

    Times are seconds since the epoch; `ended_at` is None as long as nobody called `end_sync`.
    """

    id: str
    workspace_id: str
    source_id: str
    job_id: str
    counts: SyncCounts
    resume: JsonValue
    note: str | None
    created_at: float
    ended_at: float | None


def create_sync(db: Database, workspace_id: str, source_id: str, *, confirm_deletes: bool = False) -> Sync:
    """Queues a run of the source, with its job, in one transaction. `confirm_deletes` lets it forget more at once than
    the brake allows.

    Raises `NotFound` for an unknown source and `Conflict` while a run of it is queued or running.
    """
    with db.write() as connection:
        _lock_source(connection, workspace_id, source_id)
        open_id = connection.execute(sa.select(syncs.c.id).where(syncs.c.source_id == source_id, is_open())).scalar()
        if open_id is not None:
            raise Conflict(f"A sync of this source is queued or running: {open_id}.", sync_id=open_id)
        now = db.now(connection)
        sync_id = secrets.token_hex(12)
        job = create_job_in(
            connection,
            now=now,
            workspace_id=workspace_id,
            kind="sync",
            role="sync",
            request={"source_id": source_id, "sync_id": sync_id, "confirm_deletes": confirm_deletes},
            max_attempts=_MAX_ATTEMPTS,
        )
        sync = Sync(sync_id, workspace_id, source_id, job.id, SyncCounts(), None, None, now, None)
        row = {**asdict(sync), "counts": sync.counts.to_json()}
        connection.execute(syncs.insert().values(row))
    return sync


def get_sync(db: Database, workspace_id: str, sync_id: str) -> Sync:
    """Raises `NotFound`, also for a sync of another workspace."""
    return _one(db, sa.and_(syncs.c.id == sync_id, syncs.c.workspace_id == workspace_id))


def get_sync_by_job(db: Database, job_id: str) -> Sync:
    """The sync that this job runs; raises `NotFound` when its source was deleted meanwhile."""
    return _one(db, syncs.c.job_id == job_id)


def list_syncs(db: Database, workspace_id: str, source_id: str, *, limit: int = 100) -> list[Sync]:
    """The newest `limit` syncs of the source, the newest first; none for a source of another workspace."""
    mine = sa.and_(syncs.c.source_id == source_id, syncs.c.workspace_id == workspace_id)
    statement = sa.select(syncs).where(mine).order_by(syncs.c.created_at.desc(), syncs.c.id.desc()).limit(limit)
    with db.read() as connection:
        return [_to_sync(row) for row in connection.execute(statement).mappings()]


def note_progress(db: Database, sync_id: str, counts: SyncCounts, resume: JsonValue) -> None:
    """Keeps counts and resume token (None: the next attempt lists from the start). Raises `NotFound` when the source is gone."""
    _update(db, sync_id, counts=counts.to_json(), resume=resume)


def end_sync(db: Database, sync_id: str, counts: SyncCounts, note: str | None) -> None:
    """Closes the run with its last counts and a slug. Raises `NotFound` when the source is gone."""
    _update(db, sync_id, counts=counts.to_json(), resume=None, note=note, ended=True)


def is_open() -> sa.ColumnElement[bool]:
    """Whether the job of a row of `syncs` has not ended yet."""
    return sa.exists().where(jobs.c.id == syncs.c.job_id, jobs.c.status.in_(_OPEN))


def _lock_source(connection: sa.Connection, workspace_id: str, source_id: str) -> None:
    """Holds the source's row until the transaction ends, so that two callers cannot both see no open sync."""
    mine = sa.and_(sources.c.id == source_id, sources.c.workspace_id == workspace_id)
    if connection.execute(sa.select(sources.c.id).where(mine).with_for_update()).first() is None:
        raise NotFound(f"There is no source {source_id} in this workspace.")


def _update(db: Database, sync_id: str, *, ended: bool = False, **values: object) -> None:
    with db.write() as connection:
        if ended:
            values["ended_at"] = db.now(connection)
        if connection.execute(syncs.update().where(syncs.c.id == sync_id).values(**values)).rowcount == 0:
            raise NotFound("The sync is gone: its source was deleted.")


def _one(db: Database, condition: sa.ColumnElement[bool]) -> Sync:
    with db.read() as connection:
        row = connection.execute(sa.select(syncs).where(condition)).mappings().one_or_none()
    if row is None:
        raise NotFound("There is no such sync in this workspace.")
    return _to_sync(row)


def _to_sync(row: sa.RowMapping) -> Sync:
    values: dict[str, Any] = {field.name: row[field.name] for field in fields(Sync)}
    values["counts"] = SyncCounts.from_json(row["counts"])
    return Sync(**values)
