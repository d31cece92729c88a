"""The two legs of a search in one collection: nearest vectors and shared words, exact under filters and exclusions.

Knows rows and ranks; what a hit looks like and how legs are fused is decided above and beside it.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from hopnode.worker.corpus.analyzer import analyze
from hopnode.worker.corpus.finding.filters import compile_filter
from hopnode.worker.corpus.sqlite import outbox
from hopnode.worker.corpus.sqlite.lexical import LexicalIndex
from hopnode.worker.corpus.sqlite.reading import (
    CollectionRow,
    live_rows,
    metadata_of_documents,
    rows_of_collection,
    rows_of_documents,
    vectors_of_rows,
)
from hopnode.worker.corpus.sqlite.text_store import Snapshot
from hopnode.worker.corpus.vectors.chroma import Vectors

EXACT_SCOPE = 1_000
"""Chunks up to which a filtered scope is scanned vector by vector: exact, and it costs about what one query does."""
_DEEPEST_QUERY = 4_096
_SLACK = 16
"""What is asked for beyond what is wanted where Chroma may name rows that are gone or not allowed."""
_KEPT_SCOPES = 64

Scope = Set[int] | None
"""Rows that a filter allows; None allows all."""


class Scopes:
    """Rows allowed by a filter, remembered per state of a collection: an agent asks many times with one filter."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[int, int, str], frozenset[int]] = OrderedDict()

    def get(self, snapshot: Snapshot, row: CollectionRow, filter: Mapping[str, JsonValue] | None) -> Scope:
        """The rows of the collection whose document passes the filter. Returns None when there is no filter."""
        if not filter:
            return None
        key = (row.number, row.index_version, json.dumps(dict(filter), sort_keys=True))
        with self._lock:
            if known := self._known.get(key):
                self._known.move_to_end(key)
                return known
        passes = compile_filter(filter)
        documents = (one for one, metadata in metadata_of_documents(snapshot, row.number) if passes(metadata))
        rows = frozenset(rows_of_documents(snapshot, documents))
        with self._lock:
            self._known[key] = rows
            while len(self._known) > _KEPT_SCOPES:
                self._known.popitem(last=False)
        return rows


@dataclass(frozen=True)
class Retrieval:
    """One collection in one snapshot, under one filter and one set of rows that are not wanted.

    `vector_lag` is the number of changes that Chroma does not know yet.
    """

    snapshot: Snapshot
    row: CollectionRow
    workspace_id: str
    scope: Scope
    excluded: Set[int]
    vector_lag: int = 0

    def lexical(self, query: str, limit: int, index: LexicalIndex) -> list[int]:
        """The best rows that share a term with the query, of an index of this snapshot."""
        return list(islice(self._wanted(index.ranked(analyze(query, query=True))), limit))

    def dense(self, vector: NDArray[np.float32], limit: int, vectors: Vectors) -> list[int]:
        """The rows whose vectors are nearest to the query's. Raises `VectorsUnavailable` when Chroma cannot tell.

        Chroma is asked for more than is wanted, and for more again, until enough of what it names exists and is
        allowed. A small scope, or one that Chroma does not get to the bottom of, is scanned exactly.
        """
        if limit <= 0 or not self.row.chunks:
            return []
        name = outbox.vector_name(self.workspace_id, self.row.id, self.row.generation)
        asked = self._first_depth(limit)
        if self.scope is not None and (len(self.scope) <= EXACT_SCOPE or asked > _DEEPEST_QUERY):
            return self._scan(vector, limit)
        while True:
            named = vectors.query(name, vector, asked)
            found = list(islice(self._wanted(live_rows(self.snapshot, self.row.number, named)), limit))
            if len(found) >= limit or len(named) < asked:
                return found
            if asked >= _DEEPEST_QUERY:
                return self._scan(vector, limit)
            asked = min(asked * 4, _DEEPEST_QUERY)

    def _first_depth(self, limit: int) -> int:
        slack = _SLACK if self.vector_lag or self.excluded or self.scope is not None else 0
        depth = limit + min(len(self.excluded), self.row.chunks) + slack
        share = 1.0 if self.scope is None else max(len(self.scope), 1) / self.row.chunks
        return int(depth / min(share, 1.0))

    def _scan(self, vector: NDArray[np.float32], limit: int) -> list[int]:
        scope = self.scope if self.scope is not None else rows_of_collection(self.snapshot, self.row.number)
        rows, matrix = vectors_of_rows(self.snapshot, self.row.embedder or "", sorted(self._wanted(scope)))
        if not rows:
            return []
        order = np.argsort(-(matrix @ vector), kind="stable")
        return [rows[index] for index in order[:limit]]

    def _wanted(self, rows: Iterable[int]) -> Iterable[int]:
        return (row for row in rows if row not in self.excluded and (self.scope is None or row in self.scope))
