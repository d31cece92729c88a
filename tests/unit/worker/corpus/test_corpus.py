from collections.abc import Callable
from pathlib import Path

import pytest
from support.data.corpora import CollectionBook, WordEmbedder

from hopnode.worker.corpus.corpus import Corpora, Corpus
from hopnode.worker.corpus.records import IngestOutcome, NewDocument
from hopnode.worker.corpus.sqlite.outbox import vector_name
from hopnode.worker.corpus.vectors.chroma import EmbeddedChroma, HttpChroma
from hopnode.worker.errors import ModelUnavailable, NotFound

PARAGRAPHS = [
    "# Whales",
    "The blue whale is the largest animal that is known to have lived. One alone weighs as much as thirty elephants. "
    "Its heart is as big as a small car, and beats eight times a minute.",
    "It feeds on krill, small crustaceans of the southern ocean, and swallows tons of them a day. In winter it fasts, "
    "and lives on the fat of the summer. Calves drink milk that is as thick as toothpaste.",
    "Its song can be heard over hundreds of kilometres of open water, day and night. Nobody knows what it says.",
]
TEXT = "\n\n".join(PARAGRAPHS)


def whale(text: str = TEXT, **more: object) -> NewDocument:
    return NewDocument("whale.md", text=text, title="Whales", media_type="text/markdown", **more)  # type: ignore[arg-type]


def test_a_stored_document_can_be_listed_read_and_cited(corpus: Corpus, book: CollectionBook) -> None:
    collection = book.make()
    (outcome,) = corpus.ingest(collection, [whale(url="https://sea.example/w", metadata={"depth": 200})])
    document = corpus.document(collection, "whale.md")
    chunks = corpus.read([collection], document.id)
    assert outcome == IngestOutcome("whale.md", "stored", document.id, chunks_added=len(chunks))
    assert document.characters == len(TEXT) and document.chunks == len(chunks) >= 3
    assert (document.title, document.url, document.metadata) == ("Whales", "https://sea.example/w", {"depth": 200})
    assert document.version == 1 and "_" not in document.id
    assert corpus.document_text(document.id) == TEXT
    for position, chunk in enumerate(chunks):
        assert chunk.text == TEXT[chunk.start : chunk.end]
        assert chunk.position == position and chunk.id == f"{document.id}_{position + 1}"
        assert (chunk.key, chunk.title, chunk.collection_id) == ("whale.md", "Whales", collection.id)
    assert corpus.chunks([collection], [chunks[1].id, "nope_1", chunks[0].id]) == [chunks[1], chunks[0]]


def test_progress_hears_of_each_document_once_it_is_stored(corpus: Corpus, book: CollectionBook) -> None:
    heard: list[str] = []

    def progress(outcome: IngestOutcome) -> None:
        heard.append(outcome.key)
        assert corpus.document(book.make(), outcome.key).id == outcome.document_id

    corpus.ingest(book.make(), [NewDocument(str(number), text=f"text {number}") for number in range(40)], progress)
    assert heard == [str(number) for number in range(40)]


def test_the_same_document_again_touches_nothing(corpus: Corpus, book: CollectionBook, embedder: WordEmbedder) -> None:
    corpus.ingest(book.make(), [whale()])
    before, texts, stats = corpus.document(book.make(), "whale.md"), embedder.texts, corpus.stats(book.make())
    (outcome,) = corpus.ingest(book.now("c1"), [whale()])
    assert (outcome.status, outcome.document_id) == ("unchanged", before.id)
    assert corpus.document(book.make(), "whale.md") == before
    assert embedder.texts == texts
    assert corpus.stats(book.make()) == stats


