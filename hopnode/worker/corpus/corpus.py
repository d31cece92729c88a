"""The only door to what a workspace knows: documents in and out, search, grep and read over its collections.

Knows the text store, both indexes and the embedders; knows no job, no agent and no HTTP.
"""

import re
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from hopnode.worker.corpus.chunking.chunker import MAX_TOKENS
from hopnode.worker.corpus.finding.engines import FTS5
from hopnode.worker.corpus.finding.filters import compile_filter
from hopnode.worker.corpus.finding.grep import Grep
from hopnode.worker.corpus.finding.insight import CorpusInsight
from hopnode.worker.corpus.finding.search import Search, SearchMemory
from hopnode.worker.corpus.ingest import Ingest
from hopnode.worker.corpus.parsing.parser import ParserPool
from hopnode.worker.corpus.records import Chunk, CollectionStats, Document, IngestOutcome, NewDocument, SearchHits
from hopnode.worker.corpus.sqlite import outbox, reading, writing
from hopnode.worker.corpus.sqlite.posting_segments import catch_up_postings
from hopnode.worker.corpus.sqlite.text_store import TextStore
from hopnode.worker.corpus.vectors.chroma import Vectors
from hopnode.worker.corpus.vectors.draining import Drainer, drain_quietly
from hopnode.worker.errors import NotFound
from hopnode.worker.inference.embedding.embedder import Embedders
from hopnode.worker.logs import get_logger
from hopnode.worker.store.collections import Collection

_log = get_logger(__name__)

UNUSED_VECTOR_SECONDS = 7 * 24 * 3600.0
"""Age from which a cached vector that belongs to no chunk is deleted; younger ones may be wanted again."""
SWEEP_SECONDS = 3600.0

_NO_INDEX = "sign-of-life"
"""A name that no index has: counting it asks Chroma and finds nothing."""

_WORKSPACE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


@dataclass(frozen=True)
class Parts:
    """What all workspaces of a node share."""

    vectors: Vectors
    embedders: Embedders
    parser: ParserPool
    fix_embedder: Callable[[str, str, int], Collection]
    max_chunk_tokens: int


class Corpora:
    """The corpora of a node, one file per workspace under `<root>/workspaces/<workspace id>/corpus.db`."""

    def __init__(
        self,
        root: Path,
        vectors: Vectors,
        embedders: Embedders,
        parser: ParserPool,
        fix_embedder: Callable[[str, str, int], Collection],
        *,
        max_chunk_tokens: int = MAX_TOKENS,
    ) -> None:
        self._folder = root / "workspaces"
        self._parts = Parts(vectors, embedders, parser, fix_embedder, max_chunk_tokens)
        self._lock = threading.Lock()
        self._open: dict[str, Corpus] = {}

    def open(self, workspace_id: str) -> "Corpus":
        """The corpus of a workspace, made when it is new; the same object for every caller."""
        if not _WORKSPACE_ID.fullmatch(workspace_id):
            raise NotFound("There is no such workspace.")
        with self._lock:
            if workspace_id not in self._open:
                store = TextStore(self._folder / workspace_id / "corpus.db")
                with store.write() as connection:
                    renewed = writing.renew_indexes(connection)
                if renewed:
                    _log.info("lexical_indexes_renewed", workspace=workspace_id, collections=len(renewed))
                self._open[workspace_id] = Corpus(workspace_id, store, self._parts)
            return self._open[workspace_id]

    def drop_workspace(self, workspace_id: str) -> None:
        """Forgets all that a workspace holds, at once; its files go when its vector indexes could be dropped."""
        if not (self._folder / workspace_id).exists():
            return
        self.open(workspace_id).drop_everything()
        self._remove_if_dropped(workspace_id)

    def drain_vectors(self) -> int:
        """Brings the indexes of every workspace up to date, as far as it can. Returns how many vector changes it applied."""
        applied = 0
        for path in sorted(self._folder.glob("*/corpus.db")):
            corpus = self.open(path.parent.name)
            applied += corpus.maintain()
            self._remove_if_dropped(path.parent.name)
        return applied

    def check_vectors(self) -> None:
        """Asks the vector index for a sign of life; raises `VectorsUnavailable`."""
        self._parts.vectors.count(_NO_INDEX)

    def close(self) -> None:
        """Closes the files, Chroma and the embedders' connections."""
        with self._lock:
            corpora, self._open = list(self._open.values()), {}
        for corpus in corpora:
            corpus.close()
        self._parts.vectors.close()
        self._parts.embedders.close()

    def _remove_if_dropped(self, workspace_id: str) -> None:
        corpus = self.open(workspace_id)
        if not corpus.may_be_removed():
            return
        with self._lock:
            self._open.pop(workspace_id, None)
        corpus.close()
        shutil.rmtree(self._folder / workspace_id, ignore_errors=True)
        _log.info("workspace_removed", workspace=workspace_id)


