"""Collections of a workspace: names, descriptions and the embedder each is bound to; knows no document and no vector."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, TypedDict, Unpack

import sqlalchemy as sa
from pydantic import JsonValue
from sqlalchemy.exc import IntegrityError

from hopnode.worker.errors import Conflict, InvalidRequest, NotFound
from hopnode.worker.store.checked_text import check_label, check_slug, check_text
from hopnode.worker.store.database import Database
from hopnode.worker.store.tables import collections
from hopnode.worker.store.workspaces import workspace_in

_LONGEST_DESCRIPTION = 10_000


@dataclass(frozen=True)
class Collection:
    """Documents that are searched together. `embedder` and `dimension` are None until the first documents decide.

    `dense_weight` (0 to 1) is the weight of the vector leg in the fusion, None the node's default. `created_at` is in
    seconds since the epoch.
    """

    id: str
    workspace_id: str
    name: str
    description: str
    embedder: str | None
    dimension: int | None
    dense_weight: float | None
    metadata: Mapping[str, JsonValue]
    created_at: float


class CollectionChanges(TypedDict, total=False):
    """What `update_collection` can change; a field that is left out stays as it is, `metadata` is replaced whole."""

    description: str
    dense_weight: float | None
    metadata: Mapping[str, JsonValue]


def create_collection(
    db: Database,
    workspace_id: str,
    name: str,
    *,
    description: str = "",
    embedder: str | None = None,
    dense_weight: float | None = None,
    metadata: Mapping[str, JsonValue] | None = None,
) -> Collection:
    """An empty collection; `embedder` None or `auto` leaves the choice to its first documents.

    Raises `NotFound` for an unknown workspace, `InvalidRequest` for a value out of range, `Conflict` for a taken name.
    """
    check_slug(name, "collection")
    changes = _checked({"description": description, "dense_weight": dense_weight, "metadata": metadata or {}})
    chosen = None if embedder in (None, "auto") else check_label(embedder, "name of an embedder", 200)
    values = {"id": secrets.token_hex(12), "workspace_id": workspace_id, "name": name, "embedder": chosen, **changes}
    try:
        with db.write() as connection:
            workspace_in(connection, workspace_id)
            insert = collections.insert().values(**values, created_at=db.now(connection)).returning(*collections.c)
            return _to_collection(connection.execute(insert).mappings().one())
    except IntegrityError as error:
        raise Conflict(f"There is a collection called `{name}` already.") from error


def get_collection(db: Database, workspace_id: str, name: str) -> Collection:
    """Raises `NotFound`."""
    with db.read() as connection:
        return _one(connection, _named(workspace_id, name), name)


def get_collection_by_id(db: Database, workspace_id: str, collection_id: str) -> Collection:
    """Raises `NotFound`, also for a collection of another workspace."""
    with db.read() as connection:
        return collection_in(connection, workspace_id, collection_id)


def collection_in(connection: sa.Connection, workspace_id: str, collection_id: str) -> Collection:
    """The collection as the caller's transaction sees it; raises `NotFound`."""
    condition = sa.and_(collections.c.id == collection_id, collections.c.workspace_id == workspace_id)
    return _one(connection, condition, collection_id)


def list_collections(db: Database, workspace_id: str) -> list[Collection]:
    """All collections of the workspace by name; raises `NotFound` for an unknown workspace."""
    statement = sa.select(collections).where(collections.c.workspace_id == workspace_id).order_by(collections.c.name)
    with db.read() as connection:
        workspace_in(connection, workspace_id)
        return [_to_collection(row) for row in connection.execute(statement).mappings()]


def update_collection(db: Database, workspace_id: str, name: str, **changes: Unpack[CollectionChanges]) -> Collection:
    """Changes what is named and nothing else; raises `NotFound` or `InvalidRequest`."""
    values = _checked(changes)
    if not values:
        return get_collection(db, workspace_id, name)
    with db.write() as connection:
        update = collections.update().where(_named(workspace_id, name)).values(**values).returning(*collections.c)
        row = connection.execute(update).mappings().one_or_none()
    if row is None:
        raise NotFound(f"There is no collection `{name}` in this workspace.")
    return _to_collection(row)


def fix_embedder(db: Database, collection_id: str, embedder: str, dimension: int) -> Collection:
    """Binds the collection to an embedder when its first documents come; the same choice again changes nothing.

    Raises `Conflict` when it is bound to another embedder or dimension, `NotFound` when it is gone.
    """
    with db.read() as connection:
        found = _one(connection, collections.c.id == collection_id, collection_id)
    if (found.embedder, found.dimension) == (embedder, dimension):
        return found
    free = sa.and_(
        collections.c.id == collection_id,
        sa.or_(collections.c.embedder.is_(None), collections.c.embedder == embedder),
        sa.or_(collections.c.dimension.is_(None), collections.c.dimension == dimension),
    )
    with db.write() as connection:
        connection.execute(collections.update().where(free).values(embedder=embedder, dimension=dimension))
        found = _one(connection, collections.c.id == collection_id, collection_id)
    if (found.embedder, found.dimension) != (embedder, dimension):
        raise Conflict(
            f"The collection `{found.name}` is bound to the embedder `{found.embedder}` "
            f"(dimension {found.dimension or 'open'}), not `{embedder}` ({dimension}).",
            embedder=found.embedder,
        )
    return found


def delete_collection(db: Database, workspace_id: str, name: str) -> Collection:
    """Forgets the collection with its sources, items and syncs, and returns what it was; raises `NotFound`."""
    with db.write() as connection:
        delete = collections.delete().where(_named(workspace_id, name)).returning(*collections.c)
        row = connection.execute(delete).mappings().one_or_none()
    if row is None:
        raise NotFound(f"There is no collection `{name}` in this workspace.")
    return _to_collection(row)


def _named(workspace_id: str, name: str) -> sa.ColumnElement[bool]:
    return sa.and_(collections.c.workspace_id == workspace_id, collections.c.name == name)


def _one(connection: sa.Connection, condition: sa.ColumnElement[bool], called: str) -> Collection:
    row = connection.execute(sa.select(collections).where(condition)).mappings().one_or_none()
    if row is None:
        raise NotFound(f"There is no collection `{called}` in this workspace.")
    return _to_collection(row)


def _checked(changes: CollectionChanges) -> CollectionChanges:
    if "description" in changes:
        check_text(changes["description"], "description", _LONGEST_DESCRIPTION)
    weight = changes.get("dense_weight")
    if weight is not None and not 0 <= weight <= 1:
        raise InvalidRequest("The dense weight lies between 0 and 1.")
    return changes


_FIELDS = tuple(field.name for field in fields(Collection))


def _to_collection(row: sa.RowMapping) -> Collection:
    values: dict[str, Any] = {name: row[name] for name in _FIELDS}
    return Collection(**values)
