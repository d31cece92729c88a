"""Writes the segments that `postings.py` reads: chunks of the tail into a new one, small ones and worn ones into others.

Any thread of any process may do so at any time: a segment is made of one snapshot and takes its place in one
transaction, if what it was made of is still as it was; otherwise it is thrown away.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hopnode.worker.corpus.analyzer import ANALYZER_VERSION, analyze
from hopnode.worker.corpus.sqlite.lexical import SMALL_COLLECTION, chunk_texts
from hopnode.worker.corpus.sqlite.reading import collection_rows
from hopnode.worker.corpus.sqlite.text_store import Connection, TextStore

LEAST_TAIL = 500
"""Chunks outside of segments from which a new segment is written; reading fewer in memory takes milliseconds."""
STEP_CHUNKS = 4_096
"""Chunks of a new segment at most: half a second of work, of which little is spent in the transaction."""
LARGEST_SEGMENT = 65_536
"""Chunks of a segment at most: their numbers take two bytes."""
DEAD_SHARE = 0.25
"""Share of deleted chunks above which a segment is written again without them: they cost time and falsify counts."""
_MOST_COUNTED = 255


@dataclass(frozen=True)
class Segment:
    """Entry `i` says: the chunk `rows[ordinals[i]]` has `terms[term_ids[i]]` `counts[i]` times."""

    rows: NDArray[np.int64]
    lengths: NDArray[np.uint32]
    terms: Sequence[str]
    term_ids: NDArray[np.int64]
    ordinals: NDArray[np.uint16]
    counts: NDArray[np.uint8]


def catch_up_postings(store: TextStore, from_chunks: int = SMALL_COLLECTION, least_tail: int = LEAST_TAIL) -> None:
    """Brings the posting lists of a workspace up to date, in collections that are, or were, too large for rank-bm25."""
    with store.read() as connection:
        large = [row.number for row in collection_rows(connection) if row.chunks > from_chunks or row.posted_row]
    for number in large:
        while _extend(store, number, least_tail):
            while _tidy(store, number):
                pass
        while _tidy(store, number):
            pass


def drop_segments(connection: Connection, number: int) -> None:
    """Removes all segments of collection `number`; every chunk of it is in the tail then."""
    statement = "SELECT id FROM segment WHERE collection = ?"
    _remove(connection, [row[0] for row in connection.execute(statement, (number,))])
    connection.execute("UPDATE collection SET posted_row = 0 WHERE number = ?", (number,))


def _extend(store: TextStore, number: int, least: int) -> bool:
    """Makes a segment of the next chunks of the tail. Returns False when there are too few of them, or others did the same."""
    with store.read() as connection:
        statement = "SELECT posted_row FROM collection WHERE number = ? AND analyzer = ?"
        found = connection.execute(statement, (number, ANALYZER_VERSION)).fetchone()
        if found is None:
            return False
        (posted_row,) = found
        statement = "SELECT row FROM chunk WHERE collection = ? AND row > ? ORDER BY row LIMIT ?"
        rows = [row[0] for row in connection.execute(statement, (number, posted_row, STEP_CHUNKS))]
        if len(rows) < least:
            return False
        texts = chunk_texts(connection, rows)
    made = _segment_of({row: analyze(texts[row]) for row in rows})
    with store.write() as connection:
        moved = connection.execute(
            "UPDATE collection SET posted_row = ? WHERE number = ? AND posted_row = ? AND analyzer = ?",
            (rows[-1], number, posted_row, ANALYZER_VERSION),
        )
        if moved.rowcount:
            _insert(connection, number, made)
    return bool(moved.rowcount)


def _tidy(store: TextStore, number: int) -> bool:
    """Writes segments again that should be one, or that hold too much that is gone. Returns False when all is well."""
    with store.read() as connection:
        ids = _untidy(connection, number)
        if not ids:
            return False
        parts = [_read(connection, one) for one in ids]
        made = _merged(parts, _live(connection, np.concatenate([part.rows for part in parts])))
    with store.write() as connection:
        statement = "SELECT count(*) FROM segment WHERE id IN (SELECT value FROM json_each(?))"
        if connection.execute(statement, (json.dumps(ids),)).fetchone()[0] < len(ids):
            return False
        _remove(connection, ids)
        if len(made.rows):
            _insert(connection, number, made)
    return True


def _untidy(connection: Connection, number: int) -> list[int]:
    statement = "SELECT chunks, id FROM segment WHERE collection = ? ORDER BY chunks, id"
    sizes = [(row[0], row[1]) for row in connection.execute(statement, (number,))]
    for (small, one), (large, other) in itertools.pairwise(sizes):
        if large < 2 * small and small + large <= LARGEST_SEGMENT:
            return sorted((one, other))
    statement = (
        "SELECT (SELECT count(*) FROM chunk WHERE collection = number AND row <= posted_row) FROM collection "
        "WHERE number = ?"
    )
    found = connection.execute(statement, (number,)).fetchone()
    written = sum(size for size, _ in sizes)
    if found is None or written - found[0] <= DEAD_SHARE * written:
        return []
    live = {one: len(_live(connection, _rows(connection, one))) for _, one in sizes}
    return [max(sizes, key=lambda pair: pair[0] - live[pair[1]])[1]]


def _live(connection: Connection, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Those of `rows` that are chunks now."""
    statement = "SELECT k.row FROM json_each(?) j CROSS JOIN chunk k ON k.row = j.value"
    found = connection.execute(statement, (json.dumps(rows.tolist()),))
    return np.array([row[0] for row in found], np.int64)


