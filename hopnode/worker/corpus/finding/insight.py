"""What a policy without a language model may know of the indexed text: counts, names, closeness. Read-only.

Answers for one question over the collections of one search; every answer is joined with what is stored now.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pydantic import JsonValue

from hopnode.worker.corpus.finding.fusion import WORDS_LEAD, dense_weight_of, knows_language
from hopnode.worker.corpus.finding.legs import Scope
from hopnode.worker.corpus.finding.search import Search, SearchMemory
from hopnode.worker.corpus.records import Chunk, SearchHits
from hopnode.worker.corpus.sqlite.lexical import chunks_holding
from hopnode.worker.corpus.sqlite.name_table import NamedRow, known_phrases, rows_named
from hopnode.worker.corpus.sqlite.reading import (
    CollectionRow,
    chunks_around,
    chunks_by_row,
    collection_row,
    vectors_of_rows,
)
from hopnode.worker.corpus.sqlite.text_store import Snapshot, TextStore
from hopnode.worker.store.collections import Collection


@dataclass
class CorpusInsight:
    """The collections of one search under its filter, as a policy sees them."""

    store: TextStore
    memory: SearchMemory
    collections: Sequence[Collection]
    filter: Mapping[str, JsonValue] | None
    search: Search
    _seen: list[CollectionRow] | None = field(default=None, init=False, repr=False)

    @contextmanager
    def snapshot(self, question: str) -> Generator[None]:
        """A block in which all answers come from one state of the index. The question is embedded before."""
        if self._seen is not None:
            yield
            return
        self.search.embed(self.collections, question)
        with self.store.snapshot():
            try:
                with self.store.read() as snapshot:
                    self._seen = self._rows(snapshot)
                yield
            finally:
                self._seen = None

    def size(self) -> int:
        """Number of chunks."""
        with self.store.read() as snapshot:
            return sum(row.chunks for row in self._rows(snapshot))

    def candidates(self, question: str, per_leg: int) -> SearchHits:
        """The best chunks of either leg with their ranks, at most `per_leg` of each."""
        return self.search.run(
            self.collections,
            question,
            k=2 * per_leg * len(self.collections),
            dense=per_leg,
            lexical=per_leg,
            exclude=frozenset(),
            filter=self.filter,
        )

    def similarities(self, question: str, rows: Sequence[int]) -> dict[int, float]:
        """Cosine of the question with each row's vector; rows without a vector are left out, and all rows where the
        embedder does not know the question's language."""
        similar: dict[int, float] = {}
        with self.store.read() as snapshot:
            embedders = {row.embedder for row in self._rows(snapshot) if row.embedder}
        for embedder in embedders:
            if not knows_language(embedder, question):
                continue
            vector = self.search.query_vector(embedder, question)
            if vector is None:
                continue
            with self.store.read() as snapshot:
                known, matrix = vectors_of_rows(snapshot, embedder, rows)
            if known:
                similar.update(zip(known, (matrix @ vector).tolist(), strict=True))
        return similar

    def words_lead(self, question: str) -> bool:
        """Whether the dense leg weighs so little in all these collections that words decide."""
        with self.store.read() as snapshot:
            rows = {row.id: row for row in self._rows(snapshot)}
        weights = [
            dense_weight_of(collection.dense_weight, rows[collection.id].embedder or "", question)
            for collection in self.collections
            if collection.id in rows
        ]
        return max(weights, default=WORDS_LEAD) < WORDS_LEAD

    def frequencies(self, terms: Iterable[str]) -> dict[str, int]:
        """In how many chunks each term stands; unknown terms are left out."""
        counts: dict[str, int] = {}
        wanted = list(terms)
        with self.store.read() as snapshot:
            for row in self._rows(snapshot):
                for term, count in self.memory.lexical.frequencies(snapshot, row, wanted).items():
                    counts[term] = counts.get(term, 0) + count
        return counts

    def phrases(self, leads: Iterable[str]) -> list[str]:
        """The phrases of stored names that begin with one of the leads."""
        wanted = list(leads)
        with self.store.read() as snapshot:
            rows = self._rows(snapshot)
            return [one for row in rows for one in known_phrases(snapshot, row.number, wanted)]

    def named(self, phrases: Iterable[str]) -> list[NamedRow]:
        """Whom these phrases name, of these collections and under this filter."""
        wanted = list(phrases)
        with self.store.read() as snapshot:
            found = [named for row in self._rows(snapshot) for named in rows_named(snapshot, row.number, wanted)]
            return self._allowed(snapshot, found)

    def holding(self, phrases: Sequence[Sequence[str]], limit: int) -> list[list[int]]:
        """For each phrase the rows in which its terms stand one behind the other; none when there are more than
        `limit`."""
        found: list[list[int]] = [[] for _ in phrases]
        with self.store.read() as snapshot:
            for row in self._rows(snapshot):
                for held, more in zip(found, chunks_holding(snapshot, row.number, phrases, limit), strict=True):
                    held += more
        return [held if len(held) <= limit else [] for held in found]

    def chunks(self, rows: Sequence[int]) -> dict[int, Chunk]:
        """Whole chunks by row, of these collections and under this filter; others are left out."""
        with self.store.read() as snapshot:
            allowed = {collection.id for collection in self.collections}
            scope = self._scope(snapshot)
            return {
                row: chunk
                for row, chunk in chunks_by_row(snapshot, rows).items()
                if chunk.collection_id in allowed and (scope is None or row in scope)
            }

    def around(self, chunk: Chunk, count: int) -> list[Chunk]:
        """The `count` chunks before and behind one of these chunks in its document, in order."""
        with self.store.read() as snapshot:
            return chunks_around(snapshot, chunk, count)

    def _allowed(self, snapshot: Snapshot, found: list[NamedRow]) -> list[NamedRow]:
        scope = self._scope(snapshot)
        return found if scope is None else [named for named in found if named.row in scope]

    def _scope(self, snapshot: Snapshot) -> Scope:
        if not self.filter:
            return None
        scopes = (self.memory.scopes.get(snapshot, row, self.filter) for row in self._rows(snapshot))
        return frozenset(row for scope in scopes for row in scope or ())

    def _rows(self, snapshot: Snapshot) -> list[CollectionRow]:
        if self._seen is not None:
            return self._seen
        rows = (collection_row(snapshot, collection.id) for collection in self.collections)
        return [row for row in rows if row is not None]
