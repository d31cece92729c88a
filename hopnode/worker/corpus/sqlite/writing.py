"""The statements that change a workspace's file: documents, chunks, lexical index and outbox move in one transaction.

Everything here runs inside the caller's write transaction; vectors and parsing are someone else's.
"""

import json
import secrets
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hopnode.worker.corpus.analyzer import ANALYZER_VERSION
from hopnode.worker.corpus.records import ChunkSpan
from hopnode.worker.corpus.sqlite.lexical import (
    add_to_index,
    chunk_texts,
    create_index,
    drop_index,
    indexed_text,
    remove_from_grep,
    remove_from_index,
)
from hopnode.worker.corpus.sqlite.name_table import put_names
from hopnode.worker.corpus.sqlite.posting_segments import drop_segments
from hopnode.worker.corpus.sqlite.reading import CollectionRow, collection_row, rows_of_collection
from hopnode.worker.corpus.sqlite.text_store import Connection, Row

_ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_ID_LENGTH = 10


@dataclass(frozen=True)
class PreparedDocument:
    """A parsed and chunked document, ready to be written; `embed_shas` go with `spans`."""

    key: str
    title: str
    url: str | None
    media_type: str
    metadata: str
    text: str
    sha256: str
    source_sha: bytes
    warnings: tuple[str, ...]
    spans: Sequence[ChunkSpan]
    embed_shas: Sequence[bytes]


@dataclass(frozen=True)
class Written:
    """What writing a document did; `changed` is False when the stored one was the same."""

    document_id: str
    changed: bool
    added: int = 0
    kept: int = 0
    removed: int = 0


@dataclass(frozen=True)
class _OldChunk:
    row: int
    n: int
    heading: str
    text: str
    embed_sha: bytes


def ensure_collection(
    connection: Connection, collection_id: str, embedder: str | None = None, dimension: int | None = None
) -> CollectionRow:
    """The collection's row; made on first use, bound to the first embedder that is named."""
    if collection_row(connection, collection_id) is None:
        insert = "INSERT INTO collection (id, analyzer) VALUES (?, ?) RETURNING number"
        (number,) = connection.execute(insert, (collection_id, ANALYZER_VERSION)).fetchone()
        create_index(connection, number)
    if embedder:
        update = "UPDATE collection SET embedder = ?, dimension = ? WHERE id = ? AND embedder IS NULL"
        connection.execute(update, (embedder, dimension, collection_id))
    found = collection_row(connection, collection_id)
    assert found is not None
    return found


def put_vectors(connection: Connection, embedder: str, vectors: Mapping[bytes, NDArray[np.float32]]) -> None:
    """Keeps vectors by embedder and sha256 of the embedded text."""
    statement = "INSERT INTO vector (embedder, sha, vector, created_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING"
    now = time.time()
    connection.executemany(statement, [(embedder, sha, row.tobytes(), now) for sha, row in vectors.items()])


def put_document(connection: Connection, number: int, document: PreparedDocument) -> Written:
    """Stores a document under its key; chunks with the same heading and text keep their row, number and vector."""
    old = connection.execute(
        "SELECT id, title, source_sha, next_n FROM document WHERE collection = ? AND key = ?", (number, document.key)
    ).fetchone()
    if old is None:
        document_id, next_n, old_title, old_chunks = _insert_document(connection, number, document), 1, "", []
    elif bytes(old["source_sha"]) == document.source_sha:
        return Written(old["id"], changed=False)
    else:
        document_id, next_n, old_title = old["id"], old["next_n"], old["title"]
        old_chunks = _old_chunks(connection, document_id)
    writer = _ChunkWriter(connection, number, document_id, old_title, document, next_n)
    kept, removed = writer.write(old_chunks)
    _update_document(connection, document_id, document, writer.next_n)
    put_names(connection, number, document_id, document.title, document.text)
    added = len(document.spans) - kept
    _touch_collection(connection, number, added - removed)
    return Written(document_id, changed=True, added=added, kept=kept, removed=removed)


