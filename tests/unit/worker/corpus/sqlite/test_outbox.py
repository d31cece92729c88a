import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from support.data.stored_chunks import delete, put, row_of

from hopnode.worker.corpus.sqlite import outbox
from hopnode.worker.corpus.sqlite.outbox import Change
from hopnode.worker.corpus.sqlite.text_store import Connection, TextStore
from hopnode.worker.corpus.sqlite.writing import drop_collection, ensure_collection


@pytest.fixture
def store(tmp_path: Path) -> Generator[TextStore]:
    store = TextStore(tmp_path / "corpus.db")
    with store.write() as connection:
        ensure_collection(connection, "c1")
    yield store
    store.close()


def waiting(store: TextStore, number: int = 1) -> list[tuple[str, int]]:
    with store.read() as connection:
        return [(change.op, change.row) for change in outbox.pending(connection, number, 100)]


def lease_until(connection: Connection) -> float:
    return float(connection.execute("SELECT drain_until FROM collection").fetchone()[0])


def test_each_change_of_a_chunk_is_told_in_its_order(store: TextStore) -> None:
    put(store, [("a", "alpha"), ("b", "beta")])
    assert waiting(store) == [("upsert", 1), ("upsert", 2)]
    put(store, [("a", "alpha again")])
    delete(store, ["b"])
    assert waiting(store) == [("upsert", 1), ("upsert", 2), ("upsert", 3), ("delete", 1), ("delete", 2)]


def test_what_did_not_change_is_not_told(store: TextStore) -> None:
    put(store, [("a", "alpha")])
    before = waiting(store)
    put(store, [("a", "alpha")])
    put(store, [("a", "alpha")], metadata='{"team": "blue"}')  # metadata are no part of a vector
    assert waiting(store) == before
    put(store, [("a", "alpha")], title="A title")  # what is embedded begins with the title
    assert waiting(store)[len(before) :] == [("delete", 1), ("upsert", 2)]


def test_a_change_that_is_undone_was_never_to_be_told(store: TextStore) -> None:
    with pytest.raises(RuntimeError), store.write() as connection:
        connection.execute("INSERT INTO outbox (collection, op, row) VALUES (1, 'upsert', 7)")
        raise RuntimeError
    assert waiting(store) == []


def test_the_oldest_changes_come_first_and_no_more_than_asked_for(store: TextStore) -> None:
    put(store, [(str(number), f"text {number}") for number in range(10)])
    with store.read() as connection:
        first = outbox.pending(connection, 1, 3)
        assert first == [Change(1, "upsert", 1), Change(2, "upsert", 2), Change(3, "upsert", 3)]
        assert (outbox.vector_lag(connection, 1), outbox.last_seq(connection, 1)) == (10, 10)


def test_collections_wait_for_themselves(store: TextStore) -> None:
    put(store, [("a", "alpha")])
    put(store, [("a", "alpha"), ("b", "beta")], collection="c2")
    with store.write() as connection:
        assert outbox.lagging_collections(connection) == [1, 2]
        assert [outbox.vector_lag(connection, number) for number in (1, 2, 3)] == [1, 2, 0]
        assert outbox.take_lease(connection, 1, "me", 60)
        assert outbox.mark_applied(connection, 1, "me", 99, 0)
        assert outbox.lagging_collections(connection) == [2]
        assert [outbox.vector_lag(connection, number) for number in (1, 2)] == [0, 2]
        assert outbox.last_seq(connection, 1) == 0


def test_changes_that_came_meanwhile_stay_when_older_ones_are_applied(store: TextStore) -> None:
    put(store, [("a", "alpha"), ("b", "beta")])
    with store.write() as connection:
        assert outbox.take_lease(connection, 1, "me", 60)
        last = outbox.pending(connection, 1, 100)[-1].seq
    put(store, [("c", "gamma")])
    with store.write() as connection:
        assert outbox.mark_applied(connection, 1, "me", last, 0)
    assert waiting(store) == [("upsert", 3)]


def test_who_lost_the_lease_marks_nothing(store: TextStore) -> None:
    put(store, [("a", "alpha")])
    with store.write() as connection:
        assert outbox.take_lease(connection, 1, "me", -1)  # time is up at once
        assert outbox.take_lease(connection, 1, "another", 60)
        row = row_of(connection)
        assert not outbox.mark_applied(connection, 1, "me", 99, 5)
        assert not outbox.switch_generation(connection, row, "me", 99, "old-name")
        assert row_of(connection) == row
        assert outbox.orphans(connection) == []
    assert waiting(store) == [("upsert", 1)]


def test_a_lease_is_renewed_by_its_holder_and_given_back_by_it_alone(store: TextStore) -> None:
    with store.write() as connection:
        assert outbox.take_lease(connection, 1, "me", 60)
        first = lease_until(connection)
        assert not outbox.take_lease(connection, 1, "another", 600)
        assert lease_until(connection) == first
        assert outbox.take_lease(connection, 1, "me", 120)
        assert lease_until(connection) >= first + 59
        outbox.drop_lease(connection, 1, "another")
        assert not outbox.take_lease(connection, 1, "another", 60)
        outbox.drop_lease(connection, 1, "me")
        assert outbox.take_lease(connection, 1, "another", 60)


