"""Cursors are opaque, safe in URLs, and only our own are taken."""

import string

import pytest

from hopnode.node_service.http.paging import decode_cursor, encode_cursor
from hopnode.node_service.http.problems import InvalidFields


@pytest.mark.parametrize("position", ["a", "guides/setup.md", "한국어/열쇠", "a?b&c=d#e", "x" * 1024])
def test_a_cursor_survives_the_round_trip_and_is_safe_in_a_url(position: str) -> None:
    cursor = encode_cursor(position)
    assert set(cursor) <= set(string.ascii_letters + string.digits + "-_")
    assert decode_cursor(cursor) == position


@pytest.mark.parametrize("cursor", ["!", "a", "ü", "_w", "a b"])
def test_what_is_not_a_cursor_is_refused_by_field(cursor: str) -> None:
    with pytest.raises(InvalidFields) as refused:
        decode_cursor(cursor)
    assert refused.value.errors[0].field == "cursor"


def test_no_cursor_is_the_beginning() -> None:
    assert decode_cursor(None) is None
