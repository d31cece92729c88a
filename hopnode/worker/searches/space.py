"""The one way from a question to the index: the collections of one search under its filter. Decides nothing.

The tools of the agent search, grep and read here, and whoever weighs evidence asks the `insight` of the same object.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pydantic import JsonValue

from hopnode.worker.corpus.corpus import Corpus
from hopnode.worker.corpus.finding.insight import CorpusInsight
from hopnode.worker.corpus.records import Chunk, SearchHits
from hopnode.worker.harness.outcome import Selection
from hopnode.worker.store.collections import Collection


@dataclass(frozen=True)
class Space:
    """What one search may look at, and nothing beside it."""

    corpus: Corpus
    collections: Sequence[Collection]
    filter: Mapping[str, JsonValue] | None = None

    @cached_property
    def insight(self) -> CorpusInsight:
        """Counts, names and links of these collections, which no tool shows."""
        return self.corpus.insight(self.collections, self.filter)

    def search(
        self, query: str, *, k: int, exclude: frozenset[str] = frozenset(), missing_rank: int | None = None
    ) -> SearchHits:
        """At most `k` chunks, best first; `missing_rank` is what counts where a leg did not find a chunk (None: nothing)."""
        return self.corpus.search(
            self.collections, query, k=k, exclude=exclude, filter=self.filter, missing_rank=missing_rank
        )

    def grep(self, pattern: str, *, limit: int) -> list[Chunk]:
        """The first chunks that match."""
        return self.corpus.grep(self.collections, pattern, limit=limit, filter=self.filter)

    def read(self, document_id: str) -> list[Chunk]:
        """A document's chunks in order."""
        return self.corpus.read(self.collections, document_id)

    def current(self, selections: Sequence[Selection]) -> list[Selection]:
        """Those selections whose chunk still exists, with the chunk as it is now: text may have been deleted, or moved
        within its document, since it was found."""
        now = {chunk.id: chunk for chunk in self.corpus.chunks(self.collections, [one.chunk.id for one in selections])}
        return [replace(one, chunk=now[one.chunk.id]) for one in selections if one.chunk.id in now]
