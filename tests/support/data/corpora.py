"""Corpora for tests: collections that need no database, and a small embedder that counts words."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hopnode.worker.corpus.analyzer import analyze
from hopnode.worker.corpus.corpus import Corpora
from hopnode.worker.corpus.parsing.parser import ParserPool
from hopnode.worker.corpus.vectors.chroma import Vectors
from hopnode.worker.inference.embedding.embedder import Embedders
from hopnode.worker.store.collections import Collection


class WordEmbedder:
    """Puts each term of a text on one of 64 axes: texts with equal words are near. `on_embed` sees every batch."""

    id = "words"
    dimension = 64

    def __init__(self, on_embed: Callable[[Sequence[str]], None] = lambda texts: None) -> None:
        self.on_embed = on_embed
        self.texts = 0

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.on_embed(texts)
        self.texts += len(texts)
        rows = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in zip(rows, texts, strict=True):
            for term in analyze(text):
                row[hashlib.sha256(term.encode()).digest()[0] % self.dimension] += 1
        return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return self.embed([text])[0]


class CollectionBook:
    """Stands where the node's database is: makes collections and remembers the embedder each was bound to."""

    def __init__(self) -> None:
        self._known: dict[str, Collection] = {}

    def make(
        self,
        collection_id: str = "c1",
        *,
        workspace: str = "w1",
        embedder: str | None = "words",
        dense_weight: float | None = None,
    ) -> Collection:
        made = Collection(collection_id, workspace, collection_id, "", embedder, None, dense_weight, {}, 0.0)
        return self._known.setdefault(collection_id, made)

    def now(self, collection_id: str) -> Collection:
        return self._known[collection_id]

    def fix_embedder(self, collection_id: str, embedder: str, dimension: int) -> Collection:
        known = self._known.setdefault(collection_id, self.make(collection_id))
        self._known[collection_id] = replace(known, embedder=embedder, dimension=dimension)
        return self._known[collection_id]


def open_corpora(
    root: Path,
    vectors: Vectors,
    book: CollectionBook,
    embedders: Embedders | None = None,
    *,
    max_chunk_tokens: int = 512,
) -> Corpora:
    """Corpora over real files and the given vector index."""
    return Corpora(
        root,
        vectors,
        embedders or Embedders(extra=[WordEmbedder()]),
        ParserPool(timeout_seconds=60, memory_bytes=2_000_000_000, max_characters=10_000_000),
        book.fix_embedder,
        max_chunk_tokens=max_chunk_tokens,
    )
