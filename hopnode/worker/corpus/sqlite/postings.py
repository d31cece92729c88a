"""The lexical leg of large collections: BM25 over posting lists that lie in the workspace's file, scored with numpy.

A segment says which chunk has which term how often, for up to 65,536 chunks. `posting_segments.py` writes it once, and
nothing changes it. Chunks that are in no segment yet are kept in memory as a tail. A search reads both in its own
snapshot and looks up there what they name. So an answer is never older than the text store, whoever writes.
"""

import json
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hopnode.worker.corpus.analyzer import analyze
from hopnode.worker.corpus.bm25 import idf, telling_terms, term_score
from hopnode.worker.corpus.sqlite.lexical import chunk_texts
from hopnode.worker.corpus.sqlite.reading import CollectionRow, live_rows
from hopnode.worker.corpus.sqlite.text_store import Connection

LONGEST_TAIL = 2_000
"""Chunks outside of segments up to which a process reads them by itself; while there are more, FTS5 answers."""
_FIRST_BLOCK = 128
_LIKELY = 4_096
_NEXT_BLOCK = 1_024
_KEPT_COLLECTIONS = 32
_KEPT_TERMS = 10_000
_TAIL_PATIENCE_SECONDS = 0.1
"""How long a search waits for another one that reads the tail; after that FTS5 answers it."""

Rows = NDArray[np.int64]
Scores = NDArray[np.float64]

_FOUND = (
    "FROM json_each(?) t CROSS JOIN json_each(?) s CROSS JOIN posting p ON p.segment = s.value AND p.term = t.value"
)


@dataclass(frozen=True)
class Layout:
    """The segments of a collection side by side: chunk `rows[bases[s] + n]` is the one that segment `s` calls `n`."""

    ids: tuple[int, ...]
    bases: dict[int, int]
    rows: Rows
    lengths: NDArray[np.float64]
    tokens: float
    holding: dict[str, int] = field(default_factory=dict[str, int])
    """In how many of these chunks a term stands, of those that were asked for; segments never change."""


@dataclass
class Tail:
    """Chunks behind row `posted_row`, term by term. Only ever grows, so that others may read it meanwhile."""

    posted_row: int
    version: int = -1
    lengths: dict[int, int] = field(default_factory=dict[int, int])
    entries: dict[str, list[tuple[int, int]]] = field(default_factory=dict[str, list[tuple[int, int]]])
    tokens: int = 0

    def add(self, row: int, terms: Sequence[str]) -> None:
        """Adds a chunk by its terms."""
        self.lengths[row] = len(terms)
        self.tokens += len(terms)
        for term, count in Counter(terms).items():
            self.entries.setdefault(term, []).append((row, count))


@dataclass(frozen=True)
class PostingIndex:
    """A large collection in one snapshot of its file."""

    connection: Connection
    collection: CollectionRow
    layout: Layout
    tail: Tail

    def ranked(self, terms: Sequence[str]) -> Iterator[int]:
        """Rows with a term, best first, older rows first among equals."""
        frequency = self.frequencies(dict.fromkeys(terms))
        kept = telling_terms(frequency, self.collection.chunks)
        weights = {term: idf(self._chunks(), frequency[term]) for term in kept}
        if not weights:
            return
        for block in _best_first(*self._scores(weights)):
            yield from live_rows(self.connection, self.collection.number, block)

    def frequencies(self, terms: Iterable[str]) -> dict[str, int]:
        """In how many chunks each term stands, those included that were deleted since their segment was written;
        unknown terms are left out."""
        held, newer = self._held(list(terms)), self.tail.entries
        frequency = {term: chunks + len(newer.get(term, ())) for term, chunks in held.items()}
        return {term: chunks for term, chunks in frequency.items() if chunks}

    def _held(self, terms: Sequence[str]) -> dict[str, int]:
        """In how many chunks of the segments each term stands."""
        known = self.layout.holding
        found = {term: known.get(term, -1) for term in terms}
        if new := [term for term, chunks in found.items() if chunks < 0]:
            found |= dict.fromkeys(new, 0)
            statement = f"SELECT json_group_array(json_array(p.term, p.chunks)) {_FOUND}"
            (answer,) = self.connection.execute(statement, (json.dumps(new), json.dumps(self.layout.ids))).fetchone()
            for term, chunks in json.loads(answer):
                found[term] += chunks
            if len(known) > _KEPT_TERMS:
                known.clear()
            known.update((term, found[term]) for term in new)
        return found

    def _chunks(self) -> int:
        return len(self.layout.rows) + len(self.tail.lengths)

    def _scores(self, weights: dict[str, float]) -> tuple[Rows, Scores, float]:
        """Rows, what the terms give each (0 where there is none), and a score that some `_FIRST_BLOCK` rows reach."""
        average = max(1.0, (self.layout.tokens + self.tail.tokens) / max(1, self._chunks()))
        rows, scores, least = self._segment_scores(weights, average)
        newer = self._tail_scores(weights, average)
        if newer:
            rows = np.concatenate([rows, np.fromiter(newer.keys(), np.int64, len(newer))])
            scores = np.concatenate([scores, np.fromiter(newer.values(), np.float64, len(newer))])
        return rows, scores, least

    def _segment_scores(self, weights: dict[str, float], average: float) -> tuple[Rows, Scores, float]:
        statement = f"SELECT p.segment, p.term, p.chunks, p.entries {_FOUND}"
        names = json.dumps(list(weights)), json.dumps(self.layout.ids)
        found: list[tuple[int, str, int, bytes]] = self.connection.execute(statement, names).fetchall()
        if not found:
            return np.zeros(0, np.int64), np.zeros(0), 0.0
        ordinals = np.frombuffer(b"".join([entries[: 2 * chunks] for *_, chunks, entries in found]), np.uint16)
        counts = np.frombuffer(b"".join([entries[2 * chunks :] for *_, chunks, entries in found]), np.uint8)
        sizes = [chunks for *_, chunks, _ in found]
        at = np.repeat([self.layout.bases[segment] for segment, *_ in found], sizes) + ordinals
        each = np.repeat([weights[term] for _, term, *_ in found], sizes)
        given = term_score(each, counts.astype(np.float64), self.layout.lengths[at], average)
        scores: Scores = np.bincount(at, given, len(self.layout.rows)).astype(np.float64, copy=False)
        # The rarest terms come first, and what has them is what is likely to score most: no need to sort all the rest.
        likely = scores[at[:_LIKELY]]
        least = float(np.partition(likely, -_FIRST_BLOCK)[-_FIRST_BLOCK]) if len(likely) >= 2 * _FIRST_BLOCK else 0.0
        return self.layout.rows, scores, least

    def _tail_scores(self, weights: dict[str, float], average: float) -> dict[int, float]:
        scores: dict[int, float] = {}
        for term, weight in weights.items():
            for row, count in self.tail.entries.get(term, ()):
                given = term_score(weight, float(count), float(self.tail.lengths[row]), average)
                scores[row] = scores.get(row, 0.0) + given
        return scores


