from collections.abc import Generator, Mapping, Sequence
from pathlib import Path

import pytest
from support.data.corpora import CollectionBook, open_corpora

from hopnode.worker.corpus.corpus import Corpus
from hopnode.worker.corpus.finding.insight import CorpusInsight
from hopnode.worker.corpus.records import Chunk, Hit, NewDocument, SearchHits
from hopnode.worker.corpus.vectors.chroma import EmbeddedChroma
from hopnode.worker.harness.agent import SearchAgent
from hopnode.worker.harness.budget import Limits
from hopnode.worker.harness.outcome import AgentOutcome
from hopnode.worker.harness.policies.offline import OfflinePolicy
from hopnode.worker.harness.trajectory import Recorder
from hopnode.worker.ranking.signals import names_of
from hopnode.worker.ranking.weighing import fitted_rounds
from hopnode.worker.searches.space import Space
from hopnode.worker.store.collections import Collection

FILMS = {
    "Northern Light": "Northern Light is a 1931 drama directed by Carla Boes and starring Lien Dyer.",
    "Paper Harbour": "Paper Harbour is a 1951 drama film directed by Kurt Bernhard.",
    "Carla Boes": "Carla Boes (26 August 1887 – 6 July 1958) directed 158 features over forty years.",
    "Kurt Bernhard": "Kurt Bernhard (15 April 1899 – 22 February 1981) was born in Worms.",
    "Lien Dyer": "Lien Dyer sang in revues and later kept a bakery.",
}
NOISE = {
    f"Ship {n}": f"Ship {n} is a 19{n:02} steamer that was built in the north and sank near a harbour."
    for n in range(30)
}
QUESTION = "Which film has the director who died earlier, Northern Light or Paper Harbour?"


@pytest.fixture
def book() -> CollectionBook:
    return CollectionBook()


@pytest.fixture
def corpus(tmp_path: Path, book: CollectionBook) -> Generator[Corpus]:
    corpora = open_corpora(tmp_path, EmbeddedChroma(tmp_path / "chroma"), book)
    yield corpora.open("w1")
    corpora.close()


def fill(corpus: Corpus, collection: Collection, texts: Mapping[str, str], *, titled: bool = True) -> None:
    documents = [
        NewDocument(key=key, text=text, title=key if titled else None, metadata={"noise": key in NOISE})
        for key, text in texts.items()
    ]
    corpus.ingest(collection, documents)


def ask(
    corpus: Corpus, collection: Collection, question: str, *, keep: int = 5, filter: Mapping[str, bool] | None = None
) -> tuple[AgentOutcome, Recorder]:
    recorder = Recorder()
    space = Space(corpus, [collection], filter)
    policy = OfflinePolicy(corpus.insight([collection], filter), keep)
    agent = SearchAgent(policy, space, limits=Limits(), recorder=recorder, check=lambda: None)
    return agent.run(question), recorder


def keys(outcome: AgentOutcome, count: int) -> set[str]:
    return {one.chunk.key for one in outcome.selections[:count]}


@pytest.mark.parametrize("titled", [True, False])
def test_the_agent_follows_names_to_what_the_question_does_not_say(
    corpus: Corpus, book: CollectionBook, titled: bool
) -> None:
    collection = book.make(embedder="minilm")
    fill(corpus, collection, FILMS | NOISE, titled=titled)
    one_shot = {hit.chunk.key for hit in corpus.search([collection], QUESTION, k=4).hits}
    outcome, _ = ask(corpus, collection, QUESTION)
    wanted = {"Northern Light", "Paper Harbour", "Carla Boes", "Kurt Bernhard"}
    assert not wanted <= one_shot
    assert keys(outcome, 5) >= wanted
    assert outcome.stop_reason == "finished"


def test_a_document_that_was_deleted_is_not_followed(corpus: Corpus, book: CollectionBook) -> None:
    collection = book.make(embedder="minilm")
    fill(corpus, collection, FILMS | NOISE)
    corpus.delete(collection, ["Carla Boes"])
    outcome, _ = ask(corpus, collection, QUESTION)
    assert "Carla Boes" not in keys(outcome, 50)


def test_deleting_and_adding_again_leaves_the_links_of_a_fresh_build(corpus: Corpus, book: CollectionBook) -> None:
    fresh, edited = book.make("c1", embedder="minilm"), book.make("c2", embedder="minilm")
    fill(corpus, fresh, FILMS | NOISE)
    fill(corpus, edited, NOISE | FILMS)
    corpus.delete(edited, list(FILMS))
    corpus.ingest(edited, [NewDocument(key="Carla Boes", text="Somebody else altogether.")])
    fill(corpus, edited, FILMS)
    first, second = (ask(corpus, one, QUESTION)[0] for one in (fresh, edited))
    assert keys(first, 5) == keys(second, 5)
    assert [one.score for one in first.selections[:5]] == [one.score for one in second.selections[:5]]


def test_a_filter_holds_for_links_too(corpus: Corpus, book: CollectionBook) -> None:
    collection = book.make(embedder="minilm")
    fill(corpus, collection, FILMS | NOISE)
    outcome, _ = ask(corpus, collection, QUESTION, filter={"noise": True})
    assert keys(outcome, 50) <= NOISE.keys()
    assert outcome.selections


