import time
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Timer

import pytest
from support.data.memory_source import Bench

from hopnode.connectors.base import Complete, Content, Partial
from hopnode.connectors.errors import EgressBlocked, SourceUnreachable
from hopnode.worker.corpus.parsing.parser import PIPELINE_VERSION
from hopnode.worker.errors import JobCancelled, JobInterrupted, LeaseLost, NotFound, SourceUnavailable, SyncFailed
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.sources import sources


@pytest.fixture
def bench(sqlite_database: Database, tmp_path: Path) -> Generator[Bench]:
    with ExitStack() as closing:
        yield Bench(sqlite_database, tmp_path, closing)


@pytest.fixture
def bench_on_both(database: Database, tmp_path: Path) -> Generator[Bench]:
    with ExitStack() as closing:
        yield Bench(database, tmp_path, closing)


def texts(*numbers: int) -> dict[str, str]:
    return {f"file-{n:03}": f"The {n}th file tells of harbour {n} and its ferry." for n in numbers}


def outcome(bench: Bench) -> dict[str, int]:
    """The counts of the last sync that are not 0, bytes left out."""
    return {k: v for k, v in bench.last().counts.to_json().items() if v and k != "bytes"}  # type: ignore[misc]


# --- plain runs ------------------------------------------------------------------------------------------------------------


def test_a_first_sync_stores_every_item_and_says_so(bench: Bench) -> None:
    bench.outside.files = texts(*range(20))
    result = bench.sync()
    assert bench.stored() == set(bench.outside.files)
    assert bench.text("file-007") == bench.outside.files["file-007"]
    document = bench.corpus.document(bench.collection, "file-007")
    assert (document.title, document.url) == ("Title of file-007", "memory://file-007")
    assert document.metadata == {"source": "memory"}
    assert outcome(bench) == {"listed": 20, "added": 20}
    assert result["complete"] is True
    assert result["note"] is None
    assert result["counts"] == bench.last().counts.to_json()
    assert bench.last().ended_at is not None
    assert bench.last().counts.bytes == sum(map(len, bench.outside.files.values()))
    assert bench.outside.closed == 1


def test_a_second_sync_fetches_what_changed_and_nothing_else(bench: Bench) -> None:
    bench.outside.files = texts(*range(10))
    bench.sync()
    bench.outside.fetched.clear()
    bench.outside.files |= {"file-003": "Something new about the lighthouse.", "file-900": "A new file."}
    bench.sync()
    assert sorted(bench.outside.fetched) == ["file-003", "file-900"]
    assert bench.text("file-003") == "Something new about the lighthouse."
    assert outcome(bench) == {"listed": 11, "unchanged": 9, "changed": 1, "added": 1}


def test_the_state_of_a_listing_is_handed_to_the_next_one(bench: Bench) -> None:
    bench.sync()
    bench.sync()
    assert bench.outside.states == [{}, {"runs": 1}]


def test_without_versions_equal_bytes_count_as_unchanged(bench: Bench) -> None:
    bench.outside.files = texts(1, 2)
    bench.outside.versioned = False
    bench.sync()
    bench.sync()
    assert outcome(bench) == {"listed": 2, "unchanged": 2}
    assert len(bench.outside.fetched) == 4


@pytest.mark.slow
def test_a_new_version_of_the_same_text_is_remembered_and_counts_as_unchanged(bench: Bench) -> None:
    bench.outside.raw = {"page": Content(b"<p>The harbour opens at six.</p>", "text/html", "v1", title="Harbour")}
    bench.sync()
    bench.outside.raw = {
        "page": Content(b"<p>The harbour opens at six.</p><!-- 2 -->", "text/html", "v2", title="Harbour")
    }
    bench.sync()
    assert outcome(bench) == {"listed": 1, "unchanged": 1}
    assert bench.items()["page"].version == "v2"


