"""What becomes of listed items: compared with what is stored, fetched when they differ, ingested in batches, remembered.
It deletes nothing and does not know where the listing stands."""

import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from pydantic import JsonValue

from hopnode.connectors.base import Connector, Content, Failure, Gone, ItemRef, Unchanged
from hopnode.worker.corpus.corpus import Corpora
from hopnode.worker.corpus.parsing.parser import PIPELINE_VERSION
from hopnode.worker.corpus.records import IngestOutcome, NewDocument
from hopnode.worker.queue.job_context import JobContext
from hopnode.worker.settings import WorkerSettings
from hopnode.worker.store.collections import get_collection_by_id
from hopnode.worker.store.database import Database
from hopnode.worker.store.sources.sources import Item, Source, Sync, get_items, save_items
from hopnode.worker.syncs.tally import Tally

WINDOW_ITEMS = 200
WINDOW_BYTES = 16_000_000
WINDOW_SECONDS = 2.0
BATCH_DOCUMENTS = 8
BATCH_BYTES = 500_000

_WORTH_ANOTHER_TRY = frozenset({"timeout", "out-of-memory"})


class ItemState(StrEnum):
    """State of a stored item. Its document stays what it was in all states but `stored`."""

    STORED = "stored"
    REJECTED = "rejected"  # the bytes are there and make no document; tried again when they change
    FAILED = "failed"  # never reached so far
    GONE = "gone"  # the source took it back; forgotten when the sync ends


class SyncRuntime(Protocol):
    """What a sync needs of the process that it runs in."""

    @property
    def settings(self) -> WorkerSettings: ...  # noqa: D102
    @property
    def db(self) -> Database: ...  # noqa: D102
    @property
    def corpora(self) -> Corpora: ...  # noqa: D102

    def connector_for(self, source: Source) -> Connector:
        """A connector bound to the source's configuration; the caller closes it."""
        ...


@dataclass(frozen=True)
class SyncRun:
    """The surroundings of one run of a sync."""

    runtime: SyncRuntime
    context: JobContext
    source: Source
    sync: Sync
    connector: Connector
    tally: Tally


@dataclass(frozen=True)
class _Fetched:
    ref: ItemRef
    known: Item | None
    content: Content
    content_hash: str


