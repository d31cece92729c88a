"""Weighing is monotone where it has to be, trusts in (0, 1), and orders whatever the index holds, also nothing."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.data.memory_insight import MemoryInsight, evidence_of

from hopnode.worker.ranking.one_shot import one_shot, route, survey, trust_in
from hopnode.worker.ranking.signals import Certainty, Direct, Linked, names_of
from hopnode.worker.ranking.weighing import (
    LEAST_SEED_TRUST,
    MOST_SEEDS,
    Placement,
    fitted_rounds,
    judge,
    numbers_of,
    rank,
    seeds_of,
)

FILMS = [
    "Northern Light is a drama directed by Carla Boes",
    "Carla Boes was born in Old Town and directed films",
    "The ferry leaves Old Town at dawn",
    "Painted ships in the harbour",
    "A film of ships and light",
    "東京都の灯台",
]
ASKED = "Where was the director of Northern Light born?"
LINES = st.lists(st.floats(-3, 3), min_size=len(Direct), max_size=len(Direct))

# --- one line of signals ------------------------------------------------------------------------------------------


def judged(line: list[float], *, words_lead: bool = False) -> tuple[float, float]:
    trust, score = judge(np.array([line]), fitted_rounds()[0], words_lead=words_lead)
    return float(trust[0]), float(score[0])


@given(LINES, st.sampled_from([Direct.WORD_MATCH, Direct.CLOSENESS_BESIDE_BEST, Direct.COVERAGE, Direct.PHRASE]))
def test_more_in_common_with_the_question_never_lowers_a_passage(line: list[float], signal: Direct) -> None:
    more = [value + (0.5 if column == signal else 0) for column, value in enumerate(line)]
    for words_lead in (False, True):
        before, after = judged(line, words_lead=words_lead), judged(more, words_lead=words_lead)
        assert after[0] >= before[0] and after[1] > before[1]


@given(LINES, st.sampled_from([Direct.LOG_DENSE_RANK]))
def test_a_later_place_in_a_leg_never_raises_a_passage(line: list[float], signal: Direct) -> None:
    later = [value + (0.5 if column == signal else 0) for column, value in enumerate(line)]
    assert judged(later)[0] <= judged(line)[0] and judged(later)[1] < judged(line)[1]


@given(st.lists(st.floats(-1e6, 1e6), min_size=len(Direct), max_size=len(Direct)))
def test_trust_is_a_probability_however_far_out_the_signals_are(line: list[float]) -> None:
    trust, score = judged(line)
    assert 0 < trust < 1 and np.isfinite(score)


def test_of_the_links_a_name_that_says_more_than_the_question_raises_trust_and_order() -> None:
    second = fitted_rounds()[1]
    column = names_of(2).index(Linked.MENTIONED_UNKNOWN.name.lower())
    lines = np.tile(second.mean, (2, 1))
    lines[1, column] += 1
    trust, score = judge(lines, second)
    assert trust[1] > trust[0] and score[1] > score[0]


def test_the_mean_passage_has_the_score_nought_and_little_trust() -> None:
    for one in fitted_rounds():
        trust, score = judge(one.mean[None, :], one)
        assert score[0] == 0 and trust[0] < 0.01


def test_lines_are_judged_one_by_one() -> None:
    lines = np.random.default_rng(0).normal(size=(5, len(Direct)))
    first = fitted_rounds()[0]
    together = judge(lines, first)
    alone = [judge(line[None, :], first) for line in lines]
    for both, at in zip(alone, range(5), strict=True):
        np.testing.assert_allclose((both[0][0], both[1][0]), (together[0][at], together[1][at]))


def test_no_lines_no_judgement() -> None:
    trust, score = judge(np.zeros((0, len(Direct))), fitted_rounds()[0])
    assert len(trust) == len(score) == 0


# --- seeds --------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1), max_size=40))
def test_seeds_are_the_most_trusted_best_first_and_never_too_many(trust: list[float]) -> None:
    rows = [100 + at for at in range(len(trust))]
    seeds = seeds_of(trust, rows, MOST_SEEDS, LEAST_SEED_TRUST)
    of = dict(zip(rows, trust, strict=True))
    assert len(seeds) <= MOST_SEEDS and len(set(seeds)) == len(seeds)
    assert [of[row] for row in seeds] == sorted((of[row] for row in seeds), reverse=True)
    assert all(of[row] > LEAST_SEED_TRUST for row in seeds)
    left = [of[row] for row in rows if row not in seeds and of[row] > LEAST_SEED_TRUST]
    assert not left or (len(seeds) == MOST_SEEDS and max(left) <= min(of[row] for row in seeds))


# --- rounds -------------------------------------------------------------------------------------------------------


def test_the_second_round_sees_what_the_first_thought() -> None:
    evidence = evidence_of(ASKED, FILMS)
    first = numbers_of(evidence, None)
    assert first.shape == (len(evidence.rows), len(Direct))
    trust, _ = judge(first, fitted_rounds()[0])
    second = numbers_of(evidence, trust)
    assert second.shape == (len(evidence.rows), len(names_of(2)))
    thought = second[:, len(Direct) + len(Linked) :]
    np.testing.assert_allclose(thought[: len(trust), Certainty.TRUST], trust)
    np.testing.assert_allclose(
        thought[:, Certainty.BEST_WORD_MATCH], trust.max() * second[:, Direct.WORD_MATCH], atol=1e-12
    )
    assert (np.diff(thought[np.argsort(trust), Certainty.LOG_TRUST]) >= 0).all()
    named = second[:, len(Direct) + Linked.MENTIONED_STRENGTH] > 0
    assert set(thought[~named, Certainty.BEST_MENTIONED]) <= {0.0}


def test_what_links_led_to_had_no_trust_before() -> None:
    evidence = evidence_of("Northern", FILMS)
    trust, _ = judge(numbers_of(evidence, None), fitted_rounds()[0])
    seen = len(trust)
    second = numbers_of(evidence, np.maximum(trust, 0.5))
    assert len(second) > seen, "Carla Boes is found by the link alone"
    assert not second[seen:, len(Direct) + len(Linked) + Certainty.TRUST].any()


def test_a_link_brings_a_passage_forward() -> None:
    plain = [one.row for one in one_shot(evidence_of(ASKED, FILMS), 10)]
    evidence = evidence_of(ASKED, FILMS)
    linked = [one.row for one in rank(evidence)]
    assert evidence.way_to(1, [0]) is not None
    assert linked.index(1) < plain.index(1)


def test_every_candidate_has_one_place() -> None:
    evidence = evidence_of(ASKED, FILMS)
    ranked = rank(evidence)
    assert sorted(one.row for one in ranked) == sorted(evidence.rows)
    assert all(0 < one.trust < 1 for one in ranked)


def test_ranking_again_gives_the_same_order() -> None:
    evidence = evidence_of(ASKED, FILMS)
    first = rank(evidence)
    grown = len(evidence.rows)
    assert [one.row for one in rank(evidence)] == [one.row for one in first]
    assert len(evidence.rows) == grown


# --- one shot and the way of auto ---------------------------------------------------------------------------------


def test_one_shot_follows_no_link_and_returns_no_more_than_wanted() -> None:
    evidence = survey(ASKED, MemoryInsight(FILMS), 10)
    rows = list(evidence.rows)
    shot = one_shot(evidence, 2)
    assert len(shot) == 2 and evidence.rows == rows
    scores = [one.score for one in one_shot(evidence, 10)]
    assert scores == sorted(scores, reverse=True)


def test_auto_says_why_it_goes_which_way() -> None:
    evidence = survey(ASKED, MemoryInsight(FILMS), 10)
    chosen = route(evidence, one_shot(evidence, 10))
    assert chosen.mode in ("one_shot", "agent") and chosen.why.endswith(".")
    assert {one.row for one in chosen.shot} == set(evidence.rows)


def test_without_a_passage_that_is_sure_auto_sends_the_agent() -> None:
    evidence = survey("unladen swallow", MemoryInsight(FILMS), 10)
    assert route(evidence, one_shot(evidence, 10)).mode == "agent"


def test_chunks_that_were_found_elsewhere_get_a_trust_too() -> None:
    insight = MemoryInsight(FILMS)
    evidence = survey("Northern Light", insight, 10)
    missing = next(chunk for chunk in insight.all if chunk.row not in evidence.candidates)
    trust = trust_in(evidence, [missing])
    assert 0 < trust[missing.row] < 1 and trust.keys() == evidence.candidates.keys()


# --- little or nothing to rank ------------------------------------------------------------------------------------


@pytest.mark.parametrize("question", ["", "Who built it?", "東京都の灯台は?", "🙂"])
def test_over_an_empty_index_the_ranking_is_empty(question: str) -> None:
    evidence = evidence_of(question, [])
    assert rank(evidence) == []
    assert one_shot(evidence, 5) == []
    assert route(evidence, []).mode == "agent"


@pytest.mark.parametrize("question", ["", "?!", "🙂🙂", "the the the"])
def test_a_question_without_words_of_the_index_finds_nothing_and_breaks_nothing(question: str) -> None:
    assert rank(evidence_of(question, ["Painted ships"])) == []


def test_a_question_in_another_script_finds_its_passage() -> None:
    best = rank(evidence_of("東京都の灯台はどこ?", FILMS))
    assert best[0].row == 5


@given(st.text(max_size=40), st.lists(st.text(max_size=60), max_size=6))
@settings(deadline=None)
def test_any_text_over_any_texts_is_ranked(question: str, texts: list[str]) -> None:
    evidence = evidence_of(question, texts)
    ranked = rank(evidence)
    assert sorted(one.row for one in ranked) == sorted(evidence.rows)
    assert all(0 < one.trust < 1 and np.isfinite(one.score) for one in ranked)


def test_one_passage_alone_is_ranked() -> None:
    (only,) = rank(evidence_of("ships", ["Painted ships"]))
    assert only == Placement(0, only.score, only.trust)


def test_equal_passages_keep_the_order_in_which_they_were_found() -> None:
    ranked = rank(evidence_of("ships", ["ships"] * 4), [blind(fitted_rounds()[0])])
    assert [one.row for one in ranked] == [0, 1, 2, 3]


def blind(weights):
    nothing = np.zeros_like(weights.order)
    return replace(weights, order=nothing, words=nothing)