def test_an_item_made_by_an_older_pipeline_is_made_again(bench: Bench) -> None:
    bench.outside.files = texts(1, 2)
    bench.sync()
    old = [replace(item, pipeline_version=PIPELINE_VERSION - 1) for item in bench.items().values()]
    sources.save_items(bench.db, bench.source.id, old)
    bench.outside.fetched.clear()
    bench.sync()
    assert bench.outside.fetched == ["file-001", "file-002"]
    assert {item.pipeline_version for item in bench.items().values()} == {PIPELINE_VERSION}


def test_the_same_id_listed_twice_is_stored_and_counted_once(bench: Bench) -> None:
    bench.outside.files = texts(1, 2)
    bench.outside.repeated = ["file-001"]
    bench.sync()
    assert outcome(bench) == {"listed": 2, "added": 2}
    assert bench.outside.fetched.count("file-001") == 1


@pytest.mark.slow
def test_a_sync_of_many_items_goes_through_windows_and_batches(bench: Bench) -> None:
    bench.outside.files = {f"n{n:04}": f"Short note number {n}." for n in range(450)}
    bench.sync()
    bench.sync()
    assert outcome(bench) == {"listed": 450, "unchanged": 450}
    assert len(bench.stored()) == 450


# --- failures as data ------------------------------------------------------------------------------------------------------


def test_an_item_that_cannot_be_fetched_is_kept_as_it_was(bench: Bench) -> None:
    bench.outside.files = texts(*range(10))
    bench.sync()
    bench.outside.failing = {"file-004": "http-500"}
    result = bench.sync()
    assert "file-004" in bench.stored()
    assert outcome(bench) == {"listed": 10, "unchanged": 9, "failed": 1}
    assert result["failed"] == {"http-500": 1}
    assert bench.items()["file-004"].error == {"reason": "http-500", "message": "file-004 does not answer."}
    assert bench.steps("item_failed") == [
        {"item": "file-004", "reason": "http-500", "message": "file-004 does not answer."}
    ]
    bench.outside.failing = {}
    bench.sync()
    assert outcome(bench) == {"listed": 10, "unchanged": 10}
    assert bench.items()["file-004"].error is None


@pytest.mark.slow
def test_a_document_that_cannot_be_read_is_recorded_with_its_reason_and_not_fetched_again(bench: Bench) -> None:
    bench.outside.files = texts(*range(3))
    bench.outside.raw = {"broken.pdf": Content(b"%PDF-1.7 not really", "application/pdf", "v1", filename="broken.pdf")}
    result = bench.sync()
    assert bench.stored() == set(bench.outside.files)
    assert outcome(bench) == {"listed": 4, "added": 3, "failed": 1}
    assert result["failed"] == {"corrupt": 1}
    bench.outside.fetched.clear()
    bench.sync()
    assert bench.outside.fetched == []
    assert outcome(bench) == {"listed": 4, "unchanged": 3, "failed": 1}, "it is still told about"
    bench.outside.raw = {"broken.pdf": Content(b"Mended, as text.", "text/plain", "v2")}
    bench.sync()
    assert "broken.pdf" in bench.stored()
    assert outcome(bench) == {"listed": 4, "unchanged": 3, "added": 1}


def test_a_document_over_the_limit_is_rejected(sqlite_database: Database, tmp_path: Path) -> None:
    with ExitStack() as closing:
        bench = Bench(sqlite_database, tmp_path, closing, max_document_bytes=100)
        bench.outside.files = {**texts(1, 2), "big": "x" * 101}
        assert bench.sync()["failed"] == {"too-large": 1}


def test_a_fifth_of_items_out_of_reach_fails_the_sync_keeps_its_counts_and_deletes_nothing(bench: Bench) -> None:
    bench.outside.files = texts(*range(10))
    bench.sync()
    del bench.outside.files["file-009"]
    bench.outside.failing = {"file-001": "timeout", "file-002": "timeout"}
    with pytest.raises(SyncFailed, match=r"2 of 9 items could not be fetched \(2 timeout\)"):
        bench.sync()
    assert outcome(bench) == {"listed": 9, "unchanged": 7, "failed": 2}
    assert bench.last().note == "sync-failed"
    assert "file-009" in bench.stored()


