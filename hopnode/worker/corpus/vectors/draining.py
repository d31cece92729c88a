"""Brings the vector index up to the text store: applies the outbox in order, rebuilds what is missing, drops what is gone.

One drainer per collection, by a lease in the workspace's file; every step may be repeated after a crash.
"""

import time
from collections.abc import Sequence

import numpy as np

from hopnode.worker.corpus.sqlite import outbox
from hopnode.worker.corpus.sqlite.lexical import extend_grep
from hopnode.worker.corpus.sqlite.reading import CollectionRow, collection_rows, rows_of_collection, vectors_of_rows
from hopnode.worker.corpus.sqlite.text_store import TextStore
from hopnode.worker.corpus.vectors.chroma import Vectors, VectorsDamaged
from hopnode.worker.errors import VectorsUnavailable
from hopnode.worker.logs import get_logger

_log = get_logger(__name__)

BATCH = 250
LEASE_SECONDS = 30.0
DEAD_SHARE = 0.3
LEAST_DEAD = 500
"""An index with more dead vectors than both is built again: they cost recall, time and disk, and never go otherwise."""
GREP_CHUNKS = 5_000
"""Chunks from which the trigram pre-filter pays; below, a scan takes some 15 ms at most."""
_GREP_BATCH = 2_000
_MENDING_REST_SECONDS = 600.0
"""An index is built again for its damage at most this often by one process: a full disk is no reason to go on for ever."""


