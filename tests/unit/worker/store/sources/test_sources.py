"""Sources, their syncs and items on both engines: one open sync a source, due periods, and the walls between workspaces."""

import secrets
import threading
import time
from dataclasses import replace

import pytest
import sqlalchemy as sa

from hopnode.worker.errors import Conflict, InvalidRequest, NotFound
from hopnode.worker.store.collections import Collection, create_collection, delete_collection
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs.jobs import Job, JobStatus, cancel, claim_next, finish, get_job, list_jobs
from hopnode.worker.store.sources import sources as store
from hopnode.worker.store.sources.sources import Item, Source, SyncCounts
from hopnode.worker.store.tables import items, syncs
from hopnode.worker.store.workspaces import Workspace, create_workspace


@pytest.fixture
def acme(database: Database) -> Workspace:
    return create_workspace(database, "acme")


@pytest.fixture
def other(database: Database) -> Workspace:
    return create_workspace(database, "other")


@pytest.fixture
def docs(database: Database, acme: Workspace) -> Collection:
    return create_collection(database, acme.id, "docs")


@pytest.fixture
def site(database: Database, acme: Workspace, docs: Collection) -> Source:
    return store.create_source(
        database, acme.id, docs.id, kind="website", name="Handbook", config={"url": "https://example.com/"}
    )


def _item(item_id: str, **changes: object) -> Item:
    item = Item(item_id, '"v1"', "c" * 64, f"doc-{item_id}", 1, None, 0, "stored")
    return replace(item, **changes)


def _run_next(database: Database) -> Job:
    job = claim_next(database, role="sync", lease_seconds=60, workspace_limit=10)
    assert job is not None
    return job


def test_a_source_comes_back_as_it_was_made(
    database: Database, acme: Workspace, docs: Collection, site: Source
) -> None:
    assert (site.kind, site.name, site.config) == ("website", "Handbook", {"url": "https://example.com/"})
    assert (site.workspace_id, site.collection_id, site.state, site.sync_every_seconds) == (acme.id, docs.id, {}, None)
    assert store.get_source(database, acme.id, site.id) == site
    assert store.list_sources(database, acme.id) == [site]


def test_sources_are_listed_by_collection(database: Database, acme: Workspace, docs: Collection, site: Source) -> None:
    more = create_collection(database, acme.id, "more")
    blog = store.create_source(database, acme.id, more.id, kind="website", name="Blog", config={})
    assert store.list_sources(database, acme.id) == [blog, site]
    assert store.list_sources(database, acme.id, docs.id) == [site]
    assert store.list_sources(database, acme.id, more.id) == [blog]


def test_nothing_of_a_workspace_is_seen_or_changed_from_another(
    database: Database, acme: Workspace, other: Workspace, docs: Collection, site: Source
) -> None:
    sync = store.create_sync(database, acme.id, site.id)
    assert store.list_sources(database, other.id) == []
    assert store.list_sources(database, other.id, docs.id) == []
    assert store.list_syncs(database, other.id, site.id) == []
    for attempt in (
        lambda: store.create_source(database, other.id, docs.id, kind="website", name="sly", config={}),
        lambda: store.get_source(database, other.id, site.id),
        lambda: store.update_source(database, other.id, site.id, name="sly"),
        lambda: store.update_source(database, other.id, site.id),
        lambda: store.delete_source(database, other.id, site.id),
        lambda: store.create_sync(database, other.id, site.id),
        lambda: store.get_sync(database, other.id, sync.id),
    ):
        with pytest.raises(NotFound):
            attempt()
    assert store.get_source(database, acme.id, site.id) == site


def test_an_unknown_workspace_is_not_found(database: Database, docs: Collection) -> None:
    for attempt in (
        lambda: store.create_source(database, "none", docs.id, kind="website", name="x", config={}),
        lambda: store.list_sources(database, "none"),
        lambda: store.create_sync(database, "none", "none"),
    ):
        with pytest.raises(NotFound):
            attempt()


def test_a_source_name_is_taken_once_in_a_workspace(
    database: Database, acme: Workspace, docs: Collection, site: Source
) -> None:
    with pytest.raises(Conflict, match="Handbook"):
        store.create_source(database, acme.id, docs.id, kind="website", name="Handbook", config={})
    blog = store.create_source(database, acme.id, docs.id, kind="website", name="Blog", config={})
    with pytest.raises(Conflict, match="Handbook"):
        store.update_source(database, acme.id, blog.id, name="Handbook")


@pytest.mark.parametrize(("name", "period"), [("", None), ("a\nb", None), ("x" * 129, None), ("ok", 0), ("ok", 10**9)])
def test_a_source_needs_a_name_and_a_period_within_bounds(
    database: Database, acme: Workspace, docs: Collection, name: str, period: int | None
) -> None:
    with pytest.raises(InvalidRequest):
        store.create_source(database, acme.id, docs.id, kind="website", name=name, config={}, sync_every_seconds=period)