class Corpus:
    """What one workspace knows. Safe to use from many threads; several processes may hold the same workspace."""

    def __init__(self, workspace_id: str, store: TextStore, parts: Parts) -> None:
        self.workspace_id = workspace_id
        self._store = store
        self._parts = parts
        self._drainer = Drainer(store, parts.vectors, workspace_id)
        self._memory = SearchMemory()
        self._swept_at = time.monotonic()

    # --- documents ---

    def ingest(
        self,
        collection: Collection,
        documents: Sequence[NewDocument],
        progress: Callable[[IngestOutcome], None] | None = None,
        *,
        max_chunk_tokens: int | None = None,
    ) -> list[IngestOutcome]:
        """Stores documents under their keys and tells what became of each, in order; a failed document is data.

        What is reported to `progress` is on disk and can be found by its words; vectors follow before the call returns
        when Chroma answers, and later when it does not. Raises when the embedder or the disk fails: what was reported
        stays, and the same call may be made again. `max_chunk_tokens` is for documents that are to be cut otherwise.
        """
        self._own(collection)
        parts, most = self._parts, max_chunk_tokens or self._parts.max_chunk_tokens
        run = Ingest(self._store, collection, parts.embedders, parts.parser, parts.fix_embedder, most)
        try:
            return run.run(documents, progress or (lambda _: None))
        finally:
            drain_quietly(self._drainer, collection.id)

    def delete(self, collection: Collection, keys: Sequence[str]) -> int:
        """Deletes documents by key; how many there were. No search that starts later returns them."""
        self._own(collection)
        with self._store.write() as connection:
            row = reading.collection_row(connection, collection.id)
            deleted = writing.delete_documents(connection, row.number, keys) if row else 0
        if deleted:
            drain_quietly(self._drainer, collection.id)
        return deleted

    def drop_collection(self, collection: Collection) -> None:
        """Forgets all documents of the collection and its indexes."""
        self._own(collection)
        self._drop([collection.id])
        drain_quietly(self._drainer, collection.id)

    def documents(self, collection: Collection, *, limit: int, after: str | None = None) -> list[Document]:
        """Documents in the order of their keys, from behind the key `after`."""
        self._own(collection)
        with self._store.read() as connection:
            row = reading.collection_row(connection, collection.id)
            return reading.list_documents(connection, row.number, after=after, limit=limit) if row else []

    def document(self, collection: Collection, key: str) -> Document:
        """The document stored under `key`; `NotFound`."""
        self._own(collection)
        with self._store.read() as connection:
            row = reading.collection_row(connection, collection.id)
            found = reading.document_by_key(connection, row.number, key) if row else None
        if found is None:
            raise NotFound(f"There is no document {key!r} in the collection {collection.name!r}.")
        return found

    def document_text(self, document_id: str) -> str:
        """The stored text, which the offsets of chunks point into; `NotFound`."""
        with self._store.read() as connection:
            found = reading.document_text(connection, document_id)
        if found is None:
            raise NotFound(f"There is no document {document_id!r}.")
        return found

    def stats(self, collection: Collection) -> CollectionStats:
        """Counts of a collection, exact at this moment."""
        self._own(collection)
        with self._store.read() as connection:
            row = reading.collection_row(connection, collection.id)
            if row is None:
                return CollectionStats(0, 0, 0, 0, 0, FTS5)
            totals = reading.totals(connection, row.number)
            engine = self._memory.lexical.name(connection, row)
            lag = outbox.vector_lag(connection, row.number)
        return CollectionStats(*totals, row.index_version, lag, engine, ("vectors-lag",) if lag else ())

    def index_versions(self, collections: Sequence[Collection]) -> list[int]:
        """Of each collection; a version rises whenever a document comes, changes or goes."""
        with self._store.read() as connection:
            rows = [reading.collection_row(connection, one.id) for one in collections if self._own(one)]
        return [row.index_version if row else 0 for row in rows]

    # --- finding ---

    def search(
        self,
        collections: Sequence[Collection],
        query: str,
        *,
        k: int = 50,
        dense: int = 25,
        lexical: int = 25,
        exclude: Set[str] = frozenset(),
        filter: Mapping[str, JsonValue] | None = None,
        missing_rank: int | None = None,
    ) -> SearchHits:
        """The best `k` chunks by reciprocal rank fusion of the `dense` nearest and the `lexical` best by words.

        `exclude` names chunk ids that are not wanted: they take no place. A leg that does not hold a chunk gives it
        nothing, or counts as `missing_rank`. Over several collections every leg of each counts by rank, so collections with
        different embedders can be searched together. `index_version` and `vector_lag` are sums. Degraded: `vectors-unavailable`.
        """
        for collection in collections:
            self._own(collection)
        search, limits = self._new_search(), {"k": k, "dense": dense, "lexical": lexical}
        return search.run(collections, query, **limits, exclude=exclude, filter=filter, missing_rank=missing_rank)

    def grep(
        self,
        collections: Sequence[Collection],
        pattern: str,
        *,
        limit: int = 5,
        filter: Mapping[str, JsonValue] | None = None,
    ) -> list[Chunk]:
        """The first `limit` chunks with a match, in the order in which they were stored. RE2 syntax; case counts.

        `InvalidRequest` for a pattern that RE2 refuses (with its reason), that is too large, or that takes too long.
        """
        grep = Grep(pattern)
        compile_filter(filter or {})
        found: list[Chunk] = []
        with self._store.read() as connection:
            for collection in collections:
                self._own(collection)
                row = reading.collection_row(connection, collection.id)
                if row is None or len(found) >= limit:
                    continue
                scope = self._memory.scopes.get(connection, row, filter)
                rows = grep.rows(connection, row, scope, limit - len(found))
                chunks = reading.chunks_by_row(connection, rows)
                found.extend(chunks[one] for one in rows)
        return found

    def insight(
        self, collections: Sequence[Collection], filter: Mapping[str, JsonValue] | None = None
    ) -> CorpusInsight:
        """What a policy without a language model may know of these collections beyond searching them."""
        for collection in collections:
            self._own(collection)
        return CorpusInsight(self._store, self._memory, collections, filter, self._new_search())

    def _new_search(self) -> Search:
        parts, recheck = self._parts, self._drainer.recheck
        return Search(self._store, parts.vectors, parts.embedders, self._memory, self.workspace_id, recheck)

    def read(self, collections: Sequence[Collection], document_id: str) -> list[Chunk]:
        """All chunks of a document in its order. Raises `NotFound` when it is in none of the collections."""
        allowed = {collection.id for collection in collections if self._own(collection)}
        with self._store.read() as connection:
            chunks = reading.chunks_of_document(connection, document_id)
        if not chunks or chunks[0].collection_id not in allowed:
            raise NotFound(f"There is no document {document_id!r} in these collections.")
        return chunks

    def chunks(self, collections: Sequence[Collection], chunk_ids: Sequence[str]) -> list[Chunk]:
        """Chunks by id in the order asked for; ids that are unknown, deleted or elsewhere are left out."""
        allowed = {collection.id for collection in collections if self._own(collection)}
        with self._store.read() as connection:
            rows = reading.rows_of_chunk_ids(connection, chunk_ids)
            chunks = reading.chunks_by_row(connection, rows.values())
        found = (chunks[rows[one]] for one in dict.fromkeys(chunk_ids) if one in rows)
        return [chunk for chunk in found if chunk.collection_id in allowed]

    # --- upkeep ---

    def maintain(self) -> int:
        """Brings vector index, posting lists and grep's pre-filter up to date. Returns how many vector changes it applied.

        Once an hour it also deletes old cached vectors that nothing uses.
        """
        self._drainer.catch_up_grep()
        if time.monotonic() - self._swept_at > SWEEP_SECONDS:
            self._swept_at = time.monotonic()
            with self._store.write() as connection:
                writing.forget_unused_vectors(connection, older_than_seconds=UNUSED_VECTOR_SECONDS)
        applied = drain_quietly(self._drainer)
        catch_up_postings(self._store)
        return applied

    def drop_everything(self) -> None:
        """Empties the workspace and marks it for removal."""
        with self._store.read() as connection:
            ids = [row.id for row in reading.collection_rows(connection)]
        self._drop(ids)
        with self._store.write() as connection:
            outbox.mark_dropped(connection)
        drain_quietly(self._drainer)

    def may_be_removed(self) -> bool:
        """Whether the workspace was dropped and none of its vector indexes is left."""
        with self._store.read() as connection:
            return outbox.is_dropped(connection) and not outbox.orphans(connection)

    def close(self) -> None:
        """Closes the file."""
        self._store.close()

    def _drop(self, collection_ids: Sequence[str]) -> None:
        with self._store.write() as connection:
            for row in [one for one in reading.collection_rows(connection) if one.id in collection_ids]:
                names = [outbox.vector_name(self.workspace_id, row.id, row.generation + one) for one in (0, 1)]
                writing.drop_collection(connection, row, names)

    def _own(self, collection: Collection) -> bool:
        if collection.workspace_id != self.workspace_id:
            raise NotFound(f"There is no collection {collection.name!r} in this workspace.")
        return True
