"""Rare words of a question weigh more than frequent ones, names point somewhere only while they are rare, in any script."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.data.memory_insight import MemoryInsight

from hopnode.worker.corpus.bm25 import rarity, term_score
from hopnode.worker.ranking.question import (
    LONGEST_GRAM,
    MOST_SHARED,
    MOST_STRENGTH,
    POINTING_COUNT,
    SHARED_COUNT,
    SINGLE_COUNT,
    STRONG_PHRASE,
    WeighedQuestion,
)

TEXTS = ["Nordlys sails at dawn", "the harbour at dawn", "the lighthouse at dusk", "the keeper sails", "東京都の灯台"]


class Counted(MemoryInsight):
    """So many chunks in all, and of each term as many as are told; notes what is looked up."""

    def __init__(self, chunks: int, counts: dict[str, int]) -> None:
        super().__init__([])
        self.chunks_in_all, self.counts = chunks, counts
        self.asked: list[list[str]] = []

    def size(self) -> int:
        return self.chunks_in_all

    def frequencies(self, terms):
        self.asked.append(list(terms))
        return {term: self.counts[term] for term in self.asked[-1] if term in self.counts}


def question_over(chunks: int, counts: dict[str, int], text: str = "") -> WeighedQuestion:
    question = WeighedQuestion(text, Counted(chunks, counts))
    question.learn(counts)
    return question


# --- weights ------------------------------------------------------------------------------------------------------


def test_a_rare_word_weighs_more_than_a_frequent_one_and_an_unknown_word_most() -> None:
    question = WeighedQuestion("Who keeps the Nordlys at dawn?", MemoryInsight(TEXTS))
    assert question.frequency("the") == 3 and question.frequency("nordlys") == 1
    assert question.weight("keeps") > question.weight("nordlys") > question.weight("dawn") > question.weight("the") > 0


@given(st.integers(1, 10_000), st.data())
def test_the_weight_of_a_term_falls_with_every_chunk_that_holds_it_and_is_never_below_zero(
    chunks: int, data: st.DataObject
) -> None:
    held = data.draw(st.integers(0, chunks - 1))
    assert rarity(chunks, held) > rarity(chunks, held + 1) > 0
    assert rarity(chunks, chunks + 1) == 0


@given(st.floats(0.01, 20), st.integers(0, 50), st.floats(1, 500), st.floats(1, 500))
def test_repetition_adds_less_and_less_and_a_longer_text_gets_less(
    weight: float, count: int, length: float, mean: float
) -> None:
    first, second, third = (term_score(weight, float(count + more), length, mean) for more in range(3))
    assert first < second < third < weight * 2.2
    assert second - first > third - second
    assert term_score(weight, float(count + 1), length + 1, mean) < second


def test_a_word_that_stands_twice_in_a_phrase_weighs_once() -> None:
    question = question_over(100, {"new": 3, "york": 2})
    assert question.weight_of(["new", "york", "new"]) == question.weight("new") + question.weight("york")
    assert question.weight_of([]) == 0


def test_the_strength_of_a_phrase_grows_with_its_weight_and_has_an_end() -> None:
    question = question_over(100_000, {f"t{n}": 1 for n in range(10)})
    strengths = [question.strength_of([f"t{n}" for n in range(size)]) for size in range(10)]
    assert strengths == sorted(strengths)
    assert strengths[0] == 0 and strengths[-1] == MOST_STRENGTH
    assert strengths[1] == pytest.approx(question.weight("t0") / STRONG_PHRASE)


# --- stems and pieces ---------------------------------------------------------------------------------------------


def test_forms_of_one_word_share_a_stem_that_weighs_as_the_rarest_of_them() -> None:
    question = question_over(100, {"harbour": 9, "harbours": 2}, "harbour harbours")
    assert list(question.stems) == ["harbou"]
    assert question.stems["harbou"] == question.weight("harbours")
    assert question.total == question.weight("harbours")


def test_what_is_covered_is_a_share_of_all_stems() -> None:
    question = WeighedQuestion("Nordlys harbour dawn", MemoryInsight(TEXTS))
    none, some, every = question.coverages(np.array([[False] * 3, [True, False, False], [True] * 3]))
    assert none == 0 < some < every == pytest.approx(1)


def test_pieces_of_a_question_have_two_words_or_more_and_never_too_many() -> None:
    question = WeighedQuestion(" ".join(f"w{n}" for n in range(12)), MemoryInsight(TEXTS))
    assert {len(piece) for piece in question.grams} == set(range(2, LONGEST_GRAM + 1))
    short, long = question.terms[:2], question.terms[:3]
    assert question.grams[long] > question.grams[short] > 0


def test_the_words_of_a_question_keep_how_they_are_written() -> None:
    question = WeighedQuestion("Where does NORDLYS sail?", MemoryInsight(TEXTS))
    assert list(question.words) == ["Where", "does", "NORDLYS", "sail"]
    assert question.words["NORDLYS"] == ["nordlys"]
    assert question.word_weights["NORDLYS"] == question.weight("nordlys")


@pytest.mark.parametrize(
    "text", ["", "   ", "?!…", "🙂🙂", "\u200b", "a" * 5_000, "東京都の灯台は?", "مَن بنى المنارة؟", "ใครสร้างประภาคาร"]
)
def test_any_text_is_a_question(text: str) -> None:
    question = WeighedQuestion(text, MemoryInsight(TEXTS))
    assert question.total > 0
    covered = question.coverages(np.ones((1, len(question.stems)), bool))[0]
    assert covered == (pytest.approx(1) if question.stems else 0)
    assert all(weight >= 0 for weight in question.grams.values())


def test_a_question_in_a_script_without_spaces_finds_its_terms_in_the_texts() -> None:
    question = WeighedQuestion("東京都", MemoryInsight(TEXTS))
    assert question.terms and all(question.frequency(term) == 1 for term in question.terms)


@given(st.text(max_size=60))
@settings(deadline=None)
def test_no_text_breaks_a_question(text: str) -> None:
    question = WeighedQuestion(text, MemoryInsight(TEXTS))
    assert question.known == frozenset(question.terms)
    assert sum(question.stems.values()) in (question.total, 0)
    assert all(2 <= len(piece) <= LONGEST_GRAM for piece in question.grams)


def test_over_an_empty_index_every_word_weighs_the_same() -> None:
    question = WeighedQuestion("Where does Nordlys sail", MemoryInsight([]))
    assert len({question.weight(term) for term in question.terms}) == 1
    assert question.total > 0


# --- what is looked up, and what points ---------------------------------------------------------------------------


def test_a_term_is_looked_up_once() -> None:
    insight = Counted(10, {"nordlys": 1})
    question = WeighedQuestion("Nordlys Nordlys", insight)
    question.learn(["nordlys", "holm", "holm"])
    question.learn(["holm"])
    assert insight.asked == [["nordlys"], ["holm"]]
    assert question.frequency("holm") == 0 and question.frequency("never asked") == 0


def test_a_name_points_while_one_of_its_words_is_rare() -> None:
    question = question_over(1_000, {"old": 400, "town": 50, "street": 51})
    assert question.usable(("old", "town"))
    assert not question.usable(("old", "street"))
    assert question.usable(("old", "never seen"))


def test_a_name_of_one_word_has_to_be_rarer() -> None:
    question = question_over(1_000, {"rare": 20, "frequent": 21})
    assert question.usable(("rare",)) and not question.usable(("frequent",))
    assert question.usable(("frequent", "rare")), "in company it may be more frequent"


def test_in_a_small_collection_a_few_chunks_are_few_whatever_share_they_are() -> None:
    question = question_over(12, {"a": POINTING_COUNT, "b": POINTING_COUNT + 1})
    assert question.usable(("a", "b")) and not question.usable(("b", "b"))
    assert SINGLE_COUNT >= POINTING_COUNT


@pytest.mark.parametrize(
    ("chunks", "count", "rare"),
    [
        (1_000, 1, False),
        (1_000, 2, True),
        (1_000, SHARED_COUNT, True),
        (1_000, SHARED_COUNT + 1, False),
        (2_000, 40, True),
        (2_000, 41, False),
        (1_000_000, MOST_SHARED, True),
        (1_000_000, MOST_SHARED + 1, False),
    ],
)
def test_a_word_connects_when_two_hold_it_and_few_others(chunks: int, count: int, rare: bool) -> None:
    assert question_over(chunks, {"word": count}).rare("word") is rare