def test_an_update_changes_only_what_it_names(database: Database, acme: Workspace, site: Source) -> None:
    store.save_source_state(database, site.id, {"etag": "a"})
    changed = store.update_source(database, acme.id, site.id, sync_every_seconds=3600)
    assert (changed.name, changed.config, changed.state) == ("Handbook", site.config, {"etag": "a"})
    assert changed.sync_every_seconds == 3600
    assert changed.updated_at >= site.updated_at
    changed = store.update_source(database, acme.id, site.id, sync_every_seconds=None, name="Manual")
    assert (changed.name, changed.sync_every_seconds) == ("Manual", None)


def test_another_configuration_drops_the_memory_of_the_old_one(
    database: Database, acme: Workspace, site: Source
) -> None:
    store.save_source_state(database, site.id, {"etag": "a"})
    changed = store.update_source(database, acme.id, site.id, config={"url": "https://example.org/"})
    assert (changed.config, changed.state) == ({"url": "https://example.org/"}, {})


def test_a_deleted_source_takes_its_items_and_syncs_along(database: Database, acme: Workspace, site: Source) -> None:
    sync = store.create_sync(database, acme.id, site.id)
    store.save_items(database, site.id, [_item("a")])
    assert store.delete_source(database, acme.id, site.id) == site
    with database.read() as connection:
        for table in (items, syncs):
            assert connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one() == 0
    for attempt in (
        lambda: store.get_source(database, acme.id, site.id),
        lambda: store.delete_source(database, acme.id, site.id),
        lambda: store.get_sync_by_job(database, sync.job_id),
        lambda: store.note_progress(database, sync.id, SyncCounts(), None),
        lambda: store.end_sync(database, sync.id, SyncCounts(), None),
        lambda: store.save_source_state(database, site.id, {}),
        lambda: store.save_items(database, site.id, [_item("a")]),
    ):
        with pytest.raises(NotFound):
            attempt()


def test_a_deleted_collection_takes_its_sources_along(
    database: Database, acme: Workspace, docs: Collection, site: Source
) -> None:
    store.create_sync(database, acme.id, site.id)
    delete_collection(database, acme.id, docs.name)
    assert store.list_sources(database, acme.id) == []


def test_a_sync_is_queued_with_its_job(database: Database, acme: Workspace, site: Source) -> None:
    sync = store.create_sync(database, acme.id, site.id)
    job = get_job(database, acme.id, sync.job_id)
    assert (job.kind, job.role, job.status, job.max_attempts) == ("sync", "sync", JobStatus.QUEUED, 5)
    assert job.request == {"source_id": site.id, "sync_id": sync.id, "confirm_deletes": False}
    assert (sync.counts, sync.resume, sync.note, sync.ended_at) == (SyncCounts(), None, None, None)
    assert store.get_sync(database, acme.id, sync.id) == sync
    assert store.get_sync_by_job(database, job.id) == sync


def test_a_source_has_one_open_sync_at_most(database: Database, acme: Workspace, site: Source) -> None:
    first = store.create_sync(database, acme.id, site.id)
    with pytest.raises(Conflict) as caught:
        store.create_sync(database, acme.id, site.id)
    assert caught.value.details == {"sync_id": first.id}
    running = _run_next(database)
    with pytest.raises(Conflict):
        store.create_sync(database, acme.id, site.id)
    assert [job.id for job in list_jobs(database, acme.id, kind="sync", limit=10)] == [first.job_id]
    assert finish(database, running, JobStatus.SUCCEEDED, result={})
    second = store.create_sync(database, acme.id, site.id)
    cancel(database, acme.id, second.job_id)
    third = store.create_sync(database, acme.id, site.id)
    assert [sync.id for sync in store.list_syncs(database, acme.id, site.id)] == [third.id, second.id, first.id]


def test_of_many_that_ask_at_once_one_gets_the_sync(database: Database, acme: Workspace, site: Source) -> None:
    together = threading.Barrier(6)
    outcomes: list[str] = []

    def ask() -> None:
        together.wait(10)
        try:
            store.create_sync(database, acme.id, site.id)
            outcomes.append("made")
        except Conflict:
            outcomes.append("refused")

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(outcomes) == ["made", *["refused"] * 5]
    assert len(list_jobs(database, acme.id, kind="sync", limit=10)) == 1


def test_progress_and_the_end_of_a_sync_are_kept(database: Database, acme: Workspace, site: Source) -> None:
    sync = store.create_sync(database, acme.id, site.id)
    counts = SyncCounts(listed=5, added=2, bytes=10_000_000_000)
    store.note_progress(database, sync.id, counts, {"page": 2})
    halfway = store.get_sync(database, acme.id, sync.id)
    assert (halfway.counts, halfway.resume, halfway.ended_at) == (counts, {"page": 2}, None)
    last = replace(counts, listed=9, deleted=1)
    store.end_sync(database, sync.id, last, "needs-confirmation")
    ended = store.get_sync(database, acme.id, sync.id)
    assert (ended.counts, ended.resume, ended.note) == (last, None, "needs-confirmation")
    assert ended.ended_at is not None
    assert ended.ended_at >= ended.created_at