def test_an_edit_keeps_the_chunks_it_did_not_touch(
    corpus: Corpus, book: CollectionBook, embedder: WordEmbedder
) -> None:
    collection = book.make()
    (first,) = corpus.ingest(collection, [whale()])
    assert first.document_id
    before = corpus.read([collection], first.document_id)
    texts = embedder.texts
    edited = TEXT.replace("It feeds on krill", "It lives on krill", 1)
    (outcome,) = corpus.ingest(collection, [whale(edited)])
    after = corpus.read([collection], first.document_id)
    assert outcome.document_id == first.document_id
    assert (outcome.chunks_added, outcome.chunks_removed) == (1, 1)
    assert outcome.chunks_kept == len(before) - 1
    assert embedder.texts == texts + 1
    assert {chunk.id for chunk in before} - {chunk.id for chunk in after} == {
        next(chunk.id for chunk in before if "feeds on" in chunk.text)
    }
    assert all(chunk.text == edited[chunk.start : chunk.end] for chunk in after)
    assert max(int(chunk.id.rpartition("_")[2]) for chunk in after) == len(before) + 1
    assert corpus.document(collection, "whale.md").version == 2


def test_a_chunk_number_is_never_given_twice(corpus: Corpus, book: CollectionBook) -> None:
    collection = book.make()
    seen: dict[str, str] = {}
    for round_ in range(4):
        (outcome,) = corpus.ingest(collection, [whale(TEXT.replace("krill", f"krill{round_}"))])
        assert outcome.document_id
        for chunk in corpus.read([collection], outcome.document_id):
            assert seen.setdefault(chunk.id, chunk.text) == chunk.text


def test_new_metadata_is_stored_without_embedding_anything(
    corpus: Corpus, book: CollectionBook, embedder: WordEmbedder
) -> None:
    collection = book.make()
    corpus.ingest(collection, [whale(metadata={"year": 1})])
    texts = embedder.texts
    (outcome,) = corpus.ingest(collection, [whale(metadata={"year": 2}, url="https://new.example")])
    assert (outcome.status, outcome.chunks_added, outcome.chunks_removed) == ("stored", 0, 0)
    assert embedder.texts == texts
    hits = corpus.search([collection], "krill", filter={"year": 2}).hits
    assert hits and hits[0].chunk.url == "https://new.example"
    assert not corpus.search([collection], "krill", filter={"year": 1}).hits


def test_a_new_title_is_searchable_and_keeps_the_chunks(corpus: Corpus, book: CollectionBook) -> None:
    collection = book.make()
    (first,) = corpus.ingest(collection, [NewDocument("a", text="Some text about ships.", title="Oldtitle")])
    (second,) = corpus.ingest(collection, [NewDocument("a", text="Some text about ships.", title="Newtitle")])
    assert (second.chunks_kept, second.chunks_added, second.chunks_removed) == (1, 0, 0)
    assert first.document_id == second.document_id
    hit = corpus.search([collection], "newtitle").hits[0]
    assert hit.lexical_rank == 1 and hit.chunk.title == "Newtitle"
    assert all(hit.lexical_rank is None for hit in corpus.search([collection], "oldtitle").hits)


def test_a_text_that_was_seen_before_is_not_embedded_again(
    corpus: Corpus, book: CollectionBook, embedder: WordEmbedder
) -> None:
    corpus.ingest(book.make(), [whale()])
    corpus.delete(book.make(), ["whale.md"])
    texts = embedder.texts
    (outcome,) = corpus.ingest(book.make(), [whale()])
    assert outcome.status == "stored" and embedder.texts == texts


def test_a_failed_document_is_data_and_the_rest_is_stored(corpus: Corpus, book: CollectionBook) -> None:
    outcomes = corpus.ingest(
        book.make(),
        [
            NewDocument("empty", text=" \n "),
            NewDocument("nothing"),
            NewDocument("", text="no key"),
            NewDocument("k" * 3_000, text="long key"),
            NewDocument("half", text="half \ud800 character"),
            NewDocument("pdf", raw=b"%PDF-1.7 broken", media_type="application/pdf"),
            NewDocument("good", text="a good one"),
            NewDocument("bytes", raw="größer".encode(), filename="a.txt"),
        ],
    )
    assert [outcome.status for outcome in outcomes] == ["failed"] * 6 + ["stored"] * 2
    reasons = ["empty", "empty", "invalid-key", "invalid-key", "corrupt", "corrupt"]
    assert [outcome.reason for outcome in outcomes[:6]] == reasons
    assert all(outcome.message for outcome in outcomes[:6])
    assert {document.key for document in corpus.documents(book.make(), limit=10)} == {"good", "bytes"}


