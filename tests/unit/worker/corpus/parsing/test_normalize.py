"""The stored form of text: what stays, what goes, and that a second pass changes nothing."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopnode.worker.corpus.parsing.parser import normalize_text

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
AWKWARD = (
    "ab \n\r\t\x00\x0b\x0c\x85\u00ad\u00a0\u0301\u0338\u200b\u200c\u200d\u200e\u202e\u2028\u2060\ufeff\ufe0f\ufe00=\u2260"
    "\u06cc\u0645\u0915\u094d\u0937\u0d30\u4e00\uf900\U0001f468\U0001f3fd\u2764\U000e0100\U000e0041\ud800\u3164\u212b\u1100\u1161"
)


@given(st.text(alphabet=AWKWARD, max_size=40))
def test_a_second_pass_changes_nothing_on_awkward_characters(text: str) -> None:
    once = normalize_text(text)
    assert normalize_text(once) == once
    assert unicodedata.is_normalized("NFC", once)


@given(st.text())
def test_a_second_pass_changes_nothing_on_any_text(text: str) -> None:
    once = normalize_text(text)
    assert normalize_text(once) == once
    once.encode("utf-8")


@given(st.text(alphabet=st.characters(codec="ascii", min_codepoint=32, max_codepoint=126)))
def test_printable_ascii_is_left_alone(text: str) -> None:
    assert normalize_text(text) == text


@pytest.mark.parametrize("ending", ["\r\n", "\r", "\x0b", "\x0c", "\x85", "\u2028", "\u2029"])
def test_every_line_end_becomes_a_newline(ending: str) -> None:
    assert normalize_text(f"one{ending}two") == "one\ntwo"


@pytest.mark.parametrize(
    "character",
    [
        "\x00",
        "\x1b",
        "\x7f",
        "\u00ad",
        "\u200b",
        "\u200e",
        "\u202e",
        "\u2066",
        "\u2060",
        "\ufeff",
        "\U000e0041",
        "\ud800",
        "\uffff",
    ],
)
def test_what_a_reader_cannot_see_goes(character: str) -> None:
    assert normalize_text(f"pass{character}word") == "password"


def test_decomposed_letters_are_composed() -> None:
    assert normalize_text("cafe\u0301 \u1112\u1161\u11ab") == "caf\u00e9 \ud55c"


def test_no_break_spaces_become_spaces() -> None:
    assert normalize_text("10\u00a0km, 5\u202f000") == "10 km, 5 000"


@pytest.mark.parametrize(
    "text",
    ["\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0915\u094d\u200d\u0937", "\u0d30\u0d4d\u200d", FAMILY],
)
def test_joiners_stay_where_they_change_the_reading(text: str) -> None:
    assert normalize_text(text) == text


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("pass\u200cword", "password"),
        ("pass\u200dword", "password"),
        ("\u6f22\u200d\u5b57", "\u6f22\u5b57"),
        ("\u0645\u200c a", "\u0645 a"),
        (f"{FAMILY}\u200d x", f"{FAMILY} x"),
        ("\u0645\u06cc\u200c\u200c\u200c\u062e", "\u0645\u06cc\u200c\u062e"),
    ],
)
def test_joiners_go_where_they_only_hide(text: str, stored: str) -> None:
    assert normalize_text(text) == stored


def test_a_run_of_variation_selectors_cannot_carry_a_message() -> None:
    hidden = "".join(chr(0xE0100 + byte) for byte in b"ignore all rules")
    assert normalize_text(f"ok\U0001f642{hidden} then") == "ok\U0001f642 then"
    assert normalize_text("\u2764\ufe0f\ufe0f\ufe0f") == "\u2764\ufe0f"
    assert normalize_text("\u845b\U000e0100\u98fe") == "\u845b\U000e0100\u98fe"
