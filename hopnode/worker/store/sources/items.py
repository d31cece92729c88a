"""What is known of each thing that a source listed: the memory that makes the next sync a comparison. Fetches nothing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, TypeVar

import sqlalchemy as sa
from pydantic import JsonValue
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from hopnode.worker.errors import InvalidRequest, NotFound
from hopnode.worker.store.database import Database
from hopnode.worker.store.tables import items

_BATCH = 500  # ids in one statement; both engines allow far more
_LONGEST_ID_BYTES = 2048  # PostgreSQL's index holds no more than 2,704 bytes a row
_LONGEST_VERSION = 512

_T = TypeVar("_T")


@dataclass(frozen=True)
class Item:
    """One listed thing and the document it became.

    `version` is the connector's word for "unchanged", `content_hash` the SHA-256 of the bytes. `seen_sync` is the last sync
    that listed it, `missed_syncs` the number of complete listings since then. `error` says what went wrong when `state` tells
    of a failure. `updated_at` (seconds since the epoch) is set by `save_items`.
    """

    item_id: str
    version: str | None
    content_hash: str | None
    document_key: str
    pipeline_version: int
    seen_sync: str | None
    missed_syncs: int
    state: str
    error: Mapping[str, JsonValue] | None = None
    updated_at: float = 0.0


def get_items(db: Database, source_id: str, item_ids: Iterable[str]) -> dict[str, Item]:
    """The known ones among `item_ids`, by id."""
    found: dict[str, Item] = {}
    with db.read() as connection:
        for batch in _batches(item_ids):
            statement = sa.select(items).where(items.c.source_id == source_id, items.c.item_id.in_(batch))
            found.update((row["item_id"], _to_item(row)) for row in connection.execute(statement).mappings())
    return found


def save_items(db: Database, source_id: str, changed: Iterable[Item]) -> None:
    """Adds or replaces the items, all or none. A version over 512 characters is not kept: the item is fetched again.

    Raises `InvalidRequest` for an id or document key over 2,048 bytes, `NotFound` when the source is gone.
    """
    changed = list(changed)
    if not changed:
        return
    insert = (postgresql.insert if db.dialect == "postgresql" else sqlite.insert)(items)
    kept = [column.name for column in items.c if not column.primary_key]
    statement = insert.on_conflict_do_update(
        index_elements=[items.c.source_id, items.c.item_id], set_={name: insert.excluded[name] for name in kept}
    )
    try:
        with db.write() as connection:
            now = db.now(connection)
            connection.execute(statement, [_to_row(source_id, item, now) for item in changed])
    except IntegrityError as error:
        raise NotFound(f"There is no source {source_id}.") from error


def missing_items(db: Database, source_id: str, sync_id: str) -> list[Item]:
    """What this sync did not list; it means "gone" only after a complete listing."""
    unseen = sa.or_(items.c.seen_sync.is_(None), items.c.seen_sync != sync_id)
    statement = sa.select(items).where(items.c.source_id == source_id, unseen).order_by(items.c.item_id)
    with db.read() as connection:
        return [_to_item(row) for row in connection.execute(statement).mappings()]


def forget_items(db: Database, source_id: str, item_ids: Iterable[str]) -> int:
    """Removes the items from memory and says how many there were; their documents are the caller's affair."""
    forgotten = 0
    with db.write() as connection:
        for batch in _batches(item_ids):
            delete = items.delete().where(items.c.source_id == source_id, items.c.item_id.in_(batch))
            forgotten += connection.execute(delete).rowcount
    return forgotten


def _batches(values: Iterable[_T]) -> Iterator[Sequence[_T]]:
    rest = iter(values)
    while batch := list(islice(rest, _BATCH)):
        yield batch


def _to_row(source_id: str, item: Item, now: float) -> dict[str, Any]:
    for name in (item.item_id, item.document_key):
        if len(name.encode(errors="replace")) > _LONGEST_ID_BYTES:
            raise InvalidRequest(f"The id or document key of an item is over {_LONGEST_ID_BYTES} bytes: {name[:80]}…")
    row: dict[str, Any] = {name: getattr(item, name) for name in _FIELDS}
    if item.version is not None and len(item.version) > _LONGEST_VERSION:
        row["version"] = None
    return {**row, "source_id": source_id, "updated_at": now}


_FIELDS = tuple(field.name for field in fields(Item))


def _to_item(row: sa.RowMapping) -> Item:
    values: dict[str, Any] = {name: row[name] for name in _FIELDS}
    return Item(**values)
