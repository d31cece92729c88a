import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from support.data.corpora import CollectionBook

from hopnode.worker.corpus.corpus import Corpora, Corpus
from hopnode.worker.corpus.records import NewDocument, SearchHits
from hopnode.worker.corpus.sqlite import outbox
from hopnode.worker.corpus.sqlite.outbox import vector_name
from hopnode.worker.corpus.sqlite.reading import collection_rows
from hopnode.worker.corpus.sqlite.text_store import TextStore
from hopnode.worker.corpus.vectors.chroma import EmbeddedChroma, HttpChroma
from hopnode.worker.corpus.vectors.draining import Drainer
from hopnode.worker.errors import VectorsUnavailable


@pytest.fixture
def chroma(tmp_path: Path) -> EmbeddedChroma:
    return EmbeddedChroma(tmp_path / "chroma")  # closed with the corpora that use it


def some(count: int, word: str = "text") -> list[NewDocument]:
    return [NewDocument(f"{number:03}", text=f"{word} number{number}") for number in range(count)]


def generation(root: Path) -> int:
    store = TextStore(root / "workspaces" / "w1" / "corpus.db")
    with store.read() as connection:
        (row,) = collection_rows(connection)
    store.close()
    return row.generation


def test_after_an_ingest_the_vector_index_knows_what_the_text_store_knows(
    open_node: Callable[..., Corpora], book: CollectionBook, chroma: EmbeddedChroma
) -> None:
    corpus = open_node(chroma).open("w1")
    corpus.ingest(book.make(), some(30))
    assert chroma.count(vector_name("w1", "c1", 1)) == 30
    corpus.delete(book.make(), ["000", "001"])
    corpus.ingest(book.make(), some(10, "other"))
    assert chroma.count(vector_name("w1", "c1", 1)) == 30
    assert corpus.stats(book.make()).vector_lag == 0


def by_the_search_tool(corpus: Corpus, book: CollectionBook) -> SearchHits:
    return corpus.search([book.make()], "number3")


def by_a_look_without_tools(corpus: Corpus, book: CollectionBook) -> SearchHits:
    return corpus.insight([book.make()]).candidates("number3", 10)


@pytest.mark.parametrize("look", [by_the_search_tool, by_a_look_without_tools])
def test_a_vector_index_that_was_lost_is_built_again_without_embedding(
    look: Callable[[Corpus, CollectionBook], SearchHits],
    open_node: Callable[..., Corpora],
    book: CollectionBook,
    chroma: EmbeddedChroma,
    tmp_path: Path,
    embedder: object,
) -> None:
    corpora = open_node(chroma)
    corpus = corpora.open("w1")
    corpus.ingest(book.make(), some(30))
    embedded = embedder.texts  # type: ignore[attr-defined]
    chroma.drop(vector_name("w1", "c1", 1))
    assert look(corpus, book).degraded == ("vectors-unavailable",)
    corpora.drain_vectors()
    hits = corpus.search([book.make()], "text number3", lexical=0)
    assert hits.degraded == () and hits.hits[0].chunk.key == "003"
    assert generation(tmp_path) == 2 and chroma.count(vector_name("w1", "c1", 2)) == 30
    assert embedder.texts == embedded + 2  # type: ignore[attr-defined]


def test_vectors_that_do_not_belong_there_are_noticed_at_the_next_start(
    open_node: Callable[..., Corpora], book: CollectionBook, tmp_path: Path
) -> None:
    first = open_node()
    first.open("w1").ingest(book.make(), some(30))
    first.close()
    chroma = EmbeddedChroma(tmp_path / "chroma")
    chroma.delete(vector_name("w1", "c1", 1), [1, 2, 3])
    second = open_node(chroma)
    second.drain_vectors()
    assert chroma.count(vector_name("w1", "c1", 2)) == 30
    assert chroma.count(vector_name("w1", "c1", 1)) is None
    assert second.drain_vectors() == 0
    assert generation(tmp_path) == 2


def test_a_good_index_is_not_built_again_at_a_restart(
    open_node: Callable[..., Corpora], book: CollectionBook, tmp_path: Path
) -> None:
    first = open_node()
    first.open("w1").ingest(book.make(), some(5))
    first.close()
    second = open_node()
    assert second.drain_vectors() == 0
    assert generation(tmp_path) == 1


