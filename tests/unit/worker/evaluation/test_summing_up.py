"""What a run comes to in its report, and how a comparison is told as JSON."""

from dataclasses import replace

import pytest
from support.data.reports import make_report, make_run

from hopnode.worker.evaluation.comparison import compare, comparison_data
from hopnode.worker.evaluation.dataset import Gold
from hopnode.worker.evaluation.scoring import summed_up
from hopnode.worker.evaluation.trial import COUNTED


def test_costs_are_means_over_all_questions_and_what_is_not_counted_costs_nothing() -> None:
    run = make_run({"q1": {"a": 1}, "q2": {"b": 1}})
    first, second = run.retrieved
    report = summed_up(replace(run, retrieved=[replace(first, cost={"turns": 3.0}), second]))
    assert report.cost.keys() == set(COUNTED)
    assert (report.cost["turns"], report.cost["tool_calls"]) == (1.5, 0.0)


def test_failures_are_counted_by_code_and_stand_in_no_mode() -> None:
    run = make_run({"q1": {"a": 1}, "q2": {"b": 1}, "q3": {"c": 1}})
    first, second, third = run.retrieved
    failed = [replace(one, documents=(), error="model-unavailable: it is away") for one in (first, second)]
    report = summed_up(replace(run, retrieved=[*failed, replace(third, degraded=("vectors-lag",))]))
    assert (report.failed, report.modes, report.degraded) == (
        {"model-unavailable": 2},
        {"one_shot": 1},
        {"vectors-lag": 1},
    )
    assert report.mrr == pytest.approx(1 / 3)
    assert [one.ranks for one in report.per_question] == [{"a": None}, {"b": None}, {"c": 1}]


def test_the_recall_of_a_hop_counts_only_questions_that_have_it() -> None:
    run = make_run({"q1": {"a": 1, "b": 6}, "q2": {"c": 2}})
    gold = {"q1": Gold({"a": 1, "b": 1}, hops=("a", "b")), "q2": Gold({"c": 1}, hops=("c",))}
    hops = summed_up(replace(run, dataset=replace(run.dataset, gold=gold))).hops
    assert [(one.hop, one.questions) for one in hops] == [(1, 2), (2, 1)]
    assert [(one.recall["1"], one.recall["2"], one.recall["8"]) for one in hops] == [(0.5, 1.0, 1.0), (0.0, 0.0, 1.0)]


def test_gains_are_told_only_where_the_set_grades_its_gold() -> None:
    run = make_run({"q1": {"a": 1, "b": 2}})
    graded = replace(run, dataset=replace(run.dataset, gold={"q1": Gold({"a": 1, "b": 3})}))
    plain, other = (summed_up(one).per_question[0] for one in (run, graded))
    assert (plain.gains, plain.graded()) == (None, {"a": 1, "b": 1})
    assert other.gains == other.graded() == {"a": 1, "b": 3}


def test_a_comparison_tells_its_fields_by_name_and_whether_each_difference_is_clear() -> None:
    before = make_report({f"q{number}": {"a": 8} for number in range(20)})
    after = make_report({f"q{number}": {"a": 1} for number in range(20)})
    data = comparison_data(compare(before, after))
    assert data.keys() == {"questions", "only_before", "only_after", "differences", "p50_before", "p50_after"}
    clear = {one["name"]: one["clear"] for one in data["differences"]}  # type: ignore[index, union-attr]
    assert (clear["recall@5"], clear["recall@20"]) == (True, False)
