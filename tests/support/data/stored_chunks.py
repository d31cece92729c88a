"""Documents of one chunk each, written straight into a text store: no parser, no embedder, no vector index."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hopnode.worker.corpus.records import ChunkSpan
from hopnode.worker.corpus.sqlite.reading import CollectionRow, collection_row
from hopnode.worker.corpus.sqlite.text_store import Snapshot, TextStore
from hopnode.worker.corpus.sqlite.writing import (
    PreparedDocument,
    delete_documents,
    ensure_collection,
    put_document,
    put_vectors,
)


def put(
    store: TextStore,
    texts: Iterable[tuple[str, str]],
    title: str = "",
    collection: str = "c1",
    metadata: str = "{}",
) -> None:
    """Stores texts under their keys in one transaction; what has the key already is replaced."""
    with store.write() as connection:
        number = ensure_collection(connection, collection).number
        for key, text in texts:
            span = ChunkSpan(text, 0, len(text), 1)
            source = hashlib.sha256(f"{title}\n{metadata}\n{text}".encode()).digest()
            sha = sha_of(text, title)
            document = PreparedDocument(key, title, None, "text/plain", metadata, text, "", source, (), [span], [sha])
            put_document(connection, number, document)


def sha_of(text: str, title: str = "") -> bytes:
    """What the vector of a chunk is kept under."""
    return hashlib.sha256(f"{title}\n{text}".encode()).digest()


def put_with_vectors(
    store: TextStore, vectors: Mapping[str, NDArray[np.float32]], collection: str = "c1", metadata: str = "{}"
) -> None:
    """Stores each text under itself as the key, with its vector, in a collection whose embedder is `words`."""
    with store.write() as connection:
        dimension = len(next(iter(vectors.values())))
        ensure_collection(connection, collection, "words", dimension)
        put_vectors(connection, "words", {sha_of(text): vector for text, vector in vectors.items()})
    put(store, [(text, text) for text in vectors], collection=collection, metadata=metadata)


def delete(store: TextStore, keys: Sequence[str], collection: str = "c1") -> None:
    """Deletes documents by key."""
    with store.write() as connection:
        delete_documents(connection, row_of(connection, collection).number, keys)


def row_of(snapshot: Snapshot, collection: str = "c1") -> CollectionRow:
    """The collection's row in a snapshot."""
    found = collection_row(snapshot, collection)
    assert found is not None
    return found
