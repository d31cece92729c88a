from collections.abc import Generator, Sequence, Set
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import JsonValue
from support.data.stored_chunks import delete, put, put_with_vectors, row_of

from hopnode.worker.corpus.finding.legs import EXACT_SCOPE, Retrieval, Scope, Scopes
from hopnode.worker.corpus.sqlite.lexical import Fts5Index
from hopnode.worker.corpus.sqlite.outbox import vector_name
from hopnode.worker.corpus.sqlite.text_store import Snapshot, TextStore
from hopnode.worker.corpus.vectors.chroma import EmbeddedChroma
from hopnode.worker.errors import InvalidRequest, VectorsUnavailable

NAME = vector_name("w1", "c1", 1)


@pytest.fixture
def store(tmp_path: Path) -> Generator[TextStore]:
    store = TextStore(tmp_path / "corpus.db")
    yield store
    store.close()


class WatchedChroma(EmbeddedChroma):
    """Real Chroma that notes how deep each query went."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.depths: list[int] = []

    def query(self, name: str, vector: NDArray[np.float32], limit: int) -> list[int]:
        self.depths.append(limit)
        return super().query(name, vector, limit)


@pytest.fixture
def chroma(tmp_path: Path) -> Generator[WatchedChroma]:
    chroma = WatchedChroma(tmp_path / "chroma")
    yield chroma
    chroma.close()


def on_a_circle(count: int) -> NDArray[np.float32]:
    """Unit vectors at growing angles from the first: the lower the number, the nearer to it."""
    angles = np.linspace(0, np.pi / 2, count)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


FIRST = np.array([1, 0], np.float32)


def fill(store: TextStore, chroma: EmbeddedChroma | None, count: int) -> None:
    """Chunks in rows 1, 2, …, each a little farther from `FIRST` than the one before."""
    matrix = on_a_circle(count)
    put_with_vectors(store, {f"text {number}": row for number, row in enumerate(matrix)})
    if chroma:
        chroma.upsert(NAME, list(range(1, count + 1)), matrix)


def retrieval(snapshot: Snapshot, scope: Scope = None, excluded: Set[int] = frozenset(), lag: int = 0) -> Retrieval:
    return Retrieval(snapshot, row_of(snapshot), "w1", scope, excluded, lag)


def test_the_nearest_come_first_and_no_more_than_wanted(store: TextStore, chroma: WatchedChroma) -> None:
    fill(store, chroma, 30)
    with store.read() as snapshot:
        assert retrieval(snapshot).dense(FIRST, 5, chroma) == [1, 2, 3, 4, 5]
    assert chroma.depths == [5]


def test_rows_that_are_not_wanted_take_no_place(store: TextStore, chroma: WatchedChroma) -> None:
    fill(store, chroma, 60)
    with store.read() as snapshot:
        assert retrieval(snapshot, excluded={1, 3, 5}).dense(FIRST, 4, chroma) == [2, 4, 6, 7]
    assert chroma.depths == [4 + 3 + 16]


def test_vectors_of_deleted_chunks_are_passed_over_and_more_are_asked_for(
    store: TextStore, chroma: WatchedChroma
) -> None:
    fill(store, chroma, 200)
    delete(store, [f"text {number}" for number in range(60)])
    with store.read() as snapshot:
        assert retrieval(snapshot, lag=60).dense(FIRST, 5, chroma) == [61, 62, 63, 64, 65]
    assert chroma.depths == [21, 84]


def test_a_chunk_that_chroma_does_not_know_yet_is_missed_and_none_is_invented(
    store: TextStore, chroma: WatchedChroma
) -> None:
    fill(store, chroma, 10)
    put_with_vectors(store, {"late": FIRST})
    chroma.upsert(NAME, [999], FIRST.reshape(1, -1))  # a row that no chunk has
    with store.read() as snapshot:
        assert retrieval(snapshot, lag=1).dense(FIRST, 3, chroma) == [1, 2, 3]


def test_a_small_scope_is_scanned_without_asking_chroma(store: TextStore, chroma: WatchedChroma) -> None:
    fill(store, None, 50)
    with store.read() as snapshot:
        assert retrieval(snapshot, scope={40, 7, 20, 999}).dense(FIRST, 2, chroma) == [7, 20]
        assert retrieval(snapshot, scope={40, 7, 20}, excluded={7}).dense(FIRST, 5, chroma) == [20, 40]
        assert retrieval(snapshot, scope=frozenset()).dense(FIRST, 5, chroma) == []
    assert chroma.depths == []


def test_a_wide_scope_is_asked_of_chroma_in_proportion_and_answered_like_a_scan(
    store: TextStore, chroma: WatchedChroma
) -> None:
    count = 2 * EXACT_SCOPE + 4
    fill(store, chroma, count)
    scope = frozenset(range(2, count + 1, 2))
    assert len(scope) > EXACT_SCOPE
    with store.read() as snapshot:
        assert retrieval(snapshot, scope=scope).dense(FIRST, 5, chroma) == [2, 4, 6, 8, 10]
    assert chroma.depths == [2 * (5 + 16)]


def test_what_chroma_does_not_get_to_the_bottom_of_is_scanned(store: TextStore, chroma: WatchedChroma) -> None:
    draw = np.random.default_rng(0)
    matrix = draw.normal(size=(4_605, 16)).astype(np.float32)
    matrix[5:, 0] += 8  # vectors of chunks that are gone, all of them nearer than the five that are left
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    asked = np.eye(16, dtype=np.float32)[0]
    put_with_vectors(store, {f"text {number}": matrix[number] for number in range(5)})
    chroma.upsert(NAME, [*range(1, 6), *range(10_000, 14_600)], matrix)
    with store.read() as snapshot:
        found = retrieval(snapshot, lag=4_600).dense(asked, 3, chroma)
    assert found == [int(row) + 1 for row in np.argsort(-(matrix[:5] @ asked))[:3]]
    assert chroma.depths == [19, 76, 304, 1_216, 4_096]


@pytest.mark.parametrize("limit", [0, -1])
def test_nothing_is_asked_for_nothing(store: TextStore, chroma: WatchedChroma, limit: int) -> None:
    fill(store, chroma, 3)
    with store.read() as snapshot:
        assert retrieval(snapshot).dense(FIRST, limit, chroma) == []
        empty = replace(retrieval(snapshot), row=replace(row_of(snapshot), chunks=0))
        assert empty.dense(FIRST, 5, chroma) == []
    assert chroma.depths == []


def test_an_index_that_is_missing_is_said_and_not_taken_for_empty(store: TextStore, chroma: WatchedChroma) -> None:
    fill(store, None, 3)
    with store.read() as snapshot, pytest.raises(VectorsUnavailable):
        retrieval(snapshot).dense(FIRST, 5, chroma)


def test_the_index_of_the_current_generation_is_asked(store: TextStore, chroma: WatchedChroma) -> None:
    fill(store, chroma, 3)
    chroma.upsert(vector_name("w1", "c1", 2), [3], on_a_circle(1))
    with store.write() as connection:
        connection.execute("UPDATE collection SET generation = 2")
    with store.read() as snapshot:
        assert retrieval(snapshot).dense(FIRST, 1, chroma) == [3]


def test_chunks_without_a_vector_are_left_out_of_a_scan(store: TextStore, chroma: WatchedChroma) -> None:
    fill(store, None, 3)
    put(store, [("plain", "no vector")])
    with store.read() as snapshot:
        assert retrieval(snapshot, scope={1, 4}).dense(FIRST, 5, chroma) == [1]
        assert retrieval(snapshot, scope={4}).dense(FIRST, 5, chroma) == []


def words(
    snapshot: Snapshot, query: str, limit: int, scope: Scope = None, excluded: Set[int] = frozenset()
) -> list[int]:
    row = row_of(snapshot)
    return retrieval(snapshot, scope, excluded).lexical(query, limit, Fts5Index(snapshot, row.number, row.chunks))


def test_the_leg_of_words_keeps_to_limit_scope_and_exclusions(store: TextStore) -> None:
    put(store, [(str(number), "whale " * number + "krill") for number in range(1, 7)])
    with store.read() as snapshot:
        order = words(snapshot, "Whale!", 10)
        assert sorted(order) == [1, 2, 3, 4, 5, 6]
        assert words(snapshot, "whale", 3) == order[:3]
        assert words(snapshot, "whale", 10, scope={2, 5}) == [row for row in order if row in {2, 5}]
        assert words(snapshot, "whale", 2, excluded=set(order[:2])) == order[2:4]
        assert words(snapshot, "whale", 10, scope={2, 5}, excluded={2, 5}) == []
        assert words(snapshot, "unknown", 10) == words(snapshot, "", 10) == words(snapshot, "whale", 0) == []


# --- scopes ---------------------------------------------------------------------------------------------------------


def with_numbers(store: TextStore, numbers: Sequence[int]) -> None:
    for number in numbers:
        put(store, [(f"d{number}", f"text {number}")], metadata=f'{{"number": {number}}}')


def scope_of(scopes: Scopes, store: TextStore, filter: dict[str, JsonValue] | None) -> Scope:
    with store.read() as snapshot:
        return scopes.get(snapshot, row_of(snapshot), filter)


def test_a_filter_allows_the_chunks_of_the_documents_that_pass_it(store: TextStore) -> None:
    with_numbers(store, range(6))
    scopes = Scopes()
    assert scope_of(scopes, store, {"number": {"gte": 4}}) == {5, 6}
    assert scope_of(scopes, store, {"number": 99}) == frozenset()
    assert scope_of(scopes, store, None) is None
    assert scope_of(scopes, store, {}) is None


def test_a_scope_is_remembered_for_as_long_as_the_collection_stays_as_it_is(store: TextStore) -> None:
    with_numbers(store, range(3))
    scopes = Scopes()
    first = scope_of(scopes, store, {"number": {"gte": 1, "lt": 9}})
    assert scope_of(scopes, store, {"number": {"lt": 9, "gte": 1}}) is first  # the same filter, written otherwise
    with_numbers(store, [7])
    assert scope_of(scopes, store, {"number": {"gte": 1, "lt": 9}}) == {2, 3, 4}
    delete(store, ["d1"])
    assert scope_of(scopes, store, {"number": {"gte": 1, "lt": 9}}) == {3, 4}


def test_two_collections_of_one_version_do_not_share_a_scope(store: TextStore) -> None:
    put(store, [("a", "text")], metadata='{"team": "blue"}')
    put(store, [("b", "text")], metadata='{"team": "blue"}', collection="c2")
    scopes = Scopes()
    with store.read() as snapshot:
        one, two = row_of(snapshot, "c1"), row_of(snapshot, "c2")
        assert one.index_version == two.index_version
        assert scopes.get(snapshot, one, {"team": "blue"}) == {1}
        assert scopes.get(snapshot, two, {"team": "blue"}) == {2}


def test_only_the_latest_filters_are_remembered(store: TextStore) -> None:
    with_numbers(store, range(3))
    scopes = Scopes()
    first = scope_of(scopes, store, {"number": {"gte": 1}})
    for number in range(63):
        scope_of(scopes, store, {"number": number + 100, "other": 1})
        assert scope_of(scopes, store, {"number": {"gte": 1}}) is first  # asked for lately
    for number in range(64):
        scope_of(scopes, store, {"number": number + 1_000})
    again = scope_of(scopes, store, {"number": {"gte": 1}})
    assert again == first and again is not first


def test_a_filter_that_cannot_work_is_refused_before_anything_is_read(store: TextStore) -> None:
    with_numbers(store, range(2))
    with pytest.raises(InvalidRequest, match="unknown operator"):
        scope_of(Scopes(), store, {"number": {"near": 1}})
