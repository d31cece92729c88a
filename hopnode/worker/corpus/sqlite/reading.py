"""The statements that read a workspace's file: collections, documents and chunks as records; changes nothing."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hopnode.worker.corpus.records import Chunk, Document
from hopnode.worker.corpus.sqlite.text_store import Connection, Row


@dataclass(frozen=True)
class CollectionRow:
    """A collection as its workspace's file knows it.

    `number` names its tables, `generation` its vector index, in which some `dead` vectors are left over.
    """

    number: int
    id: str
    embedder: str | None
    dimension: int | None
    index_version: int
    chunks: int
    analyzer: int
    grep_row: int
    generation: int
    applied_seq: int
    dead: int
    posted_row: int


_COLLECTION = (
    "SELECT number, id, embedder, dimension, index_version, chunks, analyzer, grep_row, generation, applied_seq, dead, "
    "posted_row FROM collection"
)
_DOCUMENT = (
    "SELECT d.id, c.id AS collection_id, d.key, d.title, d.url, d.media_type, d.metadata, d.characters, d.chunks, "
    "d.sha256, d.version, d.warnings, d.created_at, d.updated_at "
    "FROM document d JOIN collection c ON c.number = d.collection "
)
_CHUNK_COLUMNS = (
    "k.document_id || '_' || k.n, k.row, k.document_id, c.id, k.position, k.text, k.start, k.\"end\", k.tokens, k.page, "
    "k.heading, d.key, d.title, d.url, d.metadata"
)
"""In the order of the fields of `Chunk`."""
_CHUNK = (
    f"SELECT {_CHUNK_COLUMNS} FROM chunk k JOIN document d ON d.id = k.document_id "  # noqa: S608 - constant text
    "JOIN collection c ON c.number = k.collection "
)


def collection_row(connection: Connection, collection_id: str) -> CollectionRow | None:
    """The collection, or None when nothing was ever written to it."""
    row = connection.execute(f"{_COLLECTION} WHERE id = ?", (collection_id,)).fetchone()
    return CollectionRow(*row) if row else None


def collection_rows(connection: Connection) -> list[CollectionRow]:
    """All collections of the workspace."""
    return [CollectionRow(*row) for row in connection.execute(f"{_COLLECTION} ORDER BY number")]


def to_document(row: Row) -> Document:
    """A row of a document query as a record."""
    values: dict[str, Any] = dict(row)
    values["metadata"] = json.loads(values["metadata"])
    values["warnings"] = tuple(json.loads(values["warnings"]))
    return Document(**values)


def document_by_key(connection: Connection, number: int, key: str) -> Document | None:
    """The document with the user's key."""
    row = connection.execute(f"{_DOCUMENT} WHERE d.collection = ? AND d.key = ?", (number, key)).fetchone()
    return to_document(row) if row else None


def list_documents(connection: Connection, number: int, *, after: str | None, limit: int) -> list[Document]:
    """Documents by key, from the first key behind `after`."""
    statement = f"{_DOCUMENT} WHERE d.collection = ? AND d.key > ? ORDER BY d.key LIMIT ?"
    return [to_document(row) for row in connection.execute(statement, (number, after or "", limit))]


def document_text(connection: Connection, document_id: str) -> str | None:
    """The stored text of a document."""
    row = connection.execute("SELECT text FROM document_text WHERE document_id = ?", (document_id,)).fetchone()
    return row[0] if row else None


def stored_source(connection: Connection, number: int, key: str) -> tuple[str, bytes] | None:
    """Id of the document with that key, and the fingerprint of what it was made from."""
    statement = "SELECT id, source_sha FROM document WHERE collection = ? AND key = ?"
    found = connection.execute(statement, (number, key)).fetchone()
    return (found[0], bytes(found[1])) if found else None


def metadata_of_documents(connection: Connection, number: int) -> Iterator[tuple[str, Any]]:
    """Id and metadata of each document of a collection."""
    for row in connection.execute("SELECT id, metadata FROM document WHERE collection = ?", (number,)):
        yield row[0], json.loads(row[1])


def to_chunk(row: Row) -> Chunk:
    """A row of a chunk query as a record."""
    *values, metadata = row
    return Chunk(*values, metadata=json.loads(metadata) if metadata != "{}" else {})


def chunks_by_row(connection: Connection, rows: Iterable[int]) -> dict[int, Chunk]:
    """Whole chunks by row; a row that is gone is left out."""
    statement = (
        f"SELECT {_CHUNK_COLUMNS} FROM json_each(?) j CROSS JOIN chunk k ON k.row = j.value "  # noqa: S608 - constant text
        "CROSS JOIN document d ON d.id = k.document_id CROSS JOIN collection c ON c.number = k.collection"
    )
    found = (to_chunk(row) for row in connection.execute(statement, (json.dumps(list(rows)),)).fetchall())
    return {chunk.row: chunk for chunk in found}


def chunks_of_document(connection: Connection, document_id: str) -> list[Chunk]:
    """All chunks of a document, in its order."""
    statement = f"{_CHUNK} WHERE k.document_id = ? ORDER BY k.position"
    return [to_chunk(row) for row in connection.execute(statement, (document_id,))]


