"""Which lexical engine answers for a collection, and what it can tell of terms; the engines themselves are elsewhere."""

from collections.abc import Iterable

from hopnode.worker.corpus.sqlite.lexical import (
    SMALL_COLLECTION,
    Fts5Index,
    LexicalIndex,
    RankBm25Index,
    SmallIndexes,
    document_frequencies,
)
from hopnode.worker.corpus.sqlite.postings import PostingIndex, PostingLists
from hopnode.worker.corpus.sqlite.reading import CollectionRow
from hopnode.worker.corpus.sqlite.text_store import Snapshot

RANK_BM25, POSTINGS, FTS5 = "rank-bm25", "postings", "fts5"


class LexicalEngines:
    """The engines of one workspace with what they remember; all of it can be thrown away."""

    def __init__(self) -> None:
        self._small = SmallIndexes()
        self._large = PostingLists()

    def index(self, snapshot: Snapshot, row: CollectionRow) -> LexicalIndex:
        """The fastest engine that stands at the snapshot; FTS5 always does."""
        found: RankBm25Index | PostingIndex | None
        if row.chunks <= SMALL_COLLECTION:
            found = self._small.get(snapshot, row.number, row.index_version)
        else:
            found = self._large.get(snapshot, row)
        return found or Fts5Index(snapshot, row.number, row.chunks)

    def name(self, snapshot: Snapshot, row: CollectionRow) -> str:
        """The engine that would answer a search of this snapshot now. Asking for its name changes nothing.

        FTS5 answers for a small collection as long as every search finds it changed.
        """
        if row.chunks <= SMALL_COLLECTION:
            return RANK_BM25 if self._small.answers(row.number, row.index_version) else FTS5
        return POSTINGS if self._large.get(snapshot, row) else FTS5

    def frequencies(self, snapshot: Snapshot, row: CollectionRow, terms: Iterable[str]) -> dict[str, int]:
        """In how many chunks of a collection each term stands; unknown terms are left out.

        In a large collection chunks that were deleted lately count still: FTS5 knows it exactly, and reads all that it
        has on a term to count.
        """
        large = self._large.get(snapshot, row) if row.chunks > SMALL_COLLECTION else None
        if large:
            return large.frequencies(terms)
        return document_frequencies(snapshot, row.number, terms)
