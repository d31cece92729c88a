"""Which documents more than one source of a collection has brought; what one source loses, another may still have."""

from collections.abc import Iterable

import sqlalchemy as sa

from hopnode.worker.store.database import Database
from hopnode.worker.store.tables import items, sources


def keys_of_other_sources(db: Database, source_id: str, document_keys: Iterable[str]) -> set[str]:
    """Those of the keys that items of other sources of the same collection stand for, unless they are gone there too."""
    own, other = sources.alias(), sources.alias()
    statement = (
        sa.select(items.c.document_key)
        .join(other, other.c.id == items.c.source_id)
        .join(own, own.c.collection_id == other.c.collection_id)
        .where(own.c.id == source_id, other.c.id != source_id)
        .where(items.c.document_key.in_(list(document_keys)), items.c.state != "gone")
    )
    with db.read() as connection:
        return set(connection.execute(statement).scalars())