def chunks_around(connection: Connection, chunk: Chunk, count: int) -> list[Chunk]:
    """The `count` chunks before and behind a chunk in its document, in order, without it."""
    statement = f"{_CHUNK} WHERE k.document_id = ? AND k.position BETWEEN ? AND ? ORDER BY k.position"
    found = connection.execute(statement, (chunk.document_id, chunk.position - count, chunk.position + count))
    return [near for near in (to_chunk(row) for row in found) if near.row != chunk.row]


def rows_of_chunk_ids(connection: Connection, chunk_ids: Iterable[str]) -> dict[str, int]:
    """The rows of chunk ids; an id that names no chunk is left out."""
    wanted = list(dict.fromkeys(chunk_ids))
    split = (chunk_id.rpartition("_") for chunk_id in wanted)
    parts = [(document_id, int(n)) for document_id, _, n in split if n.isascii() and n.isdigit() and len(n) < 16]
    statement = (
        "SELECT json_group_array(json_array(k.document_id || '_' || k.n, k.row)) FROM json_each(?) j "
        "CROSS JOIN chunk k ON k.document_id = json_extract(j.value, '$[0]') AND k.n = json_extract(j.value, '$[1]')"
    )
    (found,) = connection.execute(statement, (json.dumps(parts),)).fetchone() if parts else ("[]",)
    rows: dict[str, int] = dict(json.loads(found))
    return {chunk_id: rows[chunk_id] for chunk_id in wanted if chunk_id in rows}


def rows_of_documents(connection: Connection, document_ids: Iterable[str]) -> list[int]:
    """The rows of all chunks of these documents, ascending."""
    statement = "SELECT row FROM chunk WHERE document_id IN (SELECT value FROM json_each(?)) ORDER BY row"
    return [row[0] for row in connection.execute(statement, (json.dumps(list(document_ids)),))]


def rows_of_collection(connection: Connection, number: int) -> list[int]:
    """The rows of all chunks of a collection, ascending."""
    statement = "SELECT row FROM chunk WHERE collection = ? ORDER BY row"
    return [row[0] for row in connection.execute(statement, (number,))]


def texts_of_rows(connection: Connection, rows: Iterable[int]) -> list[tuple[int, bytes]]:
    """Row and text (UTF-8) of these chunks, in the given order; a row that is gone is left out."""
    statement = "SELECT k.row, CAST(k.text AS BLOB) FROM json_each(?) j CROSS JOIN chunk k ON k.row = j.value"
    return [(row[0], row[1]) for row in connection.execute(statement, (json.dumps(list(rows)),)).fetchall()]


def texts_behind(connection: Connection, number: int, after: int) -> Iterator[tuple[int, bytes]]:
    """Row and text (UTF-8) of the chunks of a collection behind row `after`, ascending and one at a time."""
    statement = "SELECT row, CAST(text AS BLOB) FROM chunk WHERE collection = ? AND row > ? ORDER BY row"
    for row in connection.execute(statement, (number, after)):
        yield row[0], row[1]


def live_rows(connection: Connection, number: int, rows: Sequence[int]) -> list[int]:
    """Those of `rows` that are chunks of the collection now, in the given order."""
    statement = (
        "SELECT json_group_array(k.row) FROM json_each(?) j CROSS JOIN chunk k INDEXED BY chunk_of_collection "
        "ON k.collection = ? AND k.row = j.value"  # the index is a tenth of the table, whose rows hold the text
    )
    (found,) = connection.execute(statement, (json.dumps(list(rows)), number)).fetchone()
    live = set(json.loads(found))
    return [row for row in rows if row in live]


def vectors_of_rows(
    connection: Connection, embedder: str, rows: Iterable[int]
) -> tuple[list[int], NDArray[np.float32]]:
    """Rows that have a cached vector, and those vectors as a matrix."""
    statement = (
        "SELECT k.row, v.vector FROM json_each(?) j CROSS JOIN chunk k ON k.row = j.value "
        "CROSS JOIN vector v ON v.embedder = ? AND v.sha = k.embed_sha"
    )
    found = connection.execute(statement, (json.dumps(list(rows)), embedder)).fetchall()
    matrix = np.frombuffer(b"".join(row[1] for row in found), np.float32)
    return [row[0] for row in found], matrix.reshape(len(found), -1) if found else matrix.reshape(0, 0)


def known_vectors(connection: Connection, embedder: str, shas: Iterable[bytes]) -> dict[bytes, NDArray[np.float32]]:
    """Cached vectors by the sha256 of the embedded text."""
    statement = "SELECT vector FROM vector WHERE embedder = ? AND sha = ?"
    found = ((sha, connection.execute(statement, (embedder, sha)).fetchone()) for sha in shas)
    return {sha: np.frombuffer(row[0], np.float32) for sha, row in found if row}


def totals(connection: Connection, number: int) -> tuple[int, int, int]:
    """Documents, chunks and tokens of a collection. Counted, not kept: exact at any time."""
    documents = connection.execute("SELECT count(*) FROM document WHERE collection = ?", (number,)).fetchone()[0]
    chunks, tokens = connection.execute(
        "SELECT count(*), coalesce(sum(tokens), 0) FROM chunk WHERE collection = ?", (number,)
    ).fetchone()
    return documents, chunks, tokens