def _best_first(rows: Rows, scores: Scores, least: float) -> Iterator[list[int]]:
    """Blocks of the rows that score anything; what scores less than `least` is sorted only if it is asked for."""
    for group, block in ((scores >= least, _FIRST_BLOCK // 2), (scores < least, _NEXT_BLOCK)):
        found = np.flatnonzero(group & (scores > 0))
        order = found[np.lexsort((rows[found], -scores[found]))]
        for start in range(0, len(order), block):
            yield rows[order[start : start + block]].tolist()


class PostingLists:
    """What a process remembers of the posting lists of one workspace: layouts and tails, checked against each snapshot."""

    def __init__(self, longest_tail: int = LONGEST_TAIL) -> None:
        self._longest_tail = longest_tail
        self._lock = threading.Lock()
        self._layouts: OrderedDict[int, Layout] = OrderedDict()
        self._tails: OrderedDict[int, Tail] = OrderedDict()

    def get(self, connection: Connection, collection: CollectionRow) -> PostingIndex | None:
        """The index of a collection in the connection's snapshot. Returns None while too little of it is in segments."""
        if not collection.posted_row:
            return None
        tail = self._tails.get(collection.number)
        if tail is None or (tail.posted_row, tail.version) != (collection.posted_row, collection.index_version):
            tail = self._caught_up(connection, collection)
        layout = self._layout(connection, collection.number)
        return PostingIndex(connection, collection, layout, tail) if tail and layout.ids else None

    def _layout(self, connection: Connection, number: int) -> Layout:
        statement = "SELECT json_group_array(id) FROM segment WHERE collection = ?"
        ids = tuple(sorted(json.loads(connection.execute(statement, (number,)).fetchone()[0])))
        known = self._layouts.get(number)
        if known is None or known.ids != ids:
            known = _read_layout(connection, ids)
            _keep(self._layouts, number, known)
        return known

    def _caught_up(self, connection: Connection, collection: CollectionRow) -> Tail | None:
        """The tail of this snapshot. Returns None when it is too long, when another one reads it, or this snapshot is older."""
        if not self._lock.acquire(timeout=_TAIL_PATIENCE_SECONDS):
            return None
        try:
            tail, most = self._tails.get(collection.number), self._longest_tail
            if tail and tail.posted_row > collection.posted_row:
                return None
            statement = "SELECT row FROM chunk WHERE collection = ? AND row > ? ORDER BY row LIMIT ?"
            found = connection.execute(statement, (collection.number, collection.posted_row, most + 1))
            rows: list[int] = [one[0] for one in found]
            if len(rows) > most:
                return None
            if tail is None or tail.posted_row < collection.posted_row or len(tail.lengths) > most + len(rows):
                tail = Tail(collection.posted_row)
            for row, text in chunk_texts(connection, [row for row in rows if row not in tail.lengths]).items():
                tail.add(row, analyze(text))
            tail.version = collection.index_version
            _keep(self._tails, collection.number, tail)
            return tail
        finally:
            self._lock.release()


def _read_layout(connection: Connection, ids: tuple[int, ...]) -> Layout:
    statement = "SELECT id, rows, lengths FROM segment WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id"
    bases: dict[int, int] = {}
    rows: list[Rows] = [np.zeros(0, np.int64)]
    lengths: list[NDArray[np.uint32]] = [np.zeros(0, np.uint32)]
    base = 0
    for segment, its_rows, its_lengths in connection.execute(statement, (json.dumps(ids),)):
        bases[segment] = base
        rows.append(np.frombuffer(its_rows, np.int64))
        lengths.append(np.frombuffer(its_lengths, np.uint32))
        base += len(rows[-1])
    whole = np.concatenate(lengths).astype(np.float64)
    return Layout(ids, bases, np.concatenate(rows), whole, float(whole.sum()))


def _keep(kept: OrderedDict[int, Any], number: int, value: Any) -> None:
    kept[number] = value
    while len(kept) > _KEPT_COLLECTIONS:
        kept.popitem(last=False)
