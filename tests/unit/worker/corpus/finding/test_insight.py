from collections.abc import Callable
from pathlib import Path

import pytest
from support.data.corpora import CollectionBook, WordEmbedder

from hopnode.worker.corpus.corpus import Corpora, Corpus
from hopnode.worker.corpus.names import MOST_SHARERS
from hopnode.worker.corpus.records import NewDocument
from hopnode.worker.corpus.vectors.chroma import HttpChroma
from hopnode.worker.errors import NotFound

FILMS = [
    NewDocument(
        "jaws", text="Jaws is a film about a shark. Brody is the chief.", title="Jaws", metadata={"year": 1975}
    ),
    NewDocument("brody", text="Martin Brody fears the sea.", title="Martin Brody", metadata={"year": 1975}),
    NewDocument("alien", text="Alien is a film about a ship and a cat.", title="Alien", metadata={"year": 1979}),
]


@pytest.fixture
def filled(corpus: Corpus, book: CollectionBook) -> Corpus:
    corpus.ingest(book.make(), FILMS)
    return corpus


def row(corpus: Corpus, book: CollectionBook, key: str, collection: str = "c1") -> int:
    made = book.make(collection)
    return corpus.read([made], corpus.document(made, key).id)[0].row


def test_it_counts_the_chunks_of_all_collections_that_were_named(filled: Corpus, book: CollectionBook) -> None:
    filled.ingest(book.make("c2"), [NewDocument("x", text="Elsewhere a shark swims.")])
    assert filled.insight([book.make()]).size() == 3
    assert filled.insight([book.make(), book.make("c2")]).size() == 4
    assert filled.insight([book.make("never filled")]).size() == 0


def test_frequencies_are_sums_over_the_collections(filled: Corpus, book: CollectionBook) -> None:
    filled.ingest(book.make("c2"), [NewDocument("x", text="A film, a film.")])
    both = filled.insight([book.make(), book.make("c2")])
    assert both.frequencies(["film", "shark", "unknown"]) == {"film": 3, "shark": 1}
    assert both.frequencies([]) == {}


def test_names_are_found_by_their_first_terms_and_say_whom_they_name(filled: Corpus, book: CollectionBook) -> None:
    insight = filled.insight([book.make()])
    assert "martin brody" in insight.phrases(["martin brody", "sea"])
    (named,) = [one for one in insight.named(["martin brody"]) if one.quality == 1.0]
    assert named.row == row(filled, book, "brody") and named.phrase == "martin brody"
    assert insight.phrases(["nobody"]) == [] and insight.named(["nobody", "martin"]) == []


def test_a_name_that_too_many_go_by_names_nobody(filled: Corpus, book: CollectionBook) -> None:
    insight, collection = filled.insight([book.make()]), book.make()
    same = [NewDocument(f"s{number}", text="it is one of many", title="Sequel Nine") for number in range(MOST_SHARERS)]
    filled.ingest(collection, same)
    assert "sequel nine" in insight.phrases(["sequel nine"])
    assert len(insight.named(["sequel nine"])) == MOST_SHARERS
    filled.ingest(collection, [NewDocument("one more", text="it is one too many", title="Sequel Nine")])
    assert "sequel nine" not in insight.phrases(["sequel nine"])
    assert insight.named(["sequel nine"]) == []


def test_a_filter_holds_for_names_and_chunks(filled: Corpus, book: CollectionBook) -> None:
    old = filled.insight([book.make()], {"year": {"lt": 1979}})
    alien, jaws = row(filled, book, "alien"), row(filled, book, "jaws")
    assert set(old.chunks([alien, jaws, 999])) == {jaws}
    assert old.named(["alien"]) == [] and old.named(["jaws"])
    assert [hit.chunk.key for hit in old.candidates("film", 5).hits if hit.lexical_rank] == ["jaws"]


def test_chunks_of_a_collection_that_was_not_named_are_left_out(filled: Corpus, book: CollectionBook) -> None:
    filled.ingest(book.make("c2"), [NewDocument("x", text="Elsewhere a shark swims.")])
    elsewhere = row(filled, book, "x", "c2")
    assert filled.insight([book.make()]).chunks([elsewhere]) == {}
    assert set(filled.insight([book.make("c2")]).chunks([elsewhere])) == {elsewhere}


