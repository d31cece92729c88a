import threading
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from support.data.posting_lists import agrees_with_the_text_store
from support.data.stored_chunks import delete, put, row_of

from hopnode.worker.corpus.analyzer import analyze
from hopnode.worker.corpus.sqlite.posting_segments import (
    DEAD_SHARE,
    LEAST_TAIL,
    STEP_CHUNKS,
    catch_up_postings,
    drop_segments,
)
from hopnode.worker.corpus.sqlite.postings import PostingLists
from hopnode.worker.corpus.sqlite.text_store import Connection, TextStore


@pytest.fixture
def store(tmp_path: Path) -> Generator[TextStore]:
    store = TextStore(tmp_path / "corpus.db")
    yield store
    store.close()


def catch_up(store: TextStore) -> None:
    catch_up_postings(store, from_chunks=0, least_tail=1)


def sizes(store: TextStore) -> list[int]:
    with store.read() as connection:
        return [row[0] for row in connection.execute("SELECT chunks FROM segment ORDER BY chunks")]


def stored(connection: Connection) -> dict[str, dict[int, int]]:
    """What the segments hold, read without the code that reads them: per term each chunk's row and how often."""
    found: dict[str, dict[int, int]] = {}
    statement = "SELECT p.term, p.chunks, p.entries, s.rows FROM posting p JOIN segment s ON s.id = p.segment"
    for term, chunks, entries, rows in connection.execute(statement):
        numbers = [int.from_bytes(rows[8 * at : 8 * at + 8], "little") for at in range(len(rows) // 8)]
        ordinals = [int.from_bytes(entries[2 * at : 2 * at + 2], "little") for at in range(chunks)]
        counts = entries[2 * chunks :]
        assert len(counts) == chunks
        found.setdefault(term, {}).update({numbers[one]: count for one, count in zip(ordinals, counts, strict=True)})
    return found


def expected(texts: Sequence[tuple[int, str]]) -> dict[str, dict[int, int]]:
    wanted: dict[str, dict[int, int]] = {}
    for row, text in texts:
        for term, count in Counter(analyze(text)).items():
            wanted.setdefault(term, {})[row] = min(count, 255)
    return wanted


def test_a_segment_holds_who_has_which_term_how_often(store: TextStore) -> None:
    texts = ["whale whale krill", "", "검색 엔진", "krill " * 300, "whale"]
    put(store, [(str(number), text) for number, text in enumerate(texts)])
    catch_up(store)
    with store.read() as connection:
        assert stored(connection) == expected(list(enumerate(texts, start=1)))
        lengths = np.frombuffer(connection.execute("SELECT lengths FROM segment").fetchone()[0], np.uint32)
    assert lengths.tolist() == [len(analyze(text)) for text in texts]


def test_merged_segments_hold_what_their_parts_held(store: TextStore) -> None:
    texts = [f"whale case{number % 7} {'krill ' * (number % 4)}" for number in range(33)]
    for number, text in enumerate(texts):
        put(store, [(str(number), text)])
        catch_up(store)
    assert len(sizes(store)) < 7
    with store.read() as connection:
        assert stored(connection) == expected(list(enumerate(texts, start=1)))


def test_a_tail_that_is_short_waits_and_a_small_collection_gets_no_segments(store: TextStore) -> None:
    put(store, [(str(number), f"whale {number}") for number in range(LEAST_TAIL - 1)])
    catch_up_postings(store, from_chunks=0)
    assert sizes(store) == []
    put(store, [("one more", "whale")])
    catch_up_postings(store)  # not large
    assert sizes(store) == []
    catch_up_postings(store, from_chunks=0)
    assert sizes(store) == [LEAST_TAIL]


def test_a_collection_that_became_small_is_still_looked_after(store: TextStore) -> None:
    put(store, [(str(number), f"whale {number}") for number in range(20)])
    catch_up_postings(store, from_chunks=10, least_tail=1)
    delete(store, [str(number) for number in range(15)])
    catch_up_postings(store, from_chunks=10, least_tail=1)
    assert sizes(store) == [5]


def test_a_segment_is_rewritten_just_beyond_the_share_of_deleted_chunks(store: TextStore) -> None:
    put(store, [(str(number), f"whale case{number}") for number in range(100)])
    catch_up(store)
    delete(store, [str(number) for number in range(int(100 * DEAD_SHARE))])
    catch_up(store)
    assert sizes(store) == [100]
    delete(store, ["99"])
    catch_up(store)
    assert sizes(store) == [74]
    with store.read() as connection:
        assert "case99" not in stored(connection) and "case98" in stored(connection)
    agrees_with_the_text_store(store, PostingLists())


def test_the_most_worn_of_several_segments_is_the_one_that_is_rewritten(store: TextStore) -> None:
    put(store, [(f"a{number}", f"whale a{number}") for number in range(40)])
    catch_up(store)
    put(store, [(f"b{number}", f"whale b{number}") for number in range(12)])
    catch_up(store)
    assert sizes(store) == [12, 40]
    delete(store, [f"a{number}" for number in range(14)])
    catch_up(store)
    assert sizes(store) == [12, 26]


def test_a_long_tail_is_written_in_steps(store: TextStore) -> None:
    assert STEP_CHUNKS > 100
    put(store, [(str(number), f"whale {number}") for number in range(STEP_CHUNKS + 10)])
    catch_up(store)
    assert sizes(store) == [10, STEP_CHUNKS]
    with store.read() as connection:
        assert row_of(connection).posted_row == STEP_CHUNKS + 10


def test_dropped_segments_leave_every_chunk_in_the_tail(store: TextStore) -> None:
    put(store, [("a", "whale"), ("b", "krill")])
    put(store, [("a", "whale")], collection="c2")
    catch_up(store)
    with store.write() as connection:
        drop_segments(connection, row_of(connection).number)
        assert row_of(connection).posted_row == 0 and row_of(connection, "c2").posted_row > 0
        assert connection.execute("SELECT count(*) FROM posting").fetchone()[0] == 1
    assert sizes(store) == [1]
    catch_up(store)
    assert sizes(store) == [1, 2]
    agrees_with_the_text_store(store, PostingLists())


def test_what_an_older_analyzer_indexed_is_left_until_it_is_indexed_anew(store: TextStore) -> None:
    put(store, [("a", "whale")])
    with store.write() as connection:
        connection.execute("UPDATE collection SET analyzer = 0")
    catch_up(store)
    assert sizes(store) == []


class _Meddling(TextStore):
    """Lets something happen between the reading of a snapshot and the writing of what was made of it, once."""

    before_write: Callable[[], None] | None = None

    @contextmanager
    def write(self) -> Generator[Connection]:
        work, self.before_write = self.before_write, None
        if work:
            work()
        with super().write() as connection:
            yield connection


@pytest.fixture
def meddling(store: TextStore, tmp_path: Path) -> Generator[_Meddling]:
    other = _Meddling(tmp_path / "corpus.db")
    yield other
    other.close()


def test_who_comes_second_with_the_same_chunks_throws_its_segment_away(store: TextStore, meddling: _Meddling) -> None:
    put(store, [(str(number), f"whale {number}") for number in range(8)])
    meddling.before_write = lambda: catch_up(store)
    catch_up(meddling)
    assert sizes(store) == [8]
    agrees_with_the_text_store(store, PostingLists())


def test_a_chunk_that_is_deleted_while_its_segment_is_written_is_not_found(
    store: TextStore, meddling: _Meddling
) -> None:
    put(store, [(str(number), f"whale {number}") for number in range(8)])
    meddling.before_write = lambda: delete(store, ["3"])
    catch_up(meddling)
    assert sizes(store) == [8]
    agrees_with_the_text_store(store, PostingLists())


def test_a_collection_that_is_indexed_anew_meanwhile_gets_no_segment_of_the_old_terms(
    store: TextStore, meddling: _Meddling
) -> None:
    put(store, [("a", "whale")])

    def of_another_analyzer() -> None:
        with store.write() as connection:
            connection.execute("UPDATE collection SET analyzer = analyzer + 1")

    meddling.before_write = of_another_analyzer
    catch_up(meddling)
    assert sizes(store) == []


def test_segments_that_another_one_merged_meanwhile_are_not_merged_twice(store: TextStore, meddling: _Meddling) -> None:
    put(store, [(str(number), f"whale {number}") for number in range(40)])
    catch_up(store)
    delete(store, [str(number) for number in range(20)])
    meddling.before_write = lambda: catch_up(store)
    catch_up(meddling)
    assert sizes(store) == [20]
    agrees_with_the_text_store(store, PostingLists())


def test_a_reader_never_sees_half_a_segment(store: TextStore, tmp_path: Path) -> None:
    put(store, [(str(number), f"whale case{number}") for number in range(200)])
    writer, done, lists = TextStore(tmp_path / "corpus.db"), threading.Event(), PostingLists()

    def keep_writing() -> None:
        for number in range(30):
            delete(writer, [str(number)])
            put(writer, [(f"new{number}", f"whale new{number}")])
            catch_up(writer)
        done.set()

    thread = threading.Thread(target=keep_writing)
    thread.start()
    looks = 0
    while not done.is_set() or looks == 0:
        with store.read() as snapshot:
            row = row_of(snapshot)
            index = lists.get(snapshot, row)
            if index is not None:
                assert len(list(index.ranked(["whale"]))) == row.chunks
                looks += 1
    thread.join()
    writer.close()
    catch_up(store)
    agrees_with_the_text_store(store, lists)
