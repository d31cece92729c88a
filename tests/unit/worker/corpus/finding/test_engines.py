import threading
from collections.abc import Generator
from itertools import islice
from pathlib import Path

import pytest
from support.data.corpora import CollectionBook
from support.data.stored_chunks import delete, put, row_of

from hopnode.worker.corpus.analyzer import analyze
from hopnode.worker.corpus.corpus import Corpus
from hopnode.worker.corpus.finding.engines import FTS5, POSTINGS, RANK_BM25, LexicalEngines
from hopnode.worker.corpus.records import NewDocument
from hopnode.worker.corpus.sqlite.lexical import SMALL_COLLECTION, Fts5Index, LexicalIndex, RankBm25Index
from hopnode.worker.corpus.sqlite.posting_segments import catch_up_postings
from hopnode.worker.corpus.sqlite.postings import PostingIndex
from hopnode.worker.corpus.sqlite.text_store import TextStore

NAMES: dict[type[LexicalIndex], str] = {RankBm25Index: RANK_BM25, PostingIndex: POSTINGS, Fts5Index: FTS5}


@pytest.fixture
def store(tmp_path: Path) -> Generator[TextStore]:
    store = TextStore(tmp_path / "corpus.db")
    yield store
    store.close()


def named(engines: LexicalEngines, store: TextStore) -> str:
    with store.read() as snapshot:
        return engines.name(snapshot, row_of(snapshot))


def answering(engines: LexicalEngines, store: TextStore) -> str:
    """The engine that a search gets, by the name that statistics use."""
    with store.read() as snapshot:
        return NAMES[type(engines.index(snapshot, row_of(snapshot)))]


def grow(store: TextStore) -> None:
    """More chunks than rank-bm25 is there for."""
    put(store, [(f"f{number}", f"filler number{number}") for number in range(SMALL_COLLECTION)])


def test_the_name_of_a_small_collections_engine_is_that_of_the_one_that_answers(store: TextStore) -> None:
    engines = LexicalEngines()
    put(store, [("a", "alpha whale"), ("b", "beta whale")])
    assert (named(engines, store), answering(engines, store)) == (FTS5, FTS5)
    assert (named(engines, store), answering(engines, store)) == (RANK_BM25, RANK_BM25)
    put(store, [("c", "gamma whale")])  # while documents arrive every search sees another version
    assert (named(engines, store), answering(engines, store)) == (FTS5, FTS5)
    put(store, [("d", "delta whale")])
    assert (named(engines, store), answering(engines, store)) == (FTS5, FTS5)
    assert (named(engines, store), answering(engines, store)) == (RANK_BM25, RANK_BM25)


def test_to_ask_for_the_name_is_no_search(store: TextStore) -> None:
    engines = LexicalEngines()
    put(store, [("a", "alpha whale")])
    assert [named(engines, store) for _ in range(5)] == [FTS5] * 5
    assert answering(engines, store) == FTS5


def test_while_another_thread_builds_the_small_index_fts5_answers_and_is_named(store: TextStore) -> None:
    engines, builds, done = LexicalEngines(), threading.Event(), threading.Event()
    put(store, [("a", "alpha whale")])
    assert answering(engines, store) == FTS5

    def hold_on() -> int:
        builds.set()
        done.wait(20)
        return 0

    def build() -> None:
        with store.read() as snapshot:
            snapshot.set_progress_handler(hold_on, 1)
            engines.index(snapshot, row)
            snapshot.set_progress_handler(None, 0)

    with store.read() as snapshot:
        row = row_of(snapshot)
    builder = threading.Thread(target=build)
    builder.start()
    assert builds.wait(20)
    try:
        assert (named(engines, store), answering(engines, store)) == (FTS5, FTS5)
    finally:
        done.set()
        builder.join()
    assert (named(engines, store), answering(engines, store)) == (RANK_BM25, RANK_BM25)


def test_a_large_collection_is_answered_by_fts5_until_its_posting_lists_stand(store: TextStore) -> None:
    engines = LexicalEngines()
    put(store, [("a", "alpha whale")])
    grow(store)
    for _ in range(2):
        assert (named(engines, store), answering(engines, store)) == (FTS5, FTS5)
    catch_up_postings(store)
    assert (named(engines, store), answering(engines, store)) == (POSTINGS, POSTINGS)
    delete(store, ["f1", "f2"])  # small again: its posting lists stay, and rank-bm25 answers
    assert (named(engines, store), answering(engines, store)) == (FTS5, FTS5)
    assert (named(engines, store), answering(engines, store)) == (RANK_BM25, RANK_BM25)


def test_every_engine_gives_the_same_order(store: TextStore) -> None:
    engines = LexicalEngines()
    texts = ["the blue whale of the north", "a whale", "blue", "whale whale whale blue blue", "nothing at all"]
    put(store, [(str(number), text) for number, text in enumerate(texts)])
    terms = analyze("blue whale north", query=True)
    assert answering(engines, store) == FTS5
    with store.read() as snapshot:
        row = row_of(snapshot)
        small = list(engines.index(snapshot, row).ranked(terms))
        assert engines.name(snapshot, row) == RANK_BM25
        assert list(Fts5Index(snapshot, row.number, row.chunks).ranked(terms)) == small
    grow(store)
    large: dict[str, list[int]] = {}
    for _ in range(2):
        with store.read() as snapshot:
            row = row_of(snapshot)
            large[engines.name(snapshot, row)] = list(islice(engines.index(snapshot, row).ranked(terms), 10))
        catch_up_postings(store)
    assert set(large) == {FTS5, POSTINGS} and large[FTS5] == large[POSTINGS]
    assert set(large[FTS5]) == set(small)


def test_frequencies_are_exact_whichever_engine_counts(store: TextStore) -> None:
    engines = LexicalEngines()
    put(store, [("a", "alpha whale"), ("b", "beta whale"), ("c", "whale whale whale")])
    wanted = {"whale": 3, "alpha": 1}

    def counted() -> dict[str, int]:
        with store.read() as snapshot:
            return engines.frequencies(snapshot, row_of(snapshot), ["whale", "alpha", "unknown"])

    assert counted() == wanted
    grow(store)
    assert counted() == wanted
    catch_up_postings(store)
    assert counted() == wanted
    put(store, [("d", "alpha again")])  # in the tail
    assert counted() == {"whale": 3, "alpha": 2}
    delete(store, ["a"])  # counts still, until its segment is written again
    assert counted() == {"whale": 3, "alpha": 2}


def test_statistics_name_the_engine_that_the_next_search_gets(corpus: Corpus, book: CollectionBook) -> None:
    collection = book.make()
    assert corpus.stats(collection).lexical_engine == FTS5
    corpus.ingest(collection, [NewDocument("a", text="alpha whale")])
    assert corpus.stats(collection).lexical_engine == FTS5
    corpus.search([collection], "whale", dense=0)
    assert corpus.stats(collection).lexical_engine == RANK_BM25
    corpus.search([collection], "whale", dense=0)
    assert corpus.stats(collection).lexical_engine == RANK_BM25
    corpus.delete(collection, ["a"])
    assert corpus.stats(collection).lexical_engine == FTS5