def test_an_index_full_of_dead_vectors_is_built_again(
    open_node: Callable[..., Corpora], book: CollectionBook, chroma: EmbeddedChroma, tmp_path: Path
) -> None:
    corpus = open_node(chroma).open("w1")
    for _ in range(2):
        corpus.ingest(book.make(), some(300))
        assert generation(tmp_path) == 1
        corpus.delete(book.make(), [f"{number:03}" for number in range(10, 300)])
    assert generation(tmp_path) == 2  # 580 dead, 10 alive
    assert chroma.count(vector_name("w1", "c1", 2)) == 10 and chroma.count(vector_name("w1", "c1", 1)) is None
    assert len(corpus.search([book.make()], "text number3", lexical=0).hits) == 10


def test_what_is_written_while_an_index_is_rebuilt_is_in_it_afterwards(
    open_node: Callable[..., Corpora], book: CollectionBook, tmp_path: Path
) -> None:
    chroma = _Interrupting(tmp_path / "chroma")
    corpora = open_node(chroma)
    corpus = corpora.open("w1")
    corpus.ingest(book.make(), some(30))
    chroma.drop(vector_name("w1", "c1", 1))
    corpus.search([book.make()], "number3")

    def write() -> None:
        corpus.ingest(book.make(), [NewDocument("new", text="arrived meanwhile")])
        corpus.delete(book.make(), ["000"])

    chroma.once = write
    corpora.drain_vectors()
    corpora.drain_vectors()
    assert generation(tmp_path) == 2 and chroma.count(vector_name("w1", "c1", 2)) == 30
    assert corpus.search([book.make()], "arrived meanwhile", lexical=0).hits[0].chunk.key == "new"
    assert corpus.stats(book.make()).vector_lag == 0


def test_one_drainer_at_a_time_works_on_a_collection(
    open_node: Callable[..., Corpora], book: CollectionBook, tmp_path: Path
) -> None:
    away = open_node(HttpChroma("http://127.0.0.1:9"))
    away.open("w1").ingest(book.make(), some(5))
    chroma = EmbeddedChroma(tmp_path / "chroma")
    store = TextStore(tmp_path / "workspaces" / "w1" / "corpus.db")
    with store.write() as connection:
        (row,) = collection_rows(connection)
        assert outbox.take_lease(connection, row.number, "somebody", 60)
    drainer = Drainer(store, chroma, "w1")
    assert drainer.drain() == 0
    with store.write() as connection:
        assert not outbox.mark_applied(connection, row.number, "another", 5, 0)
        outbox.drop_lease(connection, row.number, "another")
    assert drainer.drain() == 0
    with store.write() as connection:
        outbox.take_lease(connection, row.number, "somebody", -1)  # its time is up
    assert drainer.drain() == 5
    store.close()
    chroma.close()


def test_a_drainer_that_fails_lets_the_next_one_in(
    open_node: Callable[..., Corpora], book: CollectionBook, tmp_path: Path
) -> None:
    away = open_node(HttpChroma("http://127.0.0.1:9"))
    away.open("w1").ingest(book.make(), some(5))
    store = TextStore(tmp_path / "workspaces" / "w1" / "corpus.db")
    with pytest.raises(VectorsUnavailable):
        Drainer(store, HttpChroma("http://127.0.0.1:9"), "w1").drain()
    chroma = EmbeddedChroma(tmp_path / "chroma")
    assert Drainer(store, chroma, "w1").drain() == 5
    store.close()
    chroma.close()


def test_many_threads_that_ingest_and_search_leave_both_indexes_whole(
    open_node: Callable[..., Corpora], book: CollectionBook, chroma: EmbeddedChroma
) -> None:
    corpora = open_node(chroma)
    corpus = corpora.open("w1")
    collection = book.make()
    corpus.ingest(collection, some(5))
    failures: list[BaseException] = []

    def write(name: str) -> None:
        for number in range(8):
            corpus.ingest(collection, [NewDocument(f"{name}{number}", text=f"whale {name} {number}")])
            corpus.delete(collection, [f"{name}{number - 1}"])

    def look() -> None:
        for _ in range(30):
            for hit in corpus.search([collection], "whale text").hits:
                assert hit.chunk.text
            corpus.grep([collection], "whale")

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
            failures.append(error)

    jobs = [lambda name=name: write(name) for name in "ab"] + [look, look]
    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    corpora.drain_vectors()
    assert corpus.stats(collection).chunks == 7
    assert chroma.count(vector_name("w1", "c1", 1)) == 7
    assert {chunk.key for chunk in corpus.grep([collection], "whale", limit=99)} == {"a7", "b7"}


class _Interrupting(EmbeddedChroma):
    """Real Chroma that lets something happen in the middle of a write, once."""

    once: Callable[[], None] | None = None

    def upsert(self, name: str, ids: list[int], rows: object) -> None:  # type: ignore[override]
        super().upsert(name, ids, rows)  # type: ignore[arg-type]
        work, self.once = self.once, None
        if work:
            work()