def test_no_resume_token_is_null_and_not_a_json_text(database: Database, acme: Workspace, site: Source) -> None:
    sync = store.create_sync(database, acme.id, site.id)
    store.note_progress(database, sync.id, SyncCounts(), None)
    store.save_items(database, site.id, [_item("a")])
    with database.read() as connection:
        assert connection.execute(sa.select(syncs.c.id).where(syncs.c.resume.is_(sa.null()))).scalar_one() == sync.id
        assert connection.execute(sa.select(items.c.item_id).where(items.c.error.is_(sa.null()))).scalar_one() == "a"


def test_counts_survive_json_and_an_older_form(database: Database) -> None:
    counts = SyncCounts(1, 2, 3, 4, 5, 6, 7, 8)
    assert SyncCounts.from_json(counts.to_json()) == counts
    assert SyncCounts.from_json({"listed": 3, "other": 1}) == SyncCounts(listed=3)


def test_items_are_remembered_and_replaced(database: Database, site: Source) -> None:
    a, b = _item("a", seen_sync="s1"), _item("b", version=None, error={"reason": "timeout"}, state="failed")
    store.save_items(database, site.id, [a, b])
    found = store.get_items(database, site.id, ["a", "b", "c"])
    assert {key: replace(item, updated_at=0.0) for key, item in found.items()} == {"a": a, "b": b}
    assert abs(found["a"].updated_at - time.time()) < 5
    newer = replace(b, version='"v2"', state="stored", error=None, missed_syncs=1)
    store.save_items(database, site.id, [newer])
    assert replace(store.get_items(database, site.id, ["b"])["b"], updated_at=0.0) == newer
    store.save_items(database, site.id, [])


def test_the_same_item_of_two_sources_is_two_items(
    database: Database, acme: Workspace, docs: Collection, site: Source
) -> None:
    blog = store.create_source(database, acme.id, docs.id, kind="website", name="Blog", config={})
    store.save_items(database, site.id, [_item("a")])
    assert store.get_items(database, blog.id, ["a"]) == {}
    assert store.forget_items(database, blog.id, ["a"]) == 0
    assert list(store.get_items(database, site.id, ["a"])) == ["a"]


def test_missing_items_are_those_that_this_sync_did_not_list(database: Database, site: Source) -> None:
    store.save_items(
        database, site.id, [_item("a", seen_sync="now"), _item("b", seen_sync="before"), _item("c", seen_sync=None)]
    )
    assert [item.item_id for item in store.missing_items(database, site.id, "now")] == ["b", "c"]
    assert store.forget_items(database, site.id, ["b", "c", "unknown"]) == 2
    assert store.missing_items(database, site.id, "now") == []


def test_thousands_of_items_go_in_and_out_in_batches(database: Database, site: Source) -> None:
    names = [f"https://example.com/{number}" for number in range(1201)]
    store.save_items(database, site.id, [_item(name) for name in names])
    assert len(store.get_items(database, site.id, names)) == 1201
    assert len(store.missing_items(database, site.id, "now")) == 1201
    assert store.forget_items(database, site.id, names) == 1201


def test_items_are_saved_all_or_none(database: Database, site: Source) -> None:
    for bad in (_item("x" * 2049), _item("b", document_key="é" * 1025), _item("\0", document_key="\ud800")):
        with pytest.raises(InvalidRequest):
            store.save_items(database, site.id, [_item("a"), bad])
        assert store.get_items(database, site.id, ["a"]) == {}
    store.save_items(database, site.id, [_item(secrets.token_hex(1024), document_key="é" * 1024)])


def test_a_version_that_is_too_long_is_not_kept(database: Database, site: Source) -> None:
    store.save_items(database, site.id, [_item("a", version="v" * 513), _item("b", version="v" * 512)])
    found = store.get_items(database, site.id, ["a", "b"])
    assert (found["a"].version, found["b"].version) == (None, "v" * 512)


def test_a_source_is_due_when_its_period_has_passed_and_no_sync_is_open(
    database: Database, acme: Workspace, docs: Collection, site: Source
) -> None:
    hourly = store.create_source(
        database, acme.id, docs.id, kind="website", name="Hourly", config={}, sync_every_seconds=3600
    )
    assert store.due_sources(database) == [hourly]  # never synced; the other one has no period
    sync = store.create_sync(database, acme.id, hourly.id)
    assert store.due_sources(database) == []
    finish(database, _run_next(database), JobStatus.FAILED, error={"code": "x"})
    assert store.due_sources(database) == []
    _age(database, sync.id, 3601)
    assert store.due_sources(database) == [hourly]
    store.create_sync(database, acme.id, site.id)
    assert store.due_sources(database) == [hourly]
    _age(database, sync.id, -10)  # a clock that was set back is no reason to hurry
    assert store.due_sources(database) == []


def _age(database: Database, sync_id: str, seconds: float) -> None:
    with database.write() as connection:
        began = database.now(connection) - seconds
        connection.execute(syncs.update().where(syncs.c.id == sync_id).values(created_at=began))