def delete_documents(connection: Connection, number: int, keys: Iterable[str]) -> int:
    """Removes documents with their chunks from text, lexical index and, through the outbox, the vector index."""
    deleted = chunks = 0
    for key in keys:
        document = connection.execute(
            "SELECT id, title FROM document WHERE collection = ? AND key = ?", (number, key)
        ).fetchone()
        if document is None:
            continue
        old = _old_chunks(connection, document["id"])
        for chunk in old:
            _remove_chunk(connection, number, document["title"], chunk)
        connection.execute("DELETE FROM document WHERE id = ?", (document["id"],))
        deleted, chunks = deleted + 1, chunks + len(old)
    if deleted:
        _touch_collection(connection, number, -chunks)
    return deleted


def renew_indexes(connection: Connection) -> list[str]:
    """Indexes again what an older analyzer indexed; the ids of those collections.

    Before anything else is written: taking a chunk out of an index needs the terms it was put in with.
    """
    statement = "SELECT id FROM collection WHERE analyzer <> ?"
    outdated = [row[0] for row in connection.execute(statement, (ANALYZER_VERSION,))]
    for collection_id in outdated:
        row = collection_row(connection, collection_id)
        assert row is not None
        drop_segments(connection, row.number)
        drop_index(connection, row.number)
        create_index(connection, row.number)
        for chunk_row, text in chunk_texts(connection, rows_of_collection(connection, row.number)).items():
            add_to_index(connection, row.number, chunk_row, text)
        documents = "SELECT d.id, d.title, t.text FROM document d JOIN document_text t ON t.document_id = d.id"
        for found in connection.execute(f"{documents} WHERE d.collection = ?", (row.number,)).fetchall():
            put_names(connection, row.number, found["id"], found["title"], found["text"])
        connection.execute(
            "UPDATE collection SET analyzer = ?, grep_row = 0, index_version = index_version + 1 WHERE number = ?",
            (ANALYZER_VERSION, row.number),
        )
    return outdated


def drop_collection(connection: Connection, collection: CollectionRow, vector_names: Iterable[str]) -> None:
    """Removes a collection whole; the names of its vector indexes are kept until those are gone too."""
    connection.executemany("INSERT OR IGNORE INTO orphan (name) VALUES (?)", [(name,) for name in vector_names])
    drop_segments(connection, collection.number)
    drop_index(connection, collection.number)
    connection.execute("DELETE FROM outbox WHERE collection = ?", (collection.number,))
    connection.execute("DELETE FROM chunk WHERE collection = ?", (collection.number,))
    connection.execute("DELETE FROM document WHERE collection = ?", (collection.number,))
    connection.execute("DELETE FROM collection WHERE number = ?", (collection.number,))
    forget_unused_vectors(connection, older_than_seconds=0)


def forget_unused_vectors(connection: Connection, *, older_than_seconds: float) -> int:
    """Deletes cached vectors that belong to no chunk any more."""
    return connection.execute(
        "DELETE FROM vector WHERE created_at <= ? AND sha NOT IN (SELECT embed_sha FROM chunk)",
        (time.time() - older_than_seconds,),
    ).rowcount


