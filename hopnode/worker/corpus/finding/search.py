"""One search over one or more collections: embeds the query once per embedder, runs both legs, fuses them, fetches the hits."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from hopnode.worker.corpus.finding.engines import LexicalEngines
from hopnode.worker.corpus.finding.fusion import Leg, dense_weight_of, fuse
from hopnode.worker.corpus.finding.legs import Retrieval, Scopes
from hopnode.worker.corpus.records import Hit, SearchHits
from hopnode.worker.corpus.sqlite import outbox
from hopnode.worker.corpus.sqlite.reading import chunks_by_row, collection_row, rows_of_chunk_ids
from hopnode.worker.corpus.sqlite.text_store import Snapshot, TextStore
from hopnode.worker.corpus.vectors.chroma import Vectors
from hopnode.worker.errors import ModelUnavailable, VectorsUnavailable
from hopnode.worker.inference.embedding.embedder import Embedder, Embedders
from hopnode.worker.logs import get_logger
from hopnode.worker.store.collections import Collection

_log = get_logger(__name__)

VECTORS_UNAVAILABLE = "vectors-unavailable"
EMBEDDER_UNAVAILABLE = "embedder-unavailable"

KEPT_QUERIES = 64
"""Enough for the searches that run at the same time."""


class QueryVectors:
    """The vectors of the last queries by embedder and text: one search asks for that of its question several times.

    Keeps nothing that failed; safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], NDArray[np.float32]] = OrderedDict()

    def get(self, embedder: Embedder, query: str) -> NDArray[np.float32]:
        """The unit vector of a query; raises what the embedder raises."""
        key = (embedder.id, query)
        with self._lock:
            if (known := self._known.get(key)) is not None:
                self._known.move_to_end(key)
                return known
        vector = embedder.embed_query(query)
        with self._lock:
            self._known[key] = vector
            while len(self._known) > KEPT_QUERIES:
                self._known.popitem(last=False)
        return vector


class SearchMemory:
    """What searches of a workspace remember between them; all of it can be thrown away."""

    def __init__(self) -> None:
        self.lexical = LexicalEngines()
        self.scopes = Scopes()
        self.query_vectors = QueryVectors()


@dataclass
class _Found:
    """What the collections gave so far."""

    legs: list[Leg[int]] = field(default_factory=list[Leg[int]])
    dense_rank: dict[int, int] = field(default_factory=dict[int, int])
    lexical_rank: dict[int, int] = field(default_factory=dict[int, int])
    degraded: set[str] = field(default_factory=set[str])
    missing: list[str] = field(default_factory=list[str])
    index_version: int = 0
    vector_lag: int = 0


class Search:
    """A search of one workspace; made for one query and thrown away."""

    def __init__(
        self,
        store: TextStore,
        vectors: Vectors,
        embedders: Embedders,
        memory: SearchMemory,
        workspace_id: str,
        unanswered: Callable[[str], None],
    ) -> None:
        """`unanswered` is told the id of each collection whose vector index did not answer, so that it is looked after."""
        self._unanswered = unanswered
        self._store = store
        self._vectors = vectors
        self._embedders = embedders
        self._memory = memory
        self._workspace_id = workspace_id
        self._query_vectors: dict[str, NDArray[np.float32] | None] = {}

    def run(
        self,
        collections: Sequence[Collection],
        query: str,
        *,
        k: int,
        dense: int,
        lexical: int,
        exclude: Set[str],
        filter: Mapping[str, JsonValue] | None,
        missing_rank: int | None = None,
    ) -> SearchHits:
        """The best `k` hits of both legs."""
        found = _Found()
        self.embed(collections, query if dense > 0 else "")
        with self._store.read() as snapshot:
            excluded = set(rows_of_chunk_ids(snapshot, exclude).values())
            for collection in collections:
                self._search_one(snapshot, collection, query, (dense, lexical), excluded, filter, found)
            fused = fuse(found.legs, missing_rank=missing_rank)[:k]
            chunks = chunks_by_row(snapshot, [row for row, _ in fused])
        hits = tuple(
            Hit(chunks[row], score, found.dense_rank.get(row), found.lexical_rank.get(row)) for row, score in fused
        )
        degraded = tuple(sorted(found.degraded))
        for collection_id in found.missing:
            self._unanswered(collection_id)
        return SearchHits(hits, degraded, found.index_version, found.vector_lag)

    def embed(self, collections: Sequence[Collection], query: str) -> None:
        """Before a snapshot is taken: a remote embedder may be slow, and a snapshot should be short."""
        if not query.strip():
            return
        with self._store.read() as snapshot:
            rows = [collection_row(snapshot, collection.id) for collection in collections]
        for embedder_id in {row.embedder for row in rows if row and row.embedder and row.chunks}:
            self._query_vectors[embedder_id] = self.query_vector(embedder_id, query)

    def query_vector(self, embedder_id: str, query: str) -> NDArray[np.float32] | None:
        """The vector of a query. Returns None when the embedder cannot be reached."""
        try:
            return self._memory.query_vectors.get(self._embedders.get(embedder_id), query)
        except ModelUnavailable as error:
            _log.warning("query_not_embedded", embedder=embedder_id, error=str(error))
            return None

    def _search_one(
        self,
        snapshot: Snapshot,
        collection: Collection,
        query: str,
        limits: tuple[int, int],
        excluded: Set[int],
        filter: Mapping[str, JsonValue] | None,
        found: _Found,
    ) -> None:
        row = collection_row(snapshot, collection.id)
        if row is None:
            return
        scope = self._memory.scopes.get(snapshot, row, filter)
        lag = outbox.vector_lag(snapshot, row.number)
        retrieval = Retrieval(snapshot, row, self._workspace_id, scope, excluded, lag)
        weight = dense_weight_of(collection.dense_weight, row.embedder or "", query)
        dense_limit, lexical_limit = limits[0] if weight > 0 else 0, limits[1] if weight < 1 else 0
        near = self._dense(retrieval, dense_limit, found) if dense_limit > 0 else []
        shared: list[int] = []
        if lexical_limit > 0:
            shared = retrieval.lexical(query, lexical_limit, self._memory.lexical.index(snapshot, row))
        found.legs += [Leg(near, weight), Leg(shared, 1 - weight)]
        found.dense_rank |= {one: rank for rank, one in enumerate(near, start=1)}
        found.lexical_rank |= {one: rank for rank, one in enumerate(shared, start=1)}
        found.index_version += row.index_version
        found.vector_lag += lag

    def _dense(self, retrieval: Retrieval, limit: int, found: _Found) -> list[int]:
        embedder = retrieval.row.embedder or ""
        if embedder not in self._query_vectors:
            return []
        vector = self._query_vectors[embedder]
        if vector is None:
            found.degraded.add(EMBEDDER_UNAVAILABLE)
            return []
        try:
            return retrieval.dense(vector, limit, self._vectors)
        except VectorsUnavailable as error:
            _log.warning("vectors_unavailable", collection=retrieval.row.id, error=str(error))
            found.degraded.add(VECTORS_UNAVAILABLE)
            found.missing.append(retrieval.row.id)
            return []