def test_a_document_that_fails_now_keeps_its_earlier_version(corpus: Corpus, book: CollectionBook) -> None:
    corpus.ingest(book.make(), [whale()])
    (outcome,) = corpus.ingest(book.make(), [whale(" ")])
    assert outcome.status == "failed"
    assert corpus.document(book.make(), "whale.md").characters == len(TEXT)


def test_documents_are_listed_by_key_in_pages(corpus: Corpus, book: CollectionBook) -> None:
    collection = book.make()
    corpus.ingest(collection, [NewDocument(f"k{number:02}", text=f"text {number}") for number in range(7)])
    pages: list[list[str]] = []
    after: str | None = None
    while page := corpus.documents(collection, limit=3, after=after):
        pages.append([document.key for document in page])
        after = page[-1].key
    assert pages == [["k00", "k01", "k02"], ["k03", "k04", "k05"], ["k06"]]


def test_stats_count_what_is_there(corpus: Corpus, book: CollectionBook) -> None:
    collection = book.make()
    assert corpus.stats(collection).documents == 0
    (outcome,) = corpus.ingest(collection, [whale()])
    assert outcome.document_id
    chunks = corpus.read([collection], outcome.document_id)
    stats = corpus.stats(collection)
    assert (stats.documents, stats.chunks, stats.vector_lag) == (1, len(chunks), 0)
    assert stats.tokens == sum(chunk.tokens for chunk in chunks)
    version = stats.index_version
    assert corpus.delete(collection, ["whale.md", "nope"]) == 1
    stats = corpus.stats(collection)
    assert (stats.documents, stats.chunks, stats.tokens) == (0, 0, 0)
    assert stats.index_version > version


def test_the_first_documents_of_an_open_collection_choose_its_embedder(corpus: Corpus, book: CollectionBook) -> None:
    collection = book.make(embedder=None)
    corpus.ingest(collection, [NewDocument("a", text="검색 엔진을 설치하는 방법을 설명합니다.")])
    assert (book.now("c1").embedder, book.now("c1").dimension) == ("use", 512)
    # A caller that still holds the old record does not get a second choice.
    corpus.ingest(collection, [NewDocument("b", text="Now plain English text.")])
    assert book.now("c1").embedder == "use"


def test_what_was_stored_before_the_embedder_failed_stays(
    open_node: Callable[..., Corpora], book: CollectionBook, embedder: WordEmbedder
) -> None:
    def fail_on_poison(texts: object) -> None:
        if "poison" in str(texts):
            raise ModelUnavailable("The embeddings endpoint answered 503.")

    embedder.on_embed = fail_on_poison
    corpus = open_node().open("w1")
    documents = [NewDocument(f"{number:02}", text=f"text {number}") for number in range(70)]
    documents.append(NewDocument("70", text="poison"))
    with pytest.raises(ModelUnavailable):
        corpus.ingest(book.make(), documents)
    assert corpus.stats(book.make()).documents == 64
    assert corpus.stats(book.make()).vector_lag == 0
    embedder.on_embed = lambda texts: None
    assert [outcome.status for outcome in corpus.ingest(book.make(), documents)] == ["unchanged"] * 64 + ["stored"] * 7


