"""What may become a name, a label or a text of the database; what is refused is refused with its rule."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopnode.worker.errors import InvalidRequest
from hopnode.worker.store.checked_text import check_label, check_slug, check_text


@pytest.mark.parametrize("name", ["a", "0", "team-1", "a.b_c", "x" * 63])
def test_a_plain_name_is_taken_as_it_is(name: str) -> None:
    assert check_slug(name, "collection") == name


@pytest.mark.parametrize("name", ["", "-a", ".a", "_a", "A", "a b", "a/b", "a\n", "ä", "٣", "x" * 64, "a\0", "../a"])
def test_a_name_that_is_unsafe_in_a_path_or_a_url_is_refused_with_its_rule(name: str) -> None:
    with pytest.raises(InvalidRequest, match="name of a collection has 1 to 63"):
        check_slug(name, "collection")


@pytest.mark.parametrize("label", ["Keys of the team", "키", "x" * 20])
def test_a_label_is_one_line_for_people(label: str) -> None:
    assert check_label(label, "label", 20) == label


@pytest.mark.parametrize("label", ["", "   ", "two\nlines", "bell\a", "hidden\u202etext", "zero\u200bwidth", "x" * 21])
def test_a_label_that_is_empty_unprintable_or_too_long_is_refused(label: str) -> None:
    with pytest.raises(InvalidRequest, match="label has 1 to 20"):
        check_label(label, "label", 20)


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=30))
def test_exactly_the_texts_that_utf8_and_both_databases_can_hold_pass(text: str) -> None:
    try:
        text.encode()
        holds = "\0" not in text
    except UnicodeEncodeError:
        holds = False
    if holds:
        assert check_text(text, "query", 30) == text
    else:
        with pytest.raises(InvalidRequest, match="not text"):
            check_text(text, "query", 30)


def test_the_length_of_a_text_is_counted_in_characters() -> None:
    assert check_text("키" * 10, "query", 10) == "키" * 10
    with pytest.raises(InvalidRequest, match="at most 10 characters"):
        check_text("a" * 11, "query", 10)
