"""Forgets what a source does not have any more, after its listing: never more than the brake lets pass. It lists nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from hopnode.worker.store.collections import get_collection_by_id
from hopnode.worker.store.sources.shared_keys import keys_of_other_sources
from hopnode.worker.store.sources.sources import Item, forget_items, missing_items, save_items
from hopnode.worker.syncs.items import ItemState, SyncRun

BRAKE_ITEMS = 20
BRAKE_SHARE = 0.3
BATCH = 100

NEEDS_CONFIRMATION = "needs-confirmation"


def forget_missing(run: SyncRun, *, complete: bool) -> str | None:
    """Deletes the documents of items that are gone; returns the slug `needs-confirmation` when the brake held them all back.

    Gone items (404, 410, withdrawn) go after any listing; absent ones only after `deletes_after_missed` complete listings in
    a row. The brake: more than 20 items and more than 30 % of the source at once are not deleted unless the request of the job
    says `"confirm_deletes": true`. Raises what `context.check` raises, between batches.
    """
    missing = missing_items(run.runtime.db, run.source.id, run.sync.id)
    doomed = [item for item in missing if item.state == ItemState.GONE]
    if complete:
        absent = _count_misses(run, [item for item in missing if item.state != ItemState.GONE])
        doomed += [item for item in absent if item.missed_syncs >= run.connector.deletes_after_missed]
    counts = run.tally.counts
    total = len(missing) + counts.unchanged + counts.changed + counts.added + counts.failed
    confirmed = run.context.job.request.get("confirm_deletes") is True
    if len(doomed) > max(BRAKE_ITEMS, BRAKE_SHARE * total) and not confirmed:
        run.context.step("deletes_held_back", {"items": len(doomed), "of": total})
        return NEEDS_CONFIRMATION
    _forget(run, doomed)
    return None


def _count_misses(run: SyncRun, absent: Sequence[Item]) -> list[Item]:
    """One miss more for each item, once a sync: an attempt after a crash finds its mark and counts nothing."""
    mark = {"reason": "not-listed", "sync": run.sync.id}
    fresh = [
        replace(item, missed_syncs=item.missed_syncs + 1, error=mark)
        for item in absent
        if not _marked(item, run.sync.id)
    ]
    for batch in _batches(fresh, 500):
        run.context.check()
        save_items(run.runtime.db, run.source.id, batch)
    return fresh + [item for item in absent if _marked(item, run.sync.id)]


def _marked(item: Item, sync_id: str) -> bool:
    return (item.error or {}).get("sync") == sync_id


def _forget(run: SyncRun, doomed: Sequence[Item]) -> None:
    """Documents first: an item without its document is harmless, a document without its item would stay for ever.

    A document that another source of the collection has as well stays.
    """
    if not doomed:
        return
    source, db = run.source, run.runtime.db
    corpus = run.runtime.corpora.open(source.workspace_id)
    collection = get_collection_by_id(db, source.workspace_id, source.collection_id)
    for batch in _batches(doomed, BATCH):
        run.context.check()
        keys = [item.document_key for item in batch]
        shared = keys_of_other_sources(db, source.id, keys)
        corpus.delete(collection, [key for key in keys if key not in shared])
        run.tally.count("deleted", forget_items(db, source.id, [item.item_id for item in batch]))
        run.tally.tell()


def _batches(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