class Drainer:
    """The drainer of one workspace; any thread of any process may run one, the lease lets one at a time work."""

    def __init__(self, store: TextStore, vectors: Vectors, workspace_id: str) -> None:
        self._store = store
        self._vectors = vectors
        self._workspace_id = workspace_id
        self._checked: set[int] = set()
        self._mended_at: dict[int, float] = {}

    def drain(self, collection_id: str | None = None) -> int:
        """Applies all pending changes and returns how many. Raises `VectorsUnavailable` when the index cannot be reached.

        A collection that another drainer works on is left to it.
        """
        with self._store.read() as connection:
            rows = [row for row in collection_rows(connection) if collection_id in (None, row.id)]
        applied = sum(self._drain_one(row) for row in rows if row.embedder)
        self._drop_orphans()
        return applied

    def recheck(self, collection_id: str) -> None:
        """Lets the next drain count the vectors again: a search found the index missing."""
        with self._store.read() as connection:
            self._checked -= {row.number for row in collection_rows(connection) if row.id == collection_id}

    def catch_up_grep(self, from_chunks: int = GREP_CHUNKS, batch: int = _GREP_BATCH) -> None:
        """Extends the pre-filter of grep in collections that are large enough to need one; `batch` chunks a transaction."""
        with self._store.read() as connection:
            large = [row.number for row in collection_rows(connection) if row.chunks >= from_chunks]
        for number in large:
            while self._extend_grep(number, batch):
                pass

    def _extend_grep(self, number: int, batch: int) -> bool:
        """Adds the next chunks. Returns False when there are none."""
        with self._store.write() as connection:
            current = _row(collection_rows(connection), number)
            return current is not None and extend_grep(connection, number, current.grep_row, batch) > current.grep_row

    def _drain_one(self, row: CollectionRow) -> int:
        applied = 0
        while self._has_work(row):  # again: somebody may have written between our last look and the end of our lease
            token = outbox.new_token()  # one per run: two threads must not take each other's lease for their own
            with self._store.write() as connection:
                if not outbox.take_lease(connection, row.number, token, LEASE_SECONDS):
                    return applied
            try:
                while step := self._apply_batch(row.number, token):
                    applied += step
                self._compare(row.number, token)
            except VectorsDamaged as error:
                self._mend(row.number, token, error)
            finally:
                with self._store.write() as connection:
                    outbox.drop_lease(connection, row.number, token)
        return applied

    def _has_work(self, row: CollectionRow) -> bool:
        if row.number not in self._checked:
            return True
        with self._store.read() as connection:
            return bool(outbox.pending(connection, row.number, 1))

    def _apply_batch(self, number: int, token: str) -> int:
        with self._store.read() as connection:
            row = _row(collection_rows(connection), number)
            changes = outbox.pending(connection, number, BATCH) if row else []
            if row is None or not changes:
                return 0
            touched = sorted({change.row for change in changes})
            live, matrix = vectors_of_rows(connection, row.embedder or "", touched)
        name = self._name(row)
        gone = sorted(set(touched) - set(live))
        if live:
            self._vectors.upsert(name, live, matrix)
        if gone:
            self._vectors.delete(name, gone)
        with self._store.write() as connection:
            if not outbox.mark_applied(connection, number, token, changes[-1].seq, len(gone)):
                return 0
            outbox.take_lease(connection, number, token, LEASE_SECONDS)
        return len(changes)

    def _compare(self, number: int, token: str) -> None:
        """Builds an index again that lost vectors or has too many (looked at once per process), or is full of dead ones."""
        with self._store.read() as connection:
            row = _row(collection_rows(connection), number)
            behind = outbox.vector_lag(connection, number)
        if behind:
            return
        if row and number not in self._checked and (found := self._vectors.count(self._name(row)) or 0) != row.chunks:
            _log.warning("vector_index_rebuild", collection=row.id, chunks=row.chunks, vectors=found)
            self._rebuild(row, token)
        elif row and row.dead > LEAST_DEAD and row.dead > DEAD_SHARE * (row.dead + row.chunks):
            _log.info("vector_index_renewal", collection=row.id, chunks=row.chunks, dead=row.dead)
            self._rebuild(row, token)
        self._checked.add(number)

    def _mend(self, number: int, token: str, damage: VectorsDamaged) -> None:
        """Builds a damaged index again; raises the damage when that was done a short while ago."""
        if time.monotonic() - self._mended_at.get(number, float("-inf")) < _MENDING_REST_SECONDS:
            raise damage
        with self._store.read() as connection:
            row = _row(collection_rows(connection), number)
        if row is not None:
            _log.warning("vector_index_damaged", collection=row.id, chunks=row.chunks, error=str(damage))
            self._rebuild(row, token)
            self._mended_at[number] = time.monotonic()
            self._checked.add(number)

    def _rebuild(self, row: CollectionRow, token: str) -> None:
        name = self._name(row, row.generation + 1)
        self._vectors.drop(name)  # left over from a rebuild that did not end
        with self._store.read() as connection:
            seq = max(outbox.last_seq(connection, row.number), row.applied_seq)
            rows = rows_of_collection(connection, row.number)
        for start in range(0, len(rows), BATCH):
            if not self._copy(row, name, rows[start : start + BATCH], token):
                return
        with self._store.write() as connection:
            outbox.switch_generation(connection, row, token, seq, self._name(row))

    def _copy(self, row: CollectionRow, name: str, rows: Sequence[int], token: str) -> bool:
        with self._store.read() as connection:
            live, matrix = vectors_of_rows(connection, row.embedder or "", rows)
        if live:
            self._vectors.upsert(name, live, np.ascontiguousarray(matrix))
        with self._store.write() as connection:
            return outbox.take_lease(connection, row.number, token, LEASE_SECONDS)

    def _drop_orphans(self) -> None:
        with self._store.read() as connection:
            names = outbox.orphans(connection)
        for name in names:
            self._vectors.drop(name)
            with self._store.write() as connection:
                outbox.forget_orphan(connection, name)

    def _name(self, row: CollectionRow, generation: int | None = None) -> str:
        return outbox.vector_name(self._workspace_id, row.id, generation or row.generation)


def drain_quietly(drainer: Drainer, collection_id: str | None = None) -> int:
    """Drains if it can; what cannot be told now stays in the outbox for the next one who tries."""
    try:
        return drainer.drain(collection_id)
    except VectorsUnavailable as error:
        _log.warning("vector_drain_deferred", error=str(error))
        return 0


def _row(rows: Sequence[CollectionRow], number: int) -> CollectionRow | None:
    return next((row for row in rows if row.number == number), None)
