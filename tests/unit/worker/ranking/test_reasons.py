"""A reason says how a passage was found: by name, by a link, by words, or else by meaning."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.data.memory_insight import MemoryInsight, evidence_of
from support.harness.space import make_chunk

from hopnode.worker.corpus.analyzer import analyze
from hopnode.worker.ranking.evidence import Evidence
from hopnode.worker.ranking.one_shot import came_by
from hopnode.worker.ranking.reasons import TELLING_WORDS, called, reason, surface, telling_words, told_link
from hopnode.worker.ranking.weighing import rank


class Titled(MemoryInsight):
    """Texts with a title each, which may be empty; every chunk opens its document."""

    def __init__(self, texts: dict[str, str]) -> None:
        super().__init__([])
        rows = enumerate(texts.items())
        self.all = [replace(make_chunk(f"d{row}", row, text, title=title), position=0) for row, (title, text) in rows]
        self._terms = [tuple(analyze(f"{chunk.title}\n{chunk.text}", query=True)) for chunk in self.all]


FILMS = {
    "Northern Light": "a drama of 1931, made by Carla Boes.",
    "Carla Boes": "born near the harbour, she directed for forty years.",
    "Harbours": "painted ships lie in the harbour.",
    "": "The Painted Steamer was built in the north for the harbour.",
}


def asked(question: str) -> Evidence:
    evidence = evidence_of(question, [], Titled(FILMS))
    rank(evidence)
    return evidence


# --- reasons ------------------------------------------------------------------------------------------------------


def test_what_the_question_names_is_given_as_that() -> None:
    assert reason(asked("Who directed Northern Light?"), 0, [0, 1]) == "Named in the question."


def test_what_a_link_leads_to_is_told_with_both_names() -> None:
    evidence = asked("Who directed Northern Light?")
    assert reason(evidence, 1, [0, 1]) == "“Northern Light” mentions “Carla Boes”."


def test_a_passage_is_no_way_to_itself() -> None:
    evidence = asked("Who directed Northern Light?")
    assert "mentions" not in reason(evidence, 1, [1])


def test_without_a_name_and_a_link_the_words_in_common_are_told_in_the_order_of_the_question() -> None:
    told = reason(asked("Which harbour has painted ships?"), 2, [])
    assert told == "Shares with the question: harbour, painted, ships."


def test_without_a_word_in_common_it_is_the_meaning() -> None:
    evidence = asked("Which harbour has painted ships?")
    evidence.consider({9: make_chunk("d9", 9, "Nothing of the kind.")})
    assert reason(evidence, 9, []) == "Close to the question in meaning."


def test_a_link_is_told_in_the_direction_in_which_the_name_is_read() -> None:
    evidence = asked("Where was Carla Boes born?")
    way = evidence.way_to(0, [1])
    assert way is not None
    source, link = way
    assert told_link(evidence, 0, source, link) == "“Northern Light” mentions “Carla Boes”."


def test_how_the_one_query_came_by_a_passage_names_the_passage_that_led_there() -> None:
    evidence = asked("Who directed Northern Light?")
    evidence.near = frozenset({0})
    assert came_by(evidence, 0, [1]) == "Who directed Northern Light?"
    assert came_by(evidence, 1, [0]) == "link: Northern Light"
    evidence.consider({9: make_chunk("d9", 9, "Nothing of the kind.")})
    assert came_by(evidence, 9, [0, 9]) == "Who directed Northern Light?"


# --- names and words ----------------------------------------------------------------------------------------------


def test_a_passage_is_called_by_its_title_or_by_the_name_that_opens_it_as_it_is_written() -> None:
    evidence = asked("Which harbour has a Painted Steamer?")
    assert called(evidence, 2) == "Harbours"
    assert called(evidence, 3).casefold() == " ".join(evidence.candidates[3].reading.name)
    assert called(evidence, 3) in FILMS[""]


def test_of_many_words_in_common_the_rarest_are_told() -> None:
    words = [f"word{n}" for n in range(TELLING_WORDS + 2)]
    texts = {"one": " ".join(words), "two": words[0], "three": f"{words[0]} {words[1]}"}
    evidence = evidence_of(" ".join(words), [], Titled(texts))
    assert telling_words(evidence, 0) == words[2:]


@pytest.mark.parametrize(
    ("text", "phrase", "found"),
    [
        ("Born in the Old-Town of Bergen.", ("old", "town"), "Old-Town"),
        ("NORTHERN LIGHT, a drama", ("northern", "light"), "NORTHERN LIGHT"),
        ("Sie wohnt in Ålesund.", tuple(analyze("Ålesund", query=True)), "Ålesund"),
        ("", ("old", "town"), "old town"),
        ("Something else.", ("old", "town"), "old town"),
        ("Old Town", (), ""),
    ],
)
def test_a_phrase_is_shown_as_the_text_writes_it(text: str, phrase: tuple[str, ...], found: str) -> None:
    assert surface(text, phrase) == found


@given(st.lists(st.sampled_from(["Anna", "BERG", "old", "Town"]), min_size=1, max_size=5), st.data())
def test_every_piece_of_a_text_is_found_in_it_again(words: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(words) - 1))
    piece = words[start : data.draw(st.integers(start + 1, len(words)))]
    shown = surface(" ".join(words), tuple(word.lower() for word in piece))
    assert shown in " ".join(words) and shown.lower() == " ".join(piece).lower()
