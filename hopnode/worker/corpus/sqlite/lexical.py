"""The lexical leg: which chunks share words with a query, best first, by BM25 (`bm25.py`).

Three engines answer alike. Small collections have rank-bm25 in memory, large ones posting lists (`postings.py`). FTS5
inside the workspace's file answers while neither is ready; every write keeps it up to date. None knows what a document
is; a row is a chunk's number.
"""
# ruff: noqa: S608 - table names end in the collection's number, which is an integer of ours

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from rank_bm25 import BM25Okapi

from hopnode.worker.corpus.analyzer import analyze
from hopnode.worker.corpus.bm25 import K1, B, idf, telling_terms
from hopnode.worker.corpus.sqlite.text_store import Connection

SMALL_COLLECTION = 2_000
"""Chunks up to which rank-bm25 answers; beyond it one query costs more than FTS5 and a rebuild more than a write."""
_KEPT_INDEXES = 32


class LexicalIndex(Protocol):
    """One state of one collection."""

    def ranked(self, terms: Sequence[str]) -> Iterator[int]:
        """Rows that hold at least one of the terms, best first, lazily."""
        ...


def indexed_text(title: str, heading: str, text: str) -> str:
    """What stands for a chunk in both legs: its text below its title and headings, which say what it is about."""
    return "\n".join(part for part in (title, heading, text) if part)


# --- FTS5 ---------------------------------------------------------------------------------------------------------


def create_index(connection: Connection, number: int) -> None:
    """Empty indexes of collection `number`: words, and the pre-filter of grep, which `grep.py` fills when it pays.

    The `ascii` tokenizer leaves the analyzer's terms as they are.
    """
    connection.execute(f"CREATE VIRTUAL TABLE fts_{number} USING fts5(terms, content='', tokenize='ascii')")
    connection.execute(f"CREATE VIRTUAL TABLE terms_{number} USING fts5vocab(fts_{number}, 'row')")
    connection.execute(
        f"CREATE VIRTUAL TABLE grep_{number} USING fts5(text, content='', tokenize='trigram', detail=none, columnsize=0)"
    )


def drop_index(connection: Connection, number: int) -> None:
    """Removes the indexes of collection `number`."""
    connection.execute(f"DROP TABLE IF EXISTS grep_{number}")
    connection.execute(f"DROP TABLE IF EXISTS terms_{number}")
    connection.execute(f"DROP TABLE IF EXISTS fts_{number}")


def add_to_index(connection: Connection, number: int, row: int, text: str) -> None:
    """Indexes a chunk by its `indexed_text`."""
    connection.execute(f"INSERT INTO fts_{number} (rowid, terms) VALUES (?, ?)", (row, " ".join(analyze(text))))


def remove_from_index(connection: Connection, number: int, row: int, text: str) -> None:
    """Takes a chunk out; `text` must be what was indexed, since the index keeps no text of its own."""
    connection.execute(
        f"INSERT INTO fts_{number} (fts_{number}, rowid, terms) VALUES ('delete', ?, ?)", (row, " ".join(analyze(text)))
    )


def extend_grep(connection: Connection, number: int, after: int, limit: int) -> int:
    """Adds the next chunks behind row `after` to the pre-filter of grep. Returns the last row added, `after` if there is none."""
    statement = "SELECT row, text FROM chunk WHERE collection = ? AND row > ? ORDER BY row LIMIT ?"
    found = [(row[0], row[1]) for row in connection.execute(statement, (number, after, limit))]
    connection.executemany(f"INSERT INTO grep_{number} (rowid, text) VALUES (?, ?)", found)
    last = found[-1][0] if found else after
    connection.execute("UPDATE collection SET grep_row = ? WHERE number = ?", (last, number))
    return last


def remove_from_grep(connection: Connection, number: int, row: int, text: str) -> None:
    """Takes a chunk out of the pre-filter if it is in there: rows up to the collection's `grep_row` are."""
    connection.execute(
        f"INSERT INTO grep_{number} (grep_{number}, rowid, text) "
        "SELECT 'delete', ?, ? FROM collection WHERE number = ? AND grep_row >= ?",
        (row, text, number, row),
    )


def rows_with_trigrams(
    connection: Connection, number: int, trigrams: Iterable[str], after: int, limit: int
) -> list[int]:
    """The first `limit` indexed rows behind `after` that hold all trigrams, without regard to case or order."""
    match = " AND ".join('"' + trigram.replace('"', '""') + '"' for trigram in trigrams)
    statement = f"SELECT rowid FROM grep_{number} WHERE grep_{number} MATCH ? AND rowid > ? ORDER BY rowid LIMIT ?"
    return [row[0] for row in connection.execute(statement, (match, after, limit)).fetchall()]


@dataclass(frozen=True)
class Fts5Index:
    """The index inside the file, seen through one snapshot of it."""

    connection: Connection
    number: int
    chunks: int

    def ranked(self, terms: Sequence[str]) -> Iterator[int]:
        """Rows with a term, best first; sorted when the first row is asked for."""
        frequency = document_frequencies(self.connection, self.number, dict.fromkeys(terms))
        kept = telling_terms(frequency, self.chunks)
        if not kept:
            return
        match = " OR ".join(f'"{term}"' for term in kept)
        statement = f"SELECT rowid FROM fts_{self.number} WHERE fts_{self.number} MATCH ? ORDER BY rank, rowid"
        for row in self.connection.execute(statement, (match,)):
            yield row[0]


