import threading
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.data.corpora import CollectionBook, open_corpora

from hopnode.worker.corpus.corpus import Corpus
from hopnode.worker.corpus.records import NewDocument
from hopnode.worker.corpus.vectors.chroma import EmbeddedChroma
from hopnode.worker.ranking.one_shot import came_by, one_shot, route, survey
from hopnode.worker.ranking.weighing import fitted_rounds, judge
from hopnode.worker.store.collections import Collection

TEXTS = {
    "Northern Light": "Northern Light is a 1931 drama directed by Carla Boes and starring Lien Dyer.",
    "Carla Boes": "Carla Boes (26 August 1887 – 6 July 1958) directed 158 features over forty years.",
    "Lighthouse": "A lighthouse shows a light to ships; the northern ones are painted red and white.",
    "Steamer": "The steamer left the harbour at night and reached the islands in the morning.",
    **{f"Ship {n}": f"Ship {n} is a 19{n:02} steamer that was built in the north." for n in range(30)},
}


@pytest.fixture
def collection() -> Collection:
    return CollectionBook().make(embedder="minilm")


@pytest.fixture
def corpus(tmp_path: Path, collection: Collection) -> Generator[Corpus]:
    book = CollectionBook()
    book.make(embedder="minilm")
    corpora = open_corpora(tmp_path, EmbeddedChroma(tmp_path / "chroma"), book)
    corpus = corpora.open("w1")
    corpus.ingest(collection, [NewDocument(key=key, text=text, title=key) for key, text in TEXTS.items()])
    yield corpus
    corpora.close()


def test_one_shot_puts_what_the_question_names_first(corpus: Corpus, collection: Collection) -> None:
    evidence = survey("Who directed Northern Light?", corpus.insight([collection]))
    best = one_shot(evidence, 3)
    assert evidence.candidates[best[0].row].chunk.key == "Northern Light"
    assert len(best) == 3
    assert all(0 < one.trust < 1 for one in best)


def test_auto_stays_with_one_shot_when_nothing_needed_is_missing(corpus: Corpus, collection: Collection) -> None:
    evidence = survey("Who directed Northern Light?", corpus.insight([collection]))
    assert route(evidence, one_shot(evidence, 10)).mode == "one_shot"


def test_auto_keeps_what_links_led_to_and_says_by_which_passage(corpus: Corpus, collection: Collection) -> None:
    evidence = survey("When did the director of Northern Light die?", corpus.insight([collection]))
    kept = route(evidence, one_shot(evidence, 10)).shot[:2]
    row_of = {evidence.candidates[one.row].chunk.key: one.row for one in kept}
    assert set(row_of) == {"Northern Light", "Carla Boes"}
    # as in a large collection, where the query alone does not bring her
    evidence.near = frozenset({row_of["Northern Light"]})
    came = {key: came_by(evidence, row, list(row_of.values())) for key, row in row_of.items()}
    assert came == {"Northern Light": evidence.question.text, "Carla Boes": "link: Northern Light"}


def test_auto_sends_the_agent_when_a_link_leads_to_what_is_missing(corpus: Corpus, collection: Collection) -> None:
    evidence = survey("When did the director of Northern Light die?", corpus.insight([collection]))
    chosen = route(evidence, one_shot(evidence, 1))
    assert chosen.mode == "agent"
    assert chosen.why == ("The one query lacks a passage that is needed: “Northern Light” mentions “Carla Boes”.")


def test_auto_sends_the_agent_when_nothing_is_sure(corpus: Corpus, collection: Collection) -> None:
    evidence = survey("What is the airspeed of an unladen swallow?", corpus.insight([collection]))
    assert route(evidence, one_shot(evidence, 10)).mode == "agent"


def test_words_lead_where_the_embedder_does_not_know_the_language_unless_the_collection_says_otherwise(
    corpus: Corpus, collection: Collection
) -> None:
    korean = "누가 북극광을 감독했나?"
    assert not corpus.insight([collection]).words_lead("Who directed Northern Light?")
    assert corpus.insight([collection]).words_lead(korean)
    assert not corpus.insight([replace(collection, dense_weight=0.5)]).words_lead(korean)
    first = fitted_rounds()[0]
    numbers = np.eye(len(first.order))
    plain, led_by_words = (judge(numbers, first, words_lead=words_lead)[1] for words_lead in (False, True))
    assert not np.allclose(plain, led_by_words)


def test_a_policy_that_looks_twice_sees_one_state_of_the_index(corpus: Corpus, collection: Collection) -> None:
    insight, question = corpus.insight([collection]), "Who directed Northern Light?"
    with insight.snapshot(question):
        before = insight.size()
        (first, *_) = insight.candidates(question, 5).hits
        deleting = threading.Thread(target=corpus.delete, args=(collection, [first.chunk.key]))
        deleting.start()
        deleting.join()
        assert insight.size() == before
        assert insight.chunks([first.chunk.row])
    assert insight.size() == before - 1
    assert not insight.chunks([first.chunk.row])
