from typing import Any

import pytest

from hopnode.worker.corpus.finding.filters import compile_filter
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
    ],
)
def test_a_filter_that_cannot_work_is_refused_with_its_reason(wanted: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        compile_filter(wanted)