def test_two_workspaces_know_nothing_of_each_other(corpora: Corpora, book: CollectionBook) -> None:
    ours, theirs = book.make("c1", workspace="w1"), book.make("c2", workspace="w2")
    corpora.open("w1").ingest(ours, [whale()])
    (outcome,) = corpora.open("w2").ingest(theirs, [whale()])
    assert outcome.document_id
    chunk = corpora.open("w2").read([theirs], outcome.document_id)[0]
    corpus = corpora.open("w1")
    assert all(hit.chunk.collection_id == "c1" for hit in corpus.search([ours], "whale krill").hits)
    assert corpus.chunks([ours], [chunk.id]) == []
    for forbidden in (
        lambda: corpus.read([ours], outcome.document_id or ""),
        lambda: corpus.document_text(outcome.document_id or ""),
        lambda: corpus.search([theirs], "whale"),
        lambda: corpus.grep([theirs], "whale"),
        lambda: corpus.read([theirs], outcome.document_id or ""),
        lambda: corpus.chunks([theirs], [chunk.id]),
        lambda: corpus.documents(theirs, limit=1),
        lambda: corpus.document(theirs, "whale.md"),
        lambda: corpus.ingest(theirs, [whale()]),
        lambda: corpus.delete(theirs, ["whale.md"]),
        lambda: corpus.drop_collection(theirs),
        lambda: corpus.stats(theirs),
    ):
        with pytest.raises(NotFound):
            forbidden()
    assert corpora.open("w2").stats(theirs).documents == 1


def test_a_collection_of_the_workspace_that_was_not_named_is_not_read(corpus: Corpus, book: CollectionBook) -> None:
    first, second = book.make("c1"), book.make("c2")
    corpus.ingest(first, [whale()])
    (outcome,) = corpus.ingest(second, [whale()])
    assert outcome.document_id
    with pytest.raises(NotFound):
        corpus.read([first], outcome.document_id)
    assert corpus.chunks([first], [f"{outcome.document_id}_1"]) == []
    assert len(corpus.chunks([first, second], [f"{outcome.document_id}_1"])) == 1


@pytest.mark.parametrize("workspace_id", ["", "..", "a/b", "../w1", ".hidden", "a\0b", "x" * 200])
def test_a_workspace_id_never_becomes_a_path(corpora: Corpora, workspace_id: str) -> None:
    with pytest.raises(NotFound):
        corpora.open(workspace_id)


def test_a_dropped_collection_is_gone_and_can_be_filled_again(corpus: Corpus, book: CollectionBook) -> None:
    collection, other = book.make("c1"), book.make("c2")
    corpus.ingest(collection, [whale()])
    corpus.ingest(other, [NewDocument("b", text="another whale")])
    corpus.drop_collection(collection)
    assert corpus.stats(collection).documents == 0
    assert not corpus.search([collection], "whale").hits
    assert len(corpus.search([other], "whale").hits) == 1
    corpus.ingest(collection, [NewDocument("c", text="a new whale")])
    assert [hit.chunk.key for hit in corpus.search([collection], "whale").hits] == ["c"]
    assert corpus.search([collection], "whale").hits[0].dense_rank == 1


def test_a_dropped_workspace_leaves_no_file_and_no_vector(
    open_node: Callable[..., Corpora], book: CollectionBook, tmp_path: Path
) -> None:
    vectors = EmbeddedChroma(tmp_path / "chroma")
    corpora = open_node(vectors)
    corpora.open("w1").ingest(book.make(), [whale()])
    name = vector_name("w1", "c1", 1)
    assert vectors.count(name) and (tmp_path / "workspaces" / "w1").exists()
    corpora.drop_workspace("w1")
    assert vectors.count(name) is None and not (tmp_path / "workspaces" / "w1").exists()
    assert corpora.open("w1").stats(book.make()).documents == 0
    corpora.drop_workspace("never-there")


def test_a_workspace_that_is_dropped_while_chroma_is_away_is_removed_later(
    open_node: Callable[..., Corpora], book: CollectionBook, tmp_path: Path
) -> None:
    away = open_node(HttpChroma("http://127.0.0.1:9"))
    away.open("w1").ingest(book.make(), [whale()])
    away.drop_workspace("w1")
    assert away.open("w1").stats(book.make()).documents == 0
    away.close()
    back = open_node(EmbeddedChroma(tmp_path / "chroma"))
    back.drain_vectors()
    assert not (tmp_path / "workspaces" / "w1").exists()
