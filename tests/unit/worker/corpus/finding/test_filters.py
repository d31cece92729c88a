from typing import Any

import pytest

from hopnode.worker.corpus.finding.filters import MOST_DEPTH, MOST_TESTS, compile_filter
from hopnode.worker.errors import InvalidRequest

METADATA: dict[str, Any] = {
    "team": "blue",
    "year": 2024,
    "rate": 0.5,
    "public": True,
    "tags": ["a", "b"],
    "day": "2024-05-01",
    "note": None,
}


@pytest.mark.parametrize(
    ("wanted", "passes"),
    [
        ({"team": "blue"}, True),
        ({"team": "red"}, False),
        ({"year": 2024}, True),
        ({"year": 2024.0}, True),
        ({"year": "2024"}, False),
        ({"public": True}, True),
        ({"public": 1}, False),
        ({"year": True}, False),
        ({"tags": "a"}, True),
        ({"tags": "c"}, False),
        ({"team": {"in": ["red", "blue"]}}, True),
        ({"team": {"in": []}}, False),
        ({"tags": {"in": ["b", "z"]}}, True),
        ({"public": {"in": [1, 2]}}, False),
        ({"year": {"gte": 2024, "lt": 2025}}, True),
        ({"year": {"gt": 2024}}, False),
        ({"rate": {"lte": 0.5}}, True),
        ({"day": {"gte": "2024-01-01", "lte": "2024-12-31"}}, True),
        ({"day": {"gt": 5}}, False),
        ({"year": {"gt": "2000"}}, False),
        ({"public": {"gte": 0}}, False),
        ({"missing": None}, True),
        ({"note": None}, True),
        ({"team": None}, False),
        ({"missing": {"gt": 1}}, False),
        ({"missing": "x"}, False),
        ({"team": "blue", "year": {"gt": 2023}}, True),
        ({"team": "blue", "year": {"gt": 2024}}, False),
        ({"team": {"ne": "red"}}, True),
        ({"team": {"ne": "blue"}}, False),
        ({"tags": {"ne": "a"}}, False),
        ({"tags": {"ne": "c"}}, True),
        ({"missing": {"ne": "x"}}, True),
        ({"note": {"ne": None}}, False),
        ({"public": {"ne": 1}}, True),
        ({"team": {"contains": "lu"}}, True),
        ({"team": {"contains": "LU"}}, False),
        ({"tags": {"contains": "b"}}, True),
        ({"year": {"contains": "20"}}, False),
        ({"missing": {"contains": ""}}, False),
        ({"day": {"starts_with": "2024-", "ends_with": "-01"}}, True),
        ({"day": {"starts_with": "05"}}, False),
        ({"team": {"exists": True}}, True),
        ({"note": {"exists": True}}, False),
        ({"missing": {"exists": False}}, True),
        ({"missing": {"empty": True}}, True),
        ({"note": {"empty": True}}, True),
        ({"team": {"empty": True}}, False),
        ({"tags": {"empty": False}}, True),
        ({"year": {"empty": True}}, False),
        ({"or": [{"team": "red"}, {"year": 2024}]}, True),
        ({"or": [{"team": "red"}, {"year": 1999}]}, False),
        ({"and": [{"team": "blue"}, {"year": 2024}]}, True),
        ({"and": [{"team": "blue"}, {"year": 1999}]}, False),
        ({"not": {"team": "red"}}, True),
        ({"not": {"team": "blue", "year": 1999}}, True),
        ({"not": {"team": "blue", "year": 2024}}, False),
        ({"public": True, "or": [{"team": "red"}, {"not": {"tags": "c"}}]}, True),
        ({"or": [{}]}, True),
        ({}, True),
    ],
)
def test_a_filter_means_what_the_page_says(wanted: dict[str, Any], passes: bool) -> None:
    assert compile_filter(wanted)(METADATA) is passes


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({"team": ["a"]}, '"in"'),
        ({"team": {}}, "operator is missing"),
        ({"team": {"like": "b%"}}, '"like"'),
        ({"team": {"in": "blue"}}, "needs a list"),
        ({"year": {"gt": True}}, "number or a text"),
        ({"year": {"gt": None}}, "number or a text"),
        ({"year": {"gt": [1]}}, "number or a text"),
        ({"team": {"ne": ["a"]}}, "single value"),
        ({"team": {"contains": 5}}, "needs a text"),
        ({"team": {"exists": 1}}, "true or false"),
        ({"team": {"empty": None}}, "true or false"),
        ({"or": {"team": "blue"}}, "list of filters"),
        ({"or": []}, "list of filters"),
        ({"and": ["blue"]}, "list of filters"),
        ({"not": ["blue"]}, '"not" needs a filter'),
    ],
)
def test_a_filter_that_cannot_work_is_refused_with_its_reason(wanted: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        compile_filter(wanted)


def test_filters_are_combined_no_deeper_than_anybody_needs() -> None:
    def nested(levels: int) -> dict[str, Any]:
        return {"not": nested(levels - 1)} if levels else {"team": "blue"}

    assert compile_filter(nested(MOST_DEPTH))(METADATA) is True
    with pytest.raises(InvalidRequest, match="levels deep"):
        compile_filter(nested(MOST_DEPTH + 1))


def test_a_filter_side_by_side_with_others_does_not_use_up_their_depth() -> None:
    wanted: dict[str, Any] = {"and": [{"not": {"team": "red"}} for _ in range(MOST_DEPTH * 3)]}
    assert compile_filter(wanted)(METADATA) is True


def test_a_filter_tests_no_more_fields_than_can_be_looked_at() -> None:
    assert compile_filter({"or": [{"team": "blue"}] * MOST_TESTS})(METADATA) is True
    with pytest.raises(InvalidRequest, match="1,000 fields"):
        compile_filter({"or": [{"team": "blue"}] * (MOST_TESTS + 1)})