def test_a_collection_that_is_gone_has_no_lease_to_take(store: TextStore) -> None:
    with store.write() as connection:
        drop_collection(connection, row_of(connection), [])
        assert not outbox.take_lease(connection, 1, "me", 60)
        assert not outbox.mark_applied(connection, 1, "me", 1, 0)


def test_two_runs_of_one_process_hold_different_leases() -> None:
    assert len({outbox.new_token() for _ in range(100)}) == 100


def test_a_holder_that_lives_on_this_machine_keeps_its_lease(store: TextStore) -> None:
    with store.write() as connection:
        assert outbox.take_lease(connection, 1, outbox.new_token(), 60)
        assert not outbox.take_lease(connection, 1, outbox.new_token(), 60)


def test_a_holder_that_died_on_this_machine_holds_nothing(store: TextStore) -> None:
    script = "from hopnode.worker.corpus.sqlite.outbox import new_token; print(new_token())"
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    token = child.stdout.strip()
    assert str(os.getpid()) not in token.split()
    with store.write() as connection:
        assert outbox.take_lease(connection, 1, token, 3_600)
        assert outbox.take_lease(connection, 1, outbox.new_token(), 60)


@pytest.mark.parametrize("holder", ["elsewhere 999999999 abcdef", "somebody", "a b c d", ""])
def test_a_holder_of_another_machine_or_of_no_known_form_keeps_its_lease(store: TextStore, holder: str) -> None:
    with store.write() as connection:
        assert outbox.take_lease(connection, 1, holder, 60)
        assert not outbox.take_lease(connection, 1, outbox.new_token(), 60)


def test_removed_vectors_are_counted_until_the_index_is_built_again(store: TextStore) -> None:
    with store.write() as connection:
        assert outbox.take_lease(connection, 1, "me", 60)
        assert outbox.mark_applied(connection, 1, "me", 5, 3)
        assert outbox.mark_applied(connection, 1, "me", 4, 2)  # again, after a crash: never back
        row = row_of(connection)
        assert (row.applied_seq, row.dead, row.generation) == (5, 5, 1)
        assert outbox.switch_generation(connection, row, "me", 7, "hn-w1-c1-g1")
        row = row_of(connection)
        assert (row.applied_seq, row.dead, row.generation) == (7, 0, 2)
        assert outbox.orphans(connection) == ["hn-w1-c1-g1"]


def test_a_new_generation_keeps_what_was_written_while_it_was_built(store: TextStore) -> None:
    put(store, [("a", "alpha")])
    with store.write() as connection:
        assert outbox.take_lease(connection, 1, "me", 60)
        seq = outbox.last_seq(connection, 1)
    put(store, [("b", "beta")])
    with store.write() as connection:
        assert outbox.switch_generation(connection, row_of(connection), "me", seq, "old")
    assert waiting(store) == [("upsert", 2)]


def test_an_orphan_is_named_once_until_it_is_gone(store: TextStore) -> None:
    with store.write() as connection:
        outbox.take_lease(connection, 1, "me", 60)
        for _ in range(2):
            outbox.switch_generation(connection, row_of(connection), "me", 1, "old")
        assert outbox.orphans(connection) == ["old"]
        outbox.forget_orphan(connection, "unknown")
        outbox.forget_orphan(connection, "old")
        assert outbox.orphans(connection) == []


def test_a_dropped_collection_leaves_its_indexes_as_orphans_and_nothing_to_tell(store: TextStore) -> None:
    put(store, [("a", "alpha")])
    put(store, [("a", "alpha")], collection="c2")
    with store.write() as connection:
        drop_collection(connection, row_of(connection), ["g1", "g2"])
        assert outbox.orphans(connection) == ["g1", "g2"]
        assert outbox.lagging_collections(connection) == [2]


def test_a_workspace_is_dropped_for_good(store: TextStore, tmp_path: Path) -> None:
    with store.write() as connection:
        assert not outbox.is_dropped(connection)
        outbox.mark_dropped(connection)
    again = TextStore(tmp_path / "corpus.db")
    with again.read() as connection:
        assert outbox.is_dropped(connection)
    again.close()


@pytest.mark.parametrize("odd", ["../etc", "a b", "ü", "x" * 65, "", "a\0b", "名前"])
def test_an_index_is_named_by_plain_letters_only(odd: str) -> None:
    names = {outbox.vector_name(odd, "c1", 1), outbox.vector_name("w1", odd, 1), outbox.vector_name(odd, odd, 2)}
    assert len(names) == 3
    for name in names:
        assert name.isascii() and name.replace("-", "").isalnum() and 3 <= len(name) <= 200
    assert outbox.vector_name("w1", "c1", 3) == "hn-w1-c1-g3"


def test_odd_ids_never_share_a_name() -> None:
    odd = ["a b", "a  b", "a/b", "a.b", "ab", "A b"]
    assert len({outbox.vector_name(one, "c1", 1) for one in odd}) == len(odd)