class _ChunkWriter:
    """Brings the chunks of one document from what is stored to what was cut now."""

    def __init__(
        self,
        connection: Connection,
        number: int,
        document_id: str,
        old_title: str,
        document: PreparedDocument,
        next_n: int,
    ) -> None:
        self._connection = connection
        self._number = number
        self._document_id = document_id
        self._old_title = old_title
        self._document = document
        self.next_n = next_n

    def write(self, old_chunks: Sequence[_OldChunk]) -> tuple[int, int]:
        """How many chunks were kept and how many removed."""
        reusable: dict[tuple[str, str], deque[_OldChunk]] = defaultdict(deque)
        for old in old_chunks:
            reusable[old.heading, old.text].append(old)
        kept = 0
        pairs = zip(self._document.spans, self._document.embed_shas, strict=True)
        for position, (span, sha) in enumerate(pairs):
            same = reusable.get((span.heading, span.text))
            if same:
                self._keep(same.popleft(), position, span, sha)
                kept += 1
            else:
                self._add(position, span, sha)
        gone = [old for same in reusable.values() for old in same]
        for old in gone:
            _remove_chunk(self._connection, self._number, self._old_title, old)
        return kept, len(gone)

    def _keep(self, old: _OldChunk, position: int, span: ChunkSpan, sha: bytes) -> None:
        if old.embed_sha != sha:  # the title above it changed, and what is indexed under a row never does
            _remove_chunk(self._connection, self._number, self._old_title, old)
            self._insert(old.n, position, span, sha)
            return
        self._connection.execute(
            'UPDATE chunk SET position = ?, start = ?, "end" = ?, page = ?, tokens = ? WHERE row = ?',
            (position, span.start, span.end, span.page, span.tokens, old.row),
        )

    def _add(self, position: int, span: ChunkSpan, sha: bytes) -> None:
        self._insert(self.next_n, position, span, sha)
        self.next_n += 1

    def _insert(self, n: int, position: int, span: ChunkSpan, sha: bytes) -> None:
        (row,) = self._connection.execute(
            'INSERT INTO chunk (document_id, collection, n, position, start, "end", tokens, page, embed_sha, heading, '
            "text) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING row",
            (
                *(self._document_id, self._number, n, position, span.start, span.end, span.tokens),
                *(span.page, sha, span.heading, span.text),
            ),
        ).fetchone()
        text = indexed_text(self._document.title, span.heading, span.text)
        add_to_index(self._connection, self._number, row, text)
        _append_outbox(self._connection, self._number, "upsert", row)


def _old_chunks(connection: Connection, document_id: str) -> list[_OldChunk]:
    statement = "SELECT row, n, heading, text, embed_sha FROM chunk WHERE document_id = ? ORDER BY position"
    return [_to_old_chunk(row) for row in connection.execute(statement, (document_id,))]


def _to_old_chunk(row: Row) -> _OldChunk:
    return _OldChunk(row["row"], row["n"], row["heading"], row["text"], bytes(row["embed_sha"]))


def _remove_chunk(connection: Connection, number: int, title: str, chunk: _OldChunk) -> None:
    remove_from_index(connection, number, chunk.row, indexed_text(title, chunk.heading, chunk.text))
    remove_from_grep(connection, number, chunk.row, chunk.text)
    connection.execute("DELETE FROM chunk WHERE row = ?", (chunk.row,))
    _append_outbox(connection, number, "delete", chunk.row)


def _append_outbox(connection: Connection, number: int, op: str, row: int) -> None:
    connection.execute("INSERT INTO outbox (collection, op, row) VALUES (?, ?, ?)", (number, op, row))


def _touch_collection(connection: Connection, number: int, chunks: int) -> None:
    connection.execute(
        "UPDATE collection SET index_version = index_version + 1, chunks = chunks + ? WHERE number = ?",
        (chunks, number),
    )


def _insert_document(connection: Connection, number: int, document: PreparedDocument) -> str:
    now = time.time()
    while True:
        document_id = "".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH))
        inserted = connection.execute(
            "INSERT INTO document (id, collection, key, title, media_type, metadata, characters, chunks, sha256, "
            "source_sha, version, next_n, warnings, created_at, updated_at) "
            "VALUES (?, ?, ?, '', '', '{}', 0, 0, '', x'', 0, 1, '[]', ?, ?) ON CONFLICT (id) DO NOTHING",
            (document_id, number, document.key, now, now),
        )
        if inserted.rowcount:
            return document_id


def _update_document(connection: Connection, document_id: str, document: PreparedDocument, next_n: int) -> None:
    connection.execute(
        "UPDATE document SET title = ?, url = ?, media_type = ?, metadata = ?, characters = ?, chunks = ?, "
        "sha256 = ?, source_sha = ?, version = version + 1, next_n = ?, warnings = ?, updated_at = ? WHERE id = ?",
        (
            *(document.title, document.url, document.media_type, document.metadata, len(document.text)),
            *(len(document.spans), document.sha256, document.source_sha, next_n, json.dumps(document.warnings)),
            *(time.time(), document_id),
        ),
    )
    connection.execute(
        "INSERT INTO document_text (document_id, text) VALUES (?, ?) ON CONFLICT (document_id) DO UPDATE SET text = "
        "excluded.text",
        (document_id, document.text),
    )