def test_fewer_than_a_fifth_out_of_reach_is_a_success(bench: Bench) -> None:
    bench.outside.files = texts(*range(11))
    bench.outside.failing = {"file-001": "timeout", "file-002": "timeout"}
    bench.sync()
    assert outcome(bench) == {"listed": 11, "added": 9, "failed": 2}


@pytest.mark.slow
def test_a_sync_that_could_store_nothing_at_all_is_no_success(bench: Bench) -> None:
    bench.outside.raw = {n: Content(b"%PDF-1.7 not really", "application/pdf", "v1") for n in ("a.pdf", "b.pdf")}
    with pytest.raises(SyncFailed, match="None of 2 items"):
        bench.sync()


def test_skipped_items_are_counted_by_reason(bench: Bench) -> None:
    bench.outside.files = texts(1)
    bench.outside.skipped = {"a": "needs-js", "b": "needs-js", "c": "robots"}
    result = bench.sync()
    assert result["skipped"] == {"needs-js": 2, "robots": 1}
    assert outcome(bench) == {"listed": 1, "added": 1, "skipped": 3}
    assert result["note"] == "needs-js"


# --- deletes ---------------------------------------------------------------------------------------------------------------


def test_what_a_complete_listing_misses_is_forgotten(bench: Bench) -> None:
    bench.outside.files = texts(*range(5))
    bench.sync()
    del bench.outside.files["file-002"]
    bench.sync()
    assert "file-002" not in bench.stored()
    assert "file-002" not in bench.items()
    assert bench.corpus.search([bench.collection], "harbour 2 ferry").hits
    assert all(hit.chunk.key != "file-002" for hit in bench.corpus.search([bench.collection], "harbour 2 ferry").hits)
    assert outcome(bench) == {"listed": 4, "unchanged": 4, "deleted": 1}


def test_where_two_misses_are_asked_for_one_is_not_enough_and_a_return_starts_over(bench: Bench) -> None:
    bench.outside.deletes_after_missed = 2
    bench.outside.files = texts(1, 2)
    bench.sync()
    away = {"file-002": bench.outside.files.pop("file-002")}
    bench.sync()
    assert "file-002" in bench.stored()
    bench.outside.files |= away
    bench.sync()
    bench.outside.files.pop("file-002")
    bench.sync()
    assert "file-002" in bench.stored()
    bench.sync()
    assert "file-002" not in bench.stored()


def test_an_item_that_is_gone_is_forgotten_in_the_same_sync_whatever_the_misses(bench: Bench) -> None:
    bench.outside.deletes_after_missed = 2
    bench.outside.files = texts(*range(5))
    bench.sync()
    bench.outside.gone = {"file-003", "never-known"}
    result = bench.sync()
    assert "file-003" not in bench.stored()
    assert outcome(bench) == {"listed": 4, "unchanged": 4, "deleted": 1, "skipped": 1}
    assert result["skipped"] == {"not-found": 1}
    bench.outside.gone = set()
    bench.sync()
    assert "file-003" in bench.stored()


@pytest.mark.parametrize("ending", [Partial("page-budget", {"kept": True}), None])
def test_a_listing_that_is_cut_short_deletes_nothing_but_what_is_gone(bench: Bench, ending: Partial | None) -> None:
    bench.outside.files = texts(*range(6))
    bench.sync()
    del bench.outside.files["file-002"]
    bench.outside.gone = {"file-004"}
    bench.outside.ending = ending
    for _ in range(3):
        result = bench.sync()
        assert result["complete"] is False
    assert "file-002" in bench.stored()
    assert "file-004" not in bench.stored()
    assert result["note"] == ("incomplete-page-budget" if ending else "incomplete-listing-ended")
    if ending:
        bench.sync()
        assert bench.outside.states[-1] == {"kept": True}