def document_frequencies(connection: Connection, number: int, terms: Iterable[str]) -> dict[str, int]:
    """In how many chunks of a collection each term stands; unknown terms are left out."""
    statement = f"SELECT doc FROM terms_{number} WHERE term = ?"
    found = ((term, connection.execute(statement, (term,)).fetchone()) for term in terms)
    return {term: int(row[0]) for term, row in found if row}


def chunks_holding(
    connection: Connection, number: int, phrases: Sequence[Sequence[str]], limit: int
) -> list[list[int]]:
    """For each phrase the rows in which its terms stand one behind the other, oldest first; at most `limit` and one
    more."""
    rows = f"SELECT rowid FROM fts_{number} WHERE fts_{number} MATCH j.value ORDER BY rowid LIMIT ?"
    statement = f"SELECT json_group_array(json((SELECT json_group_array(rowid) FROM ({rows})))) FROM json_each(?) j"
    wanted = json.dumps([f'"{" ".join(phrase)}"' for phrase in phrases])
    (found,) = connection.execute(statement, (limit + 1, wanted)).fetchone()
    return json.loads(found)


# --- rank-bm25 ----------------------------------------------------------------------------------------------------


class _Bm25(BM25Okapi):
    """BM25 with the idf of FTS5, which stays above zero: the smallest collection can be searched, and a collection that
    outgrows this engine keeps its ranking."""

    def _calc_idf(self, nd: dict[str, int]) -> None:
        for term, found in nd.items():
            self.idf[term] = idf(self.corpus_size, found)


class RankBm25Index:
    """A small collection held in memory as bags of terms."""

    def __init__(self, rows: Sequence[int], bags: Sequence[Sequence[str]]) -> None:
        self._rows = np.array(rows, np.int64)
        # rank-bm25 cannot divide by an average length of zero
        self._bm25 = _Bm25(bags, k1=K1, b=B) if any(bags) else None

    def ranked(self, terms: Sequence[str]) -> Iterator[int]:
        """Rows with a term, best first, older rows first among equals."""
        if self._bm25 is None:
            return
        scores = self._bm25.get_scores([term for term in dict.fromkeys(terms) if term in self._bm25.idf])
        order = np.argsort(-scores, kind="stable")
        for index in order[: int(np.count_nonzero(scores > 0))]:
            yield int(self._rows[index])


@dataclass
class _Built:
    version: int
    index: RankBm25Index
    bags: dict[tuple[int, bytes], list[str]]


class SmallIndexes:
    """Keeps the rank-bm25 indexes of one workspace, by the index version of their collection."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._built: OrderedDict[int, _Built] = OrderedDict()
        self._asked: dict[int, int] = {}

    def get(self, connection: Connection, number: int, version: int) -> RankBm25Index | None:
        """The index of collection `number` at `version`, which must be the version of the connection's snapshot.

        None the first time that somebody asks for a version, and while another thread builds. While documents arrive every
        search sees another version; FTS5 then gives the same answers without building anything.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            built = self._built.get(number)
            if built is None or built.version != version:
                asked, self._asked[number] = self._asked.get(number), version
                if asked != version:
                    return None
                built = self._build(connection, number, version, built.bags if built else {})
                self._built[number] = built
            self._built.move_to_end(number)
            while len(self._built) > _KEPT_INDEXES:
                self._built.popitem(last=False)
            return built.index
        finally:
            self._lock.release()

    def answers(self, number: int, version: int) -> bool:
        """Whether `get` would give an index of collection `number` at `version` now; does not count as asking for one."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            built = self._built.get(number)
            return (built is not None and built.version == version) or self._asked.get(number) == version
        finally:
            self._lock.release()

    @staticmethod
    def _build(connection: Connection, number: int, version: int, known: dict[tuple[int, bytes], list[str]]) -> _Built:
        keys = [
            (int(row[0]), bytes(row[1]))
            for row in connection.execute(
                "SELECT row, embed_sha FROM chunk WHERE collection = ? ORDER BY row", (number,)
            )
        ]
        texts = chunk_texts(connection, [row for row, sha in keys if (row, sha) not in known])
        bags = {key: known.get(key) or analyze(texts.get(key[0], "")) for key in keys}
        return _Built(version, RankBm25Index([row for row, _ in keys], list(bags.values())), bags)


def chunk_texts(connection: Connection, rows: Iterable[int]) -> dict[int, str]:
    """The `indexed_text` of chunks, by row."""
    statement = (
        "SELECT c.row, d.title, c.heading, c.text FROM json_each(?) j CROSS JOIN chunk c ON c.row = j.value "
        "CROSS JOIN document d ON d.id = c.document_id"
    )
    found = connection.execute(statement, (json.dumps(list(rows)),))
    return {int(entry[0]): indexed_text(entry[1], entry[2], entry[3]) for entry in found}