def test_what_is_returned_was_brought_into_view_and_what_does_not_help_was_pruned(
    corpus: Corpus, book: CollectionBook
) -> None:
    collection = book.make(embedder="minilm")
    fill(corpus, collection, FILMS | NOISE)
    outcome, recorder = ask(corpus, collection, QUESTION)
    shown = {chunk for step in recorder.steps if step.kind == "observation" for chunk in step.data["shown"]}
    pruned = {chunk for step in recorder.steps if step.kind == "prune" for chunk in step.data["chunk_ids"]}
    returned = {one.chunk.id for one in outcome.selections}
    assert returned <= shown
    assert pruned
    assert not returned & pruned
    assert outcome.usage.context_tokens_final < outcome.usage.context_tokens_peak


class Elsewhere(CorpusInsight):
    """Knows of nothing but the chunks of these keys, whatever is asked."""

    chunks_known: Sequence[Chunk] = ()

    def candidates(self, question: str, per_leg: int) -> SearchHits:
        return SearchHits(tuple(Hit(chunk, 1.0, rank, rank) for rank, chunk in enumerate(self.chunks_known, 1)))


def found_elsewhere(corpus: Corpus, collection: Collection, question: str, known: Sequence[Chunk]) -> AgentOutcome:
    insight = corpus.insight([collection], None)
    elsewhere = Elsewhere(insight.store, insight.memory, insight.collections, insight.filter, insight.search)
    elsewhere.chunks_known = known
    space = Space(corpus, [collection], None)
    agent = SearchAgent(OfflinePolicy(elsewhere), space, limits=Limits(), recorder=Recorder(), check=lambda: None)
    return agent.run(question)


def test_the_first_passages_are_brought_into_view_however_little_is_sure(corpus: Corpus, book: CollectionBook) -> None:
    collection = book.make(embedder="minilm")
    ships = {f"Ship {n}": f"Ship {n} is a steamer that sank near a harbour." for n in range(120)}
    fill(corpus, collection, FILMS | ships)
    question = "What sank near a harbour?"
    known = [corpus.read([collection], one.id)[0] for one in corpus.documents(collection, limit=5)]
    assert {chunk.key for chunk in known} == FILMS.keys()
    assert not {hit.chunk.key for hit in corpus.search([collection], question, k=50).hits} & FILMS.keys()
    assert keys(found_elsewhere(corpus, collection, question, known), 50) >= FILMS.keys()


def test_a_passage_among_many_of_one_name_is_brought_into_view_by_how_it_begins(
    corpus: Corpus, book: CollectionBook
) -> None:
    collection = book.make(embedder="minilm")
    rules = [
        f"Handbook rule {n}: ropes are kept dry, and tools are counted at night and again at dawn." for n in range(400)
    ]
    handbook = NewDocument(key="Handbook", title="Handbook", text="\n\n".join(rules))
    corpus.ingest(collection, [handbook], max_chunk_tokens=24)
    (document,) = corpus.documents(collection, limit=2)
    sought = [chunk for chunk in corpus.read([collection], document.id) if "rule 277:" in chunk.text]
    question = "Which ropes are kept dry?"
    for query in (question, "Handbook", f"Handbook {question}"):
        assert sought[0].id not in {hit.chunk.id for hit in corpus.search([collection], query, k=50).hits}
    found = found_elsewhere(corpus, collection, question, sought)
    assert sought[0].id in {one.chunk.id for one in found.selections}


def test_every_passage_says_why_it_is_there(corpus: Corpus, book: CollectionBook) -> None:
    collection = book.make(embedder="minilm")
    fill(corpus, collection, FILMS | NOISE)
    outcome, _ = ask(corpus, collection, QUESTION)
    why = {one.chunk.key: one.justification for one in outcome.selections}
    assert why["Northern Light"] == "Named in the question."
    assert why["Carla Boes"] == "“Northern Light” mentions “Carla Boes”."


def test_the_same_question_gets_the_same_answer(corpus: Corpus, book: CollectionBook) -> None:
    collection = book.make(embedder="minilm")
    fill(corpus, collection, FILMS | NOISE)
    first, second = (ask(corpus, collection, QUESTION)[0].selections for _ in range(2))
    assert first == second


@pytest.mark.parametrize("question", ["?", "the", "東京", "zzz qqq", "Northern Light"])
def test_odd_questions_end_well(corpus: Corpus, book: CollectionBook, question: str) -> None:
    collection = book.make(embedder="minilm")
    fill(corpus, collection, FILMS)
    outcome, _ = ask(corpus, collection, question)
    assert outcome.stop_reason in ("finished", "nothing-found")
    assert outcome.degraded == ()


def test_an_empty_collection_holds_nothing(corpus: Corpus, book: CollectionBook) -> None:
    outcome, _ = ask(corpus, book.make(embedder="minilm"), QUESTION)
    assert (outcome.selections, outcome.stop_reason) == ((), "nothing-found")


def test_the_fitted_weights_have_the_form_of_the_evidence() -> None:
    first, *later = fitted_rounds()
    assert first.order.shape == (len(names_of(1)),)
    assert {weights.order.shape for weights in later} == {(len(names_of(2)),)}
    assert all(weights.trust.shape == (len(weights.order) + 1,) for weights in (first, *later))
    assert all((weights.scale > 0).all() for weights in (first, *later))