class Window:
    """Listed items that wait to be compared: few enough for one query, and for what a connector keeps between list and fetch."""

    def __init__(self, run: SyncRun) -> None:
        self._run = run
        self._refs: dict[str, ItemRef] = {}
        self._bytes = 0
        self._opened = 0.0
        self._batch: list[_Fetched] = []
        self._settled: list[Item] = []

    def add(self, ref: ItemRef) -> None:
        """Takes one in."""
        if not self._refs:
            self._opened = time.monotonic()
        self._refs[ref.item_id] = ref
        self._bytes += ref.size or 0

    @property
    def due(self) -> bool:
        """Whether it is time to flush."""
        if not self._refs:
            return False
        full = len(self._refs) >= WINDOW_ITEMS or self._bytes >= WINDOW_BYTES
        return full or time.monotonic() - self._opened >= WINDOW_SECONDS

    def flush(self) -> None:
        """Brings every item of the window to its end. Raises what `context.check` raises, between any two items."""
        refs, self._refs, self._bytes = self._refs, {}, 0
        known = get_items(self._run.runtime.db, self._run.source.id, refs)
        for ref in refs.values():
            self._run.context.check()
            item = self._settle(ref, known.get(ref.item_id))
            if item is not None:
                self._settled.append(item)
            if len(self._batch) >= BATCH_DOCUMENTS or sum(len(one.content.data) for one in self._batch) >= BATCH_BYTES:
                self._commit()
            self._run.tally.tell()
        if refs:
            self._commit()

    def _settle(self, ref: ItemRef, known: Item | None) -> Item | None:
        """The item to remember, or None when it goes to the batch or was never known."""
        first_time = known is None or known.seen_sync != self._run.sync.id
        if known is not None and _is_current(ref, known):
            if first_time:
                self._count_current(known)
            return self._seen(replace(known, error=None) if known.state == ItemState.STORED else known)
        fetched = self._run.connector.fetch(ref, known.version if known and _is_comparable(known) else None)
        if isinstance(fetched, Gone):
            return self._gone(known, fetched)
        if first_time:
            self._run.tally.count("listed")
        if isinstance(fetched, Failure):
            return self._failed(ref, known, fetched)
        if isinstance(fetched, Unchanged):
            return self._unchanged(known, ref.version)
        return self._changed(ref, known, fetched)

    def _count_current(self, known: Item) -> None:
        tally = self._run.tally
        tally.count("listed")
        if known.state == ItemState.STORED:
            tally.count("unchanged")
        else:  # rejected before, and the same bytes are rejected again
            error = known.error or {}
            reason, message = str(error.get("reason")), str(error.get("message"))
            tally.fail(known.item_id, reason, message, unreachable=False)

    def _gone(self, known: Item | None, gone: Gone) -> Item | None:
        if known is None:
            self._run.tally.skip(gone.reason)
            return None
        return replace(known, state=ItemState.GONE, error={"reason": gone.reason})

    def _failed(self, ref: ItemRef, known: Item | None, failure: Failure) -> Item:
        self._run.tally.fail(ref.item_id, failure.reason, failure.message, unreachable=True)
        kept = known or _new_item(ref, ItemState.FAILED)
        state = ItemState.FAILED if kept.state == ItemState.GONE else kept.state
        error = {"reason": failure.reason, "message": failure.message[:500]}
        return replace(self._seen(kept), state=state, error=error)

    def _unchanged(self, known: Item | None, version: str | None) -> Item | None:
        self._run.tally.count("unchanged")
        return None if known is None else replace(self._seen(known), version=version or known.version, error=None)

    def _changed(self, ref: ItemRef, known: Item | None, content: Content) -> Item | None:
        self._run.tally.count("bytes", len(content.data))
        content_hash = hashlib.sha256(content.data).hexdigest()
        version = content.version or ref.version
        if known is not None and _is_comparable(known) and known.content_hash == content_hash:
            return self._unchanged(known, version)
        if len(content.data) > self._run.runtime.settings.max_document_bytes:
            outcome = IngestOutcome(
                ref.item_id, "failed", reason="too-large", message=f"The document has {len(content.data):,} bytes."
            )
            return self._rejected(_Fetched(ref, known, content, content_hash), outcome)
        self._batch.append(_Fetched(ref, known, content, content_hash))
        return None

    # --- batches -------------------------------------------------------------------------------------------------------

    def _commit(self) -> None:
        """Documents first, then the memory of their items, then the counts: a crash in between repeats this batch only."""
        run = self._run
        batch, self._batch = self._batch, []
        settled, self._settled = self._settled, []
        if batch:
            settled += [self._stored(one, outcome) for one, outcome in zip(batch, self._ingest(batch), strict=True)]
        run.context.check()
        save_items(run.runtime.db, run.source.id, settled)
        run.tally.save()

    def _ingest(self, batch: Sequence[_Fetched]) -> Sequence[IngestOutcome]:
        run, source = self._run, self._run.source
        collection = get_collection_by_id(run.runtime.db, source.workspace_id, source.collection_id)
        corpus = run.runtime.corpora.open(source.workspace_id)
        return corpus.ingest(collection, [_document(one, source.name) for one in batch])

    def _stored(self, one: _Fetched, outcome: IngestOutcome) -> Item:
        if outcome.status == "failed":
            return self._rejected(one, outcome)
        is_new = one.known is None or one.known.state not in (ItemState.STORED, ItemState.GONE)
        same_text = outcome.status == "unchanged" or not (outcome.chunks_added or outcome.chunks_removed)
        name = "added" if is_new else "unchanged" if same_text else "changed"
        self._run.tally.count(name)
        return self._remembered(one, ItemState.STORED)

    def _rejected(self, one: _Fetched, outcome: IngestOutcome) -> Item:
        reason, message = outcome.reason or "rejected", outcome.message or ""
        self._run.tally.fail(one.ref.item_id, reason, message, unreachable=False)
        item = replace(self._remembered(one, ItemState.REJECTED), error={"reason": reason, "message": message[:500]})
        return replace(item, version=None) if reason in _WORTH_ANOTHER_TRY else item

    def _remembered(self, one: _Fetched, state: ItemState) -> Item:
        version = one.content.version or one.ref.version
        item = self._seen(_new_item(one.ref, state))
        return replace(item, version=version, content_hash=one.content_hash)

    def _seen(self, item: Item) -> Item:
        return replace(item, seen_sync=self._run.sync.id, missed_syncs=0)


def _is_comparable(item: Item) -> bool:
    """Whether the stored document is what our pipeline would make of the stored version."""
    return item.state == ItemState.STORED and item.pipeline_version == PIPELINE_VERSION


def _is_current(ref: ItemRef, item: Item) -> bool:
    """Whether there is nothing to fetch: an equal version, stored or known to make no document."""
    settled = item.state in (ItemState.STORED, ItemState.REJECTED) and item.pipeline_version == PIPELINE_VERSION
    return settled and ref.version is not None and ref.version == item.version


def _new_item(ref: ItemRef, state: ItemState) -> Item:
    return Item(ref.item_id, None, None, ref.item_id, PIPELINE_VERSION, None, 0, state)


def _document(one: _Fetched, source_name: str) -> NewDocument:
    content, ref = one.content, one.ref
    metadata: Mapping[str, JsonValue] = {**ref.metadata, "source": source_name}
    return NewDocument(
        key=ref.item_id,
        raw=content.data,
        media_type=content.media_type or ref.media_type,
        filename=content.filename,
        title=content.title,
        url=content.url or ref.url,
        metadata=metadata,
    )
