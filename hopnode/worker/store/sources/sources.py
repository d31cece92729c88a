"""Sources of a workspace: what is fetched from where, and how often. Their syncs and items are at hand from here as well.

Knows no connector: the configuration is JSON that the connector of its kind has checked before.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypedDict, Unpack

import sqlalchemy as sa
from pydantic import JsonValue
from sqlalchemy.exc import IntegrityError

from hopnode.worker.errors import Conflict, InvalidRequest, NotFound
from hopnode.worker.store.checked_text import check_label
from hopnode.worker.store.collections import collection_in
from hopnode.worker.store.database import Database
from hopnode.worker.store.secrets.vault import HiddenFields, Owner
from hopnode.worker.store.sources.items import Item, forget_items, get_items, missing_items, save_items
from hopnode.worker.store.sources.syncs import (
    Sync,
    SyncCounts,
    create_sync,
    end_sync,
    get_sync,
    get_sync_by_job,
    is_open,
    list_syncs,
    note_progress,
)
from hopnode.worker.store.tables import sources, syncs
from hopnode.worker.store.workspaces import workspace_in

__all__ = [
    "Item",
    "Source",
    "SourceChanges",
    "Sync",
    "SyncCounts",
    "create_source",
    "create_sync",
    "delete_source",
    "due_sources",
    "end_sync",
    "forget_items",
    "get_items",
    "get_source",
    "get_sync",
    "get_sync_by_job",
    "list_sources",
    "list_syncs",
    "missing_items",
    "note_progress",
    "owner_of",
    "save_items",
    "save_source_state",
    "update_source",
]

_LONGEST_PERIOD_SECONDS = 366 * 24 * 3600


@dataclass(frozen=True)
class Source:
    """A configured origin of documents. `state` is the connector's own memory between syncs.

    `sync_every_seconds` None: only when somebody asks. Times are seconds since the epoch.
    """

    id: str
    workspace_id: str
    collection_id: str
    kind: str
    name: str
    config: Mapping[str, JsonValue]
    state: Mapping[str, JsonValue]
    sync_every_seconds: int | None
    created_at: float
    updated_at: float


class SourceChanges(TypedDict, total=False):
    """What `update_source` can change; a field that is left out stays as it is."""

    name: str
    config: Mapping[str, JsonValue]
    sync_every_seconds: int | None


def create_source(
    db: Database,
    workspace_id: str,
    collection_id: str,
    *,
    kind: str,
    name: str,
    config: Mapping[str, JsonValue],
    sync_every_seconds: int | None = None,
    hidden: HiddenFields | None = None,
) -> Source:
    """A source that has not been synced yet; `hidden` are the secrets that `config` shows masks for.

    Raises `NotFound` for a collection that is not of this workspace, `InvalidRequest`, and `Conflict` for a taken name.
    """
    values = _checked({"name": name, "config": config, "sync_every_seconds": sync_every_seconds})
    fixed = {"id": secrets.token_hex(12), "workspace_id": workspace_id, "collection_id": collection_id, "kind": kind}
    try:
        with db.write() as connection:
            collection_in(connection, workspace_id, collection_id)
            now = db.now(connection)
            insert = sources.insert().values(**fixed, **values, state={}, created_at=now, updated_at=now)
            made = _to_source(connection.execute(insert.returning(*sources.c)).mappings().one())
            if hidden is not None:
                hidden.write_in(connection, owner_of(made))
            return made
    except IntegrityError as error:
        raise _name_taken(name) from error


def get_source(db: Database, workspace_id: str, source_id: str) -> Source:
    """Raises `NotFound`, also for a source of another workspace."""
    with db.read() as connection:
        row = connection.execute(sa.select(sources).where(_mine(workspace_id, source_id))).mappings().one_or_none()
    return _found(row, source_id)


def list_sources(db: Database, workspace_id: str, collection_id: str | None = None) -> list[Source]:
    """Sources of the workspace, or of one of its collections, by name; raises `NotFound` for an unknown workspace."""
    statement = sa.select(sources).where(sources.c.workspace_id == workspace_id).order_by(sources.c.name)
    if collection_id is not None:
        statement = statement.where(sources.c.collection_id == collection_id)
    with db.read() as connection:
        workspace_in(connection, workspace_id)
        return [_to_source(row) for row in connection.execute(statement).mappings()]


def update_source(
    db: Database,
    workspace_id: str,
    source_id: str,
    *,
    hidden: HiddenFields | None = None,
    **changes: Unpack[SourceChanges],
) -> Source:
    """Changes what is named and nothing else; another configuration also drops the connector's memory of the old one.

    `hidden` are the secrets that a new `config` shows masks for.

    Raises `NotFound`, `InvalidRequest`, and `Conflict` for a taken name.
    """
    values: dict[str, Any] = {**_checked(changes)}
    if "config" in changes:
        values["state"] = {}
    try:
        with db.write() as connection:
            values["updated_at"] = db.now(connection)
            update = sources.update().where(_mine(workspace_id, source_id)).values(**values).returning(*sources.c)
            source = _found(connection.execute(update).mappings().one_or_none(), source_id)
            if hidden is not None:
                hidden.write_in(connection, owner_of(source))
            return source
    except IntegrityError as error:
        raise _name_taken(changes.get("name", "")) from error


def delete_source(db: Database, workspace_id: str, source_id: str) -> Source:
    """Forgets the source with its items and syncs, and returns what it was; raises `NotFound`.

    Its documents stay. A sync that is under way finds itself gone at its next note of progress.
    """
    with db.write() as connection:
        delete = sources.delete().where(_mine(workspace_id, source_id)).returning(*sources.c)
        row = connection.execute(delete).mappings().one_or_none()
    return _found(row, source_id)


def save_source_state(db: Database, source_id: str, state: Mapping[str, JsonValue]) -> None:
    """Keeps the connector's memory for the next sync; raises `NotFound` when the source is gone."""
    with db.write() as connection:
        if connection.execute(sources.update().where(sources.c.id == source_id).values(state=state)).rowcount == 0:
            raise NotFound(f"There is no source {source_id}.")