def test_a_phrase_stands_where_its_terms_follow_one_another(filled: Corpus, book: CollectionBook) -> None:
    insight = filled.insight([book.make()])
    jaws, alien = row(filled, book, "jaws"), row(filled, book, "alien")
    found = insight.holding([("film", "about"), ("about", "film"), ("shark",), ("the", "sea")], 5)
    assert found == [[jaws, alien], [], [jaws], [row(filled, book, "brody")]]
    assert insight.holding([("film", "about"), ("shark",)], 1) == [[], [jaws]]  # one phrase stands in too many


def test_similarities_are_cosines_of_rows_that_have_a_vector(
    filled: Corpus, book: CollectionBook, embedder: WordEmbedder
) -> None:
    insight = filled.insight([book.make()])
    rows = [row(filled, book, key) for key in ("jaws", "alien")]
    similar = insight.similarities("shark chief", [*rows, 999])
    assert set(similar) == set(rows) and similar[rows[0]] > similar[rows[1]]
    chunk = insight.chunks(rows)[rows[0]]
    expected = float(embedder.embed_query("shark chief") @ embedder.embed([f"Jaws\n{chunk.text}"])[0])
    assert similar[rows[0]] == pytest.approx(expected, abs=1e-6)


def test_words_lead_where_every_collection_gives_vectors_little_weight(filled: Corpus, book: CollectionBook) -> None:
    light = book.make("light", dense_weight=0.1)
    filled.ingest(light, [NewDocument("x", text="text")])
    assert not filled.insight([book.make()]).words_lead("a question")
    assert filled.insight([light]).words_lead("a question")
    assert not filled.insight([light, book.make()]).words_lead("a question")
    assert not filled.insight([book.make("never filled")]).words_lead("a question")


def test_the_chunks_around_one_are_those_of_its_document_in_order(corpus: Corpus, book: CollectionBook) -> None:
    text = "\n\n".join(f"Part {number} has a few words of its own, " * 5 for number in range(6))
    corpus.ingest(book.make(), [NewDocument("long", text=text), NewDocument("other", text="other")])
    chunks = corpus.read([book.make()], corpus.document(book.make(), "long").id)
    assert len(chunks) >= 6
    insight = corpus.insight([book.make()])
    assert insight.around(chunks[2], 1) == [chunks[1], chunks[3]]
    assert insight.around(chunks[0], 2) == [chunks[1], chunks[2]]
    assert insight.around(chunks[-1], 1) == [chunks[-2]]
    assert insight.around(chunks[2], 0) == []


def test_within_a_snapshot_all_answers_are_of_one_moment(
    filled: Corpus, book: CollectionBook, open_node: Callable[..., Corpora], tmp_path: Path
) -> None:
    other = open_node(HttpChroma("http://127.0.0.1:9"), root=tmp_path).open("w1")
    insight = filled.insight([book.make()])
    with insight.snapshot("film"):
        before = (insight.size(), insight.frequencies(["film"]))
        other.ingest(book.make(), [NewDocument("new", text="A film about whales.", title="Whales")])
        other.delete(book.make(), ["jaws"])
        assert (insight.size(), insight.frequencies(["film"])) == before == (3, {"film": 2})
        assert insight.named(["jaws"]) and not insight.named(["whales"])
        with insight.snapshot("film"):  # within another it is that one
            assert insight.size() == 3
        assert insight.size() == 3
    assert insight.frequencies(["film"]) == {"film": 2} and insight.named(["whales"]) and not insight.named(["jaws"])


def test_a_question_is_embedded_once_for_all_that_is_asked_about_it(
    filled: Corpus, book: CollectionBook, embedder: WordEmbedder
) -> None:
    insight, before = filled.insight([book.make()]), embedder.texts
    with insight.snapshot("a shark in the sea"):
        insight.candidates("a shark in the sea", 5)
        insight.similarities("a shark in the sea", [1, 2, 3])
    assert embedder.texts == before + 1


def test_another_workspaces_collection_is_refused(filled: Corpus, book: CollectionBook) -> None:
    with pytest.raises(NotFound):
        filled.insight([book.make("theirs", workspace="w2")])
