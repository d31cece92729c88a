import math
from collections.abc import Mapping, Sequence

import ir_measures
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures import RR, Qrel, R, ScoredDoc, nDCG

from hopnode.worker.evaluation.measures import (
    CUTS,
    NAMES,
    RESAMPLES,
    distinct,
    figures_of,
    intervals,
    percentiles,
    ranks_of,
    resampled,
    table_of,
)

DOCUMENTS = [f"d{number}" for number in range(30)]


def figures(gold: Mapping[str, int], ranking: Sequence[str]) -> dict[str, float]:
    return dict(zip(NAMES, figures_of(ranks_of(gold, ranking), gold), strict=True))


def test_figures_of_a_small_case_are_those_counted_by_hand() -> None:
    found = figures({"a": 1, "b": 1, "gone": 1}, ["x", "a", "y", "z", "v", "w", "b"])
    assert [found[f"recall@{cut}"] for cut in CUTS] == pytest.approx([0, 1 / 3, 1 / 3, 2 / 3, 2 / 3, 2 / 3])
    assert [found[f"all@{cut}"] for cut in CUTS] == [0.0] * 6
    assert found["mrr"] == 1 / 2
    best = 1 + 1 / math.log2(3) + 1 / math.log2(4)
    assert found["ndcg10"] == pytest.approx((1 / math.log2(3) + 1 / math.log2(8)) / best)


def test_a_question_is_complete_from_the_rank_of_its_last_gold_document_on() -> None:
    found = figures({"a": 1, "b": 1}, ["a", "x", "y", "z", "u", "v", "b"])
    assert [found[f"all@{cut}"] for cut in CUTS] == [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]


def test_an_empty_ranking_scores_nothing_and_a_perfect_one_everything() -> None:
    assert set(figures({"a": 1}, []).values()) == {0.0}
    assert set(figures({"a": 1}, ["a", "x"]).values()) == {1.0}
    perfect = figures({"a": 1, "b": 1}, ["b", "a"])
    assert {name: value for name, value in perfect.items() if value < 1} == {"recall@1": 0.5, "all@1": 0.0}


def test_grades_count_in_ndcg_and_nowhere_else() -> None:
    high_first, low_first = figures({"a": 2, "b": 1}, ["a", "b"]), figures({"a": 2, "b": 1}, ["b", "a"])
    assert high_first["ndcg10"] == 1.0
    assert low_first["ndcg10"] == pytest.approx((1 + 2 / math.log2(3)) / (2 + 1 / math.log2(3)))
    assert high_first["recall@2"] == low_first["recall@2"] == 1.0


def test_a_document_counts_at_the_place_of_its_first_chunk() -> None:
    assert distinct(["a", "a", "b", "a", "c", "b"]) == ["a", "b", "c"]


@settings(max_examples=50, deadline=None)
@given(
    st.dictionaries(st.sampled_from(DOCUMENTS), st.integers(1, 3), min_size=1, max_size=12),
    st.lists(st.sampled_from(DOCUMENTS), unique=True, max_size=25),
)
def test_figures_are_those_of_trec_eval(gold: dict[str, int], ranking: list[str]) -> None:
    ours = figures(gold, ranking)
    qrels = [Qrel("q", document, gain) for document, gain in gold.items()]
    run = [ScoredDoc("q", document, 1 / rank) for rank, document in enumerate(ranking, start=1)] or [
        ScoredDoc("q", "nothing", 1.0)
    ]
    wanted = [*(R @ cut for cut in CUTS), RR, nDCG @ 10]
    theirs = ir_measures.calc_aggregate(wanted, qrels, run)
    assert [ours[f"recall@{cut}"] for cut in CUTS] == pytest.approx([theirs[R @ cut] for cut in CUTS])
    assert ours["mrr"] == pytest.approx(theirs[RR])
    assert ours["ndcg10"] == pytest.approx(theirs[nDCG @ 10])


def test_intervals_are_the_same_for_the_same_seed_and_others_for_another() -> None:
    table = table_of([(float(place % 3 == 0), place / 40) for place in range(40)])
    assert intervals(table, 1) == intervals(table, 1)
    assert intervals(table, 1) != intervals(table, 2)


def test_an_interval_holds_the_mean_and_is_as_wide_as_theory_says() -> None:
    random = np.random.default_rng(5)
    table = random.normal(10.0, 2.0, size=(400, 1))
    (found,) = intervals(table, 3)
    mean, error = float(table.mean()), float(table.std()) / math.sqrt(400)
    assert found.low < mean < found.high
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * error, rel=0.1)


def test_values_that_are_all_equal_have_an_interval_without_width() -> None:
    (found,) = intervals(table_of([(0.5,)] * 9), 0)
    assert (found.low, found.high) == (pytest.approx(0.5), pytest.approx(0.5))


def test_a_paired_interval_is_narrower_than_the_difference_of_two() -> None:
    random = np.random.default_rng(7)
    before = random.uniform(0, 1, size=(200, 1))
    change = before + 0.05 - before
    (paired,) = percentiles(resampled(change, 0, lambda weights: weights @ change))
    assert paired.low == pytest.approx(0.05) == paired.high
    assert RESAMPLES >= 1_000
