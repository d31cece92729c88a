from pathlib import Path

import pytest
from support.data.reports import make_report

from hopnode.worker.errors import InvalidRequest
from hopnode.worker.evaluation.comparison import compare
from hopnode.worker.evaluation.report import Report


def test_questions_are_compared_one_by_one_with_wins_and_losses() -> None:
    before = make_report({"q1": {"a": 1, "b": None}, "q2": {"c": 3}, "q3": {"d": 1}, "old": {"x": 1}})
    after = make_report({"q1": {"a": 1, "b": 2}, "q2": {"c": None}, "q3": {"d": 1}, "new": {"y": 1}, "more": {"z": 1}})
    compared = compare(before, after)
    assert (compared.questions, compared.only_before, compared.only_after) == (3, 1, 2)
    recall = {one.name: one for one in compared.differences}["recall@5"]
    assert recall.before == pytest.approx((0.5 + 1 + 1) / 3)
    assert recall.after == pytest.approx(2 / 3)
    assert recall.difference == pytest.approx(recall.after - recall.before)
    assert (recall.wins, recall.losses) == (1, 1)
    assert recall.low < recall.difference < recall.high
    assert not recall.is_clear


def test_a_difference_on_every_question_is_clear() -> None:
    before = make_report({f"q{number}": {"a": 8} for number in range(20)})
    after = make_report({f"q{number}": {"a": 1 + number % 4} for number in range(20)})
    found = {one.name: one for one in compare(before, after).differences}
    assert found["recall@5"].is_clear and [found["recall@5"].low, found["recall@5"].high] == pytest.approx([1.0, 1.0])
    assert found["mrr"].is_clear and found["mrr"].low < found["mrr"].high
    assert not found["recall@20"].is_clear


def test_the_same_reports_give_the_same_interval() -> None:
    before, after = make_report({"q": {"a": 2}, "p": {"b": 9}}), make_report({"q": {"a": 1}, "p": {"b": None}})
    assert compare(before, after) == compare(before, after)


def test_reports_without_a_common_question_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="no question in common: one is about made, the other about made"):
        compare(make_report({"q1": {"a": 1}}), make_report({"q2": {"a": 1}}))


def test_reports_that_do_not_agree_on_what_is_right_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="do not agree on the gold of the question 'q1'"):
        compare(make_report({"q1": {"a": 1}}), make_report({"q1": {"b": 1}}))


def test_a_report_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    report = make_report({"q1": {"a": 1, "b": None}})
    report.write(tmp_path / "deep" / "report.json")
    assert Report.read(tmp_path / "deep" / "report.json") == report


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{}", r"is no report of `hopnode eval`: recall: Field required"),
        (b"no JSON", r"is no report of `hopnode eval`: the file: Invalid JSON"),
        (b"\xff", r"is no report of `hopnode eval`: it is not UTF-8"),
    ],
)
def test_a_file_that_is_no_report_is_refused_with_a_reason(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(InvalidRequest, match=message):
        Report.read(tmp_path / "x.json")


def test_a_report_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read: No such file"):
        Report.read(tmp_path / "x.json")