def test_an_item_that_is_skipped_now_is_forgotten_like_one_that_is_missed(bench: Bench) -> None:
    bench.outside.files = texts(*range(5))
    bench.sync()
    bench.outside.skipped = {"file-001": "robots"}
    bench.sync()
    assert "file-001" not in bench.stored()


def test_the_brake_holds_back_a_mass_delete_until_it_is_confirmed(bench: Bench) -> None:
    everything = texts(*range(60))
    bench.outside.files = dict(everything)
    bench.sync()
    bench.outside.files = texts(*range(39))
    result = bench.sync()
    assert result["note"] == bench.last().note == "needs-confirmation"
    assert bench.stored() == set(everything)
    assert outcome(bench) == {"listed": 39, "unchanged": 39}
    assert bench.steps("deletes_held_back") == [{"items": 21, "of": 60}]
    assert bench.sync()["note"] == "needs-confirmation", "it stays held back"
    assert bench.sync(confirm=True)["note"] is None
    assert bench.stored() == set(bench.outside.files)
    assert outcome(bench)["deleted"] == 21


@pytest.mark.parametrize(("before", "after"), [(100, 72), (30, 10)])
def test_the_brake_lets_a_small_share_and_a_small_number_pass(bench: Bench, before: int, after: int) -> None:
    bench.outside.files = texts(*range(before))
    bench.sync()
    bench.outside.files = texts(*range(after))
    assert bench.sync()["note"] is None
    assert outcome(bench)["deleted"] == before - after


def test_a_site_that_answers_not_found_to_everything_is_held_by_the_brake_too(bench: Bench) -> None:
    bench.outside.files = texts(*range(40))
    bench.sync()
    bench.outside.gone = {name for name in bench.outside.files if name != "file-000"}
    assert bench.sync()["note"] == "needs-confirmation"
    assert len(bench.stored()) == 40
    bench.outside.gone = set()
    bench.sync()
    assert len(bench.stored()) == 40
    assert outcome(bench)["listed"] == 40


def test_an_empty_listing_of_a_full_source_deletes_nothing(bench: Bench) -> None:
    bench.outside.files = texts(*range(25))
    bench.sync()
    bench.outside.files = {}
    assert bench.sync()["note"] == "needs-confirmation"
    assert len(bench.stored()) == 25


def test_a_document_that_another_source_has_as_well_stays(bench: Bench) -> None:
    bench.outside.files = texts(*range(4))
    bench.sync()
    twin = sources.create_source(
        bench.db, bench.workspace_id, bench.collection.id, kind="memory", name="twin", config={}
    )
    first, bench.source = bench.source, twin
    bench.outside.files = texts(1)
    bench.sync()
    bench.source = first
    bench.outside.files = texts(3)
    bench.sync()
    assert bench.stored() == {"file-001", "file-003"}
    bench.source = twin
    bench.outside.files = {}
    bench.sync()
    assert bench.stored() == {"file-003"}


# --- stops, crashes, other workers -----------------------------------------------------------------------------------------


def test_a_cancel_stops_a_sync_within_one_item_and_what_was_stored_stays(bench: Bench) -> None:
    bench.outside.files = texts(*range(50))
    bench.queue()
    context = bench.claim()

    def cancel(name: str) -> None:
        if name == "file-020":
            jobs.cancel(bench.db, bench.workspace_id, context.job.id)
            context.stop(JobCancelled("cancelled"))

    bench.outside.on_fetch = cancel
    with pytest.raises(JobCancelled):
        bench.run(context)
    assert bench.outside.fetched[-1] == "file-020"
    assert 8 <= len(bench.stored()) <= 20
    assert set(bench.items()) == bench.stored()
    assert bench.last().note == "cancelled"
    assert jobs.get_job(bench.db, bench.workspace_id, context.job.id).status == jobs.JobStatus.CANCELLED
    bench.outside.on_fetch = lambda name: None
    bench.sync()
    assert len(bench.stored()) == 50