def due_sources(db: Database) -> list[Source]:
    """Sources of all workspaces whose period has passed since their last sync began, none of them with an open one."""
    last = sa.select(sa.func.max(syncs.c.created_at)).where(syncs.c.source_id == sources.c.id).scalar_subquery()
    busy = sa.exists().where(syncs.c.source_id == sources.c.id, is_open())
    with db.read() as connection:
        passed = sa.func.coalesce(last, 0.0) + sources.c.sync_every_seconds <= db.now(connection)
        statement = sa.select(sources).where(sources.c.sync_every_seconds.is_not(None), ~busy, passed)
        return [_to_source(row) for row in connection.execute(statement.order_by(sources.c.id)).mappings()]


def owner_of(source: Source) -> Owner:
    """The name under which the vault keeps the secrets of the source."""
    return Owner(source.workspace_id, "source", source.id)


def _mine(workspace_id: str, source_id: str) -> sa.ColumnElement[bool]:
    return sa.and_(sources.c.id == source_id, sources.c.workspace_id == workspace_id)


def _checked(changes: SourceChanges) -> SourceChanges:
    if "name" in changes:
        check_label(changes["name"], "name of a source", 128)
    period = changes.get("sync_every_seconds")
    if period is not None and not 1 <= period <= _LONGEST_PERIOD_SECONDS:
        raise InvalidRequest(f"The period of a source is 1 to {_LONGEST_PERIOD_SECONDS} seconds, or none.")
    return changes


def _name_taken(name: str) -> Conflict:
    return Conflict(f"There is a source called `{name}` already.")


def _found(row: sa.RowMapping | None, source_id: str) -> Source:
    if row is None:
        raise NotFound(f"There is no source {source_id} in this workspace.")
    return _to_source(row)


def _to_source(row: sa.RowMapping) -> Source:
    values: dict[str, Any] = {each.name: row[each.name] for each in fields(Source)}
    return Source(**values)
