from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from support.data.corpora import CollectionBook, WordEmbedder

from hopnode.worker.corpus.corpus import Corpora, Corpus
from hopnode.worker.corpus.ingest import BATCH_CHUNKS, BATCH_DOCUMENTS, LONGEST_KEY
from hopnode.worker.corpus.records import IngestOutcome, NewDocument
from hopnode.worker.corpus.sqlite.reading import collection_row, known_vectors
from hopnode.worker.corpus.sqlite.text_store import TextStore
from hopnode.worker.errors import ModelUnavailable


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (NewDocument("", text="text"), "invalid-key"),
        (NewDocument("k" * (LONGEST_KEY + 1), text="text"), "invalid-key"),
        (NewDocument("a\0b", text="text"), "invalid-key"),
        (NewDocument("k"), "empty"),
        (NewDocument("k", text=""), "empty"),
        (NewDocument("k", text=" \n\u3000"), "empty"),
        (NewDocument("k", text="half \ud800"), "corrupt"),
        (NewDocument("\ud800", text="text"), "corrupt"),
        (NewDocument("k", text="text", title="\ud800"), "corrupt"),
        (NewDocument("k", text="text", url="\ud800"), "corrupt"),
        (NewDocument("k", text="text", metadata={"a": ["\ud800"]}), "corrupt"),
    ],
)
def test_a_document_that_cannot_be_stored_says_why_and_stores_nothing(
    corpus: Corpus, book: CollectionBook, document: NewDocument, reason: str
) -> None:
    (outcome,) = corpus.ingest(book.make(), [document])
    assert (outcome.status, outcome.reason) == ("failed", reason)
    assert outcome.message and outcome.document_id is None
    assert corpus.documents(book.make(), limit=5) == []


def test_the_longest_key_is_stored(corpus: Corpus, book: CollectionBook) -> None:
    key = "k" * LONGEST_KEY
    (outcome,) = corpus.ingest(book.make(), [NewDocument(key, text="text")])
    assert outcome.status == "stored" and corpus.document(book.make(), key).key == key


@pytest.mark.parametrize(
    "change",
    [
        {"title": "Another"},
        {"url": "https://example.org/b"},
        {"media_type": "text/x-other"},
        {"filename": "b.txt"},
        {"metadata": {"n": 2}},
        {"text": "another text"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_any_change_of_a_document_is_noticed(corpus: Corpus, book: CollectionBook, change: dict[str, object]) -> None:
    first: dict[str, object] = {"text": "text", "title": "One", "url": "https://example.org/a", "metadata": {"n": 1}}
    (outcome,) = corpus.ingest(book.make(), [NewDocument("k", **first)])  # type: ignore[arg-type]
    (again,) = corpus.ingest(book.make(), [NewDocument("k", **first)])  # type: ignore[arg-type]
    (changed,) = corpus.ingest(book.make(), [NewDocument("k", **(first | change))])  # type: ignore[arg-type]
    assert (outcome.status, again.status, changed.status) == ("stored", "unchanged", "stored")
    assert outcome.document_id == again.document_id == changed.document_id
    assert corpus.document(book.make(), "k").version == 2


def test_the_order_of_metadata_is_no_change(corpus: Corpus, book: CollectionBook) -> None:
    corpus.ingest(book.make(), [NewDocument("k", text="text", metadata={"a": 1, "b": 2})])
    (again,) = corpus.ingest(book.make(), [NewDocument("k", text="text", metadata={"b": 2, "a": 1})])
    assert again.status == "unchanged"


def test_the_last_of_two_documents_with_one_key_stays(corpus: Corpus, book: CollectionBook) -> None:
    outcomes = corpus.ingest(book.make(), [NewDocument("k", text="first"), NewDocument("k", text="second")])
    assert [outcome.status for outcome in outcomes] == ["stored", "stored"]
    assert outcomes[0].document_id == outcomes[1].document_id
    found = corpus.documents(book.make(), limit=5)
    assert len(found) == 1 and corpus.document_text(found[0].id) == "second"
    assert corpus.search([book.make()], "first", dense=0).hits == ()


def test_equal_texts_of_several_documents_are_embedded_once(
    corpus: Corpus, book: CollectionBook, embedder: WordEmbedder
) -> None:
    corpus.ingest(book.make(), [NewDocument(f"k{number}", text="the same text") for number in range(10)])
    assert embedder.texts == 1
    assert len(corpus.search([book.make()], "the same text", lexical=0).hits) == 10


def test_outcomes_come_in_the_order_of_the_documents_and_failures_are_told_among_them(
    corpus: Corpus, book: CollectionBook
) -> None:
    documents = [NewDocument(f"k{n:03}", text="" if n % 7 == 0 else f"text {n}") for n in range(2 * BATCH_DOCUMENTS)]
    told: list[IngestOutcome] = []
    outcomes = corpus.ingest(book.make(), documents, told.append)
    assert [outcome.key for outcome in outcomes] == [document.key for document in documents]
    assert sorted(outcome.key for outcome in told) == [document.key for document in documents]
    assert all((outcome.status == "failed") == (index % 7 == 0) for index, outcome in enumerate(outcomes))


def test_a_batch_is_on_disk_before_the_next_is_embedded(corpora: Corpora, book: CollectionBook, tmp_path: Path) -> None:
    corpus, stored = corpora.open("w1"), []

    def count() -> int:
        store = TextStore(tmp_path / "workspaces" / "w1" / "corpus.db")
        with store.read() as snapshot:
            row = collection_row(snapshot, "c1")
        store.close()
        return row.chunks if row else 0

    documents = [NewDocument(f"k{number}", text=f"text {number}") for number in range(2 * BATCH_DOCUMENTS + 1)]
    corpus.ingest(book.make(), documents, lambda _: stored.append(count()))
    assert sorted(set(stored)) == [BATCH_DOCUMENTS, 2 * BATCH_DOCUMENTS, 2 * BATCH_DOCUMENTS + 1]


class _Failing(WordEmbedder):
    """Can be asked a number of times, and is away then."""

    times = 10**6

    def embed(self, texts: list[str]) -> NDArray[np.float32]:  # type: ignore[override]
        self.times -= 1
        if self.times < 0:
            raise ModelUnavailable("It is away.")
        return super().embed(texts)


@pytest.fixture
def embedder() -> _Failing:
    return _Failing()


def test_what_was_embedded_of_a_long_document_survives_an_embedder_that_fails(
    corpus: Corpus, book: CollectionBook, embedder: _Failing, tmp_path: Path
) -> None:
    paragraphs = [f"Paragraph {number} has words of its own and {number} more. " * 3 for number in range(200)]
    long = NewDocument("long", text="\n\n".join(paragraphs))
    embedder.times = 2
    with pytest.raises(ModelUnavailable):
        corpus.ingest(book.make(), [long])
    assert corpus.documents(book.make(), limit=5) == []
    assert embedder.texts == 2 * BATCH_CHUNKS
    embedder.times = 10**6
    (outcome,) = corpus.ingest(book.make(), [long])
    assert outcome.chunks_added > 2 * BATCH_CHUNKS
    assert embedder.texts == outcome.chunks_added
    store = TextStore(tmp_path / "workspaces" / "w1" / "corpus.db")
    with store.read() as snapshot:
        shas = [bytes(row[0]) for row in snapshot.execute("SELECT embed_sha FROM chunk")]
        assert len(known_vectors(snapshot, "words", shas)) == len(set(shas))
    store.close()