def test_a_cancel_ends_a_long_wait_at_once(bench: Bench) -> None:
    bench.outside.files = texts(1, 2)
    bench.outside.wait_seconds = 60
    bench.queue()
    context = bench.claim()
    timer = Timer(0.2, lambda: jobs.cancel(bench.db, bench.workspace_id, context.job.id))
    timer.start()
    started = time.monotonic()
    with pytest.raises(JobCancelled):
        bench.run(context)
    assert time.monotonic() - started < 3
    timer.join()


def test_a_wait_is_kept(bench: Bench) -> None:
    bench.outside.files = texts(1, 2, 3)
    bench.outside.wait_seconds = 0.1
    started = time.monotonic()
    bench.sync()
    assert time.monotonic() - started >= 0.3


def test_a_worker_that_lost_its_lease_writes_nothing_more(bench: Bench) -> None:
    bench.outside.files = texts(*range(30))
    bench.queue()
    context = bench.claim(lease_seconds=30)

    def lose(name: str) -> None:
        if name == "file-010":
            context.stop(LeaseLost("lost"))

    bench.outside.on_fetch = lose
    with pytest.raises(LeaseLost):
        bench.run(context)
    assert set(bench.items()) <= set(texts(*range(10)))
    assert bench.last().ended_at is None


class Crash(BaseException):
    """What kill -9 is to a test in one process: nothing that the code under test could catch."""


@pytest.mark.parametrize("crash_at", ["file-003", "file-017", "file-039"])
@pytest.mark.parametrize("resume_every", [0, 10])
def test_after_a_crash_the_next_attempt_repeats_one_batch_and_loses_and_doubles_nothing(
    bench: Bench, crash_at: str, resume_every: int
) -> None:
    bench.outside.files = texts(*range(40))
    bench.outside.skipped = {"file-000-skip": "robots"}
    bench.outside.resume_every = resume_every
    bench.queue()
    first = bench.claim()

    def crash(name: str) -> None:
        if name == crash_at:
            raise Crash

    bench.outside.on_fetch = crash
    with pytest.raises(Crash):
        bench.run(first)
    bench.outside.on_fetch = lambda name: None
    done = set(bench.outside.fetched)
    bench.outside.fetched.clear()
    jobs.release(bench.db, first.job, error={"message": "crashed"}, delay_seconds=0)
    bench.run(bench.claim())
    assert bench.stored() == set(bench.outside.files)
    assert len(bench.items()) == 40
    assert len(done & set(bench.outside.fetched)) <= 8, "at most one batch is fetched again"
    assert outcome(bench) == {"listed": 40, "added": 40, "skipped": 1}
    if resume_every and crash_at > "file-009":
        assert bench.outside.tokens[1] is not None
        assert len(bench.outside.listed) < 41 + 20


@pytest.mark.slow
def test_add_change_delete_crash_and_brake_are_the_same_on_both_databases(bench_on_both: Bench) -> None:
    bench = bench_on_both
    bench.outside.files = texts(*range(50))
    bench.outside.resume_every = 15
    bench.queue()
    first = bench.claim()

    def crash(name: str) -> None:
        if name == "file-040":
            raise Crash

    bench.outside.on_fetch = crash
    with pytest.raises(Crash):
        bench.run(first)
    bench.outside.on_fetch = lambda name: None
    jobs.release(bench.db, first.job, error={"message": "crashed"}, delay_seconds=0)
    bench.run(bench.claim())
    assert outcome(bench) == {"listed": 50, "added": 50}
    bench.outside.files = texts(*range(1, 50)) | {"file-005": "Something new."}
    bench.sync()
    assert outcome(bench) == {"listed": 49, "unchanged": 48, "changed": 1, "deleted": 1}
    bench.outside.files = texts(1)
    assert bench.sync()["note"] == "needs-confirmation"
    assert len(bench.stored()) == 49


def test_a_crash_between_documents_and_memory_doubles_nothing(bench: Bench) -> None:
    bench.outside.files = texts(*range(5))
    bench.sync()
    sources.forget_items(bench.db, bench.source.id, ["file-001", "file-002"])
    bench.sync()
    assert len(bench.stored()) == 5
    assert set(bench.items()) == bench.stored()