# --- segments in memory ---------------------------------------------------------------------------------------------


def _segment_of(bags: dict[int, list[str]]) -> Segment:
    known: dict[str, int] = {}
    term_ids: list[int] = []
    counts: list[int] = []
    sizes: list[int] = []
    for bag in bags.values():
        counted = Counter(bag)
        sizes.append(len(counted))
        term_ids.extend([known.setdefault(term, len(known)) for term in counted])
        counts.extend(counted.values())
    return Segment(
        np.array(list(bags), np.int64),
        np.array([len(bag) for bag in bags.values()], np.uint32),
        list(known),
        np.array(term_ids, np.int64),
        np.repeat(np.arange(len(bags)), sizes).astype(np.uint16),
        np.minimum(counts, _MOST_COUNTED).astype(np.uint8),
    )


def _merged(parts: Sequence[Segment], live: NDArray[np.int64]) -> Segment:
    """One segment of several, with the chunks in `live` only."""
    known: dict[str, int] = {}
    kept: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]] = []
    masks = [np.isin(part.rows, live) for part in parts]
    base = 0
    for part, mask in zip(parts, masks, strict=True):
        ids = np.array([known.setdefault(term, len(known)) for term in part.terms], np.int64)
        entries = mask[part.ordinals]
        renumbered = base + np.cumsum(mask) - 1
        kept.append((ids[part.term_ids[entries]], renumbered[part.ordinals[entries]], part.counts[entries]))
        base += int(mask.sum())
    term_ids, ordinals, counts = (np.concatenate(column) for column in zip(*kept, strict=True))
    return Segment(
        np.concatenate([part.rows[mask] for part, mask in zip(parts, masks, strict=True)]),
        np.concatenate([part.lengths[mask] for part, mask in zip(parts, masks, strict=True)]),
        list(known),
        term_ids,
        ordinals.astype(np.uint16),
        counts,
    )


# --- segments in the file -------------------------------------------------------------------------------------------


def _insert(connection: Connection, number: int, segment: Segment) -> None:
    (made,) = connection.execute(
        "INSERT INTO segment (collection, chunks, rows, lengths) VALUES (?, ?, ?, ?) RETURNING id",
        (number, len(segment.rows), segment.rows.tobytes(), segment.lengths.tobytes()),
    ).fetchone()
    statement = "INSERT INTO posting (segment, term, chunks, entries) VALUES (?, ?, ?, ?)"
    connection.executemany(statement, ((made, *entry) for entry in _by_term(segment)))


def _by_term(segment: Segment) -> Iterator[tuple[str, int, bytes]]:
    """Each term with the number of its chunks, then those chunks, then how often they have it; terms in order, since
    that is the cheapest way to fill a table."""
    order = np.argsort(segment.term_ids, kind="stable")
    ordinals, counts = segment.ordinals[order].tobytes(), segment.counts[order].tobytes()
    frequency = np.bincount(segment.term_ids, minlength=len(segment.terms))
    starts: list[int] = [0, *np.cumsum(frequency).tolist()]
    for term, index in sorted((term, index) for index, term in enumerate(segment.terms)):
        start, end = starts[index], starts[index + 1]
        if start < end:
            yield term, end - start, ordinals[2 * start : 2 * end] + counts[start:end]


def _read(connection: Connection, number: int) -> Segment:
    statement = "SELECT term, chunks, entries FROM posting WHERE segment = ?"
    found: list[tuple[str, int, bytes]] = connection.execute(statement, (number,)).fetchall()
    sizes = [chunks for _, chunks, _ in found]
    (lengths,) = connection.execute("SELECT lengths FROM segment WHERE id = ?", (number,)).fetchone()
    return Segment(
        _rows(connection, number),
        np.frombuffer(lengths, np.uint32),
        [term for term, _, _ in found],
        np.repeat(np.arange(len(found)), sizes),
        np.frombuffer(b"".join(entries[: 2 * chunks] for _, chunks, entries in found), np.uint16),
        np.frombuffer(b"".join(entries[2 * chunks :] for _, chunks, entries in found), np.uint8),
    )


def _rows(connection: Connection, number: int) -> NDArray[np.int64]:
    (rows,) = connection.execute("SELECT rows FROM segment WHERE id = ?", (number,)).fetchone()
    return np.frombuffer(rows, np.int64)


def _remove(connection: Connection, ids: Iterable[int]) -> None:
    for one in ids:
        connection.execute("DELETE FROM posting WHERE segment = ?", (one,))
        connection.execute("DELETE FROM segment WHERE id = ?", (one,))