def test_a_crash_during_deletes_counts_no_miss_twice(bench: Bench) -> None:
    bench.outside.deletes_after_missed = 2
    bench.outside.files = texts(*range(4))
    bench.sync()
    del bench.outside.files["file-002"]
    bench.outside.gone = {"file-003"}
    bench.queue()
    first = bench.claim()

    def crash() -> None:
        raise Crash

    bench.runtime.on_corpora = crash  # an unchanged listing needs no corpus before its deletes
    with pytest.raises(Crash):
        bench.run(first)
    bench.runtime.on_corpora = lambda: None
    assert bench.items()["file-002"].missed_syncs == 1
    jobs.release(bench.db, first.job, error={"message": "crashed"}, delay_seconds=0)
    bench.run(bench.claim())
    assert bench.items()["file-002"].missed_syncs == 1
    assert bench.stored() == {"file-000", "file-001", "file-002"}


def test_an_interrupted_sync_leaves_its_place_for_the_next_attempt(bench: Bench) -> None:
    bench.outside.files = texts(*range(40))
    bench.outside.resume_every = 10
    bench.queue()
    context = bench.claim()
    bench.outside.on_fetch = lambda name: context.stop(JobInterrupted("stop")) if name == "file-025" else None
    with pytest.raises(JobInterrupted):
        bench.run(context)
    assert bench.last().ended_at is None
    assert bench.last().resume["token"] == {"after": "file-019"}  # type: ignore[index, call-overload]


def test_a_source_that_cannot_be_reached_can_be_tried_again_and_a_forbidden_one_cannot(bench: Bench) -> None:
    def unreachable() -> None:
        raise SourceUnreachable("no route to memory")

    def blocked() -> None:
        raise EgressBlocked("not allowed; see HOPNODE_EGRESS_ALLOW_HOSTS", address="10.0.0.1")

    bench.outside.on_connect = unreachable
    with pytest.raises(SourceUnavailable, match="no route") as caught:
        bench.sync()
    assert caught.value.retryable
    assert bench.last().ended_at is None, "another attempt may follow"
    bench.outside.on_connect = blocked
    with pytest.raises(SyncFailed, match="HOPNODE_EGRESS_ALLOW_HOSTS"):
        bench.sync()
    assert bench.last().note == "sync-failed"


def test_a_listing_that_ends_early_with_nothing_is_a_failure(bench: Bench) -> None:
    bench.outside.ending = Partial("robots-unavailable")
    with pytest.raises(SyncFailed, match="robots-unavailable"):
        bench.sync()


def test_a_source_deleted_under_way_ends_the_sync(bench: Bench) -> None:
    bench.outside.files = texts(*range(30))
    bench.outside.on_fetch = lambda name: (
        sources.delete_source(bench.db, bench.workspace_id, bench.source.id) and None if name == "file-012" else None
    )
    bench.queue()
    with pytest.raises(NotFound):
        bench.run(bench.claim())


# --- telling ---------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_progress_is_told_at_most_twice_a_second_and_once_at_the_end(bench: Bench) -> None:
    bench.outside.files = texts(*range(60))
    started = time.monotonic()
    bench.outside.on_fetch = lambda name: time.sleep(0.02)
    bench.sync()
    took = time.monotonic() - started
    told = bench.steps("progress")
    assert 2 <= len(told) <= took / 0.5 + 1
    assert told[-1] == bench.last().counts.to_json()


def test_counts_can_be_seen_while_the_sync_runs(bench: Bench) -> None:
    bench.outside.files = texts(*range(30))
    seen: list[int] = []
    bench.outside.on_fetch = lambda name: seen.append(bench.last().counts.added)
    bench.sync()
    assert seen[0] == 0
    assert seen[-1] >= 16
    assert bench.outside.ending == Complete({"runs": 1})
