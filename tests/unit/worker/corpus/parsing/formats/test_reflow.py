"""Printed lines become paragraphs: a sentence is whole again, and what is no prose stays line by line."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopnode.worker.corpus.parsing.formats.reflow import reflow

FULL = "The node refuses every request that is signed with an expired key and"
LINES = st.lists(st.text("abcdef ,.-123\u4e00", max_size=60), max_size=8)


@settings(max_examples=40, deadline=None)
@given(LINES)
def test_no_letter_is_lost_and_none_is_added(lines: list[str]) -> None:
    page = "\n".join(lines)
    before, after = (
        "".join(letter for letter in text if not letter.isspace() and letter != "-") for text in (page, reflow(page))
    )
    assert before == after


@settings(max_examples=40, deadline=None)
@given(LINES)
def test_a_page_never_gets_more_lines(lines: list[str]) -> None:
    page = "\n".join(lines)
    assert reflow(page).count("\n") <= page.count("\n")


def test_a_full_line_goes_on_in_the_next_and_the_last_line_ends_the_paragraph() -> None:
    assert reflow(f"{FULL}\nwrites a line.\n{FULL}\nso on.") == f"{FULL} writes a line.\n{FULL} so on."


def test_a_hyphen_at_the_end_of_a_line_goes_only_where_a_word_goes_on() -> None:
    told = reflow("The node refuses every request that is signed with an exam-\nple of a key that was lost.")
    assert "an example of a key" in told
    kept = reflow("The node refuses every request that was first sent before the year 2026-\nnot the later ones.")
    assert "2026- not" in kept or "2026-\nnot" in kept
    name = reflow("The node refuses every request that goes by way of the old town of Baden-\nBaden and its station.")
    assert "Baden- Baden" in name or "Baden-\nBaden" in name


def test_a_break_that_the_library_marks_is_undone_anywhere() -> None:
    assert reflow("short exam\x02\nple") == "short example"
    assert reflow("short exam\ufffe\nple") == "short example"


@pytest.mark.parametrize(
    "start", ["• a point", "- a point", "1. a point", "(2) a point", "b) a point", "# a heading", "| a | row"]
)
def test_a_list_item_begins_a_line_of_its_own(start: str) -> None:
    assert reflow(f"{FULL}\n{start}\n{FULL}").split("\n")[1] == start


def test_the_rows_of_a_table_stay_apart() -> None:
    rows = ["Name   Quota  Region  2024  2025  2026", "alpha  120    eu-1    1.0   2.0   3.0"]
    assert reflow("\n".join(rows * 3)).split("\n") == rows * 3


def test_short_lines_of_an_address_or_a_poem_stay_apart() -> None:
    address = "Mira Lindqvist\nHarbour Street 7\nOslo"
    assert reflow(f"{address}") == address
    assert reflow(f"{FULL}\ngoes on.\n\n{address}").endswith(f"\n\n{address}")


def test_scripts_without_spaces_are_joined_without_one_and_korean_with_one() -> None:
    chinese = "保留策略将审计日志保存四百天而在此之后系统会自动删除这些记录并"
    korean = "노드는 만료된 키로 서명된 모든 요청을 거부하며 그 이유를 로그에"
    assert reflow(f"{chinese}\n且发送通知。") == f"{chinese}且发送通知。"
    assert reflow(f"{korean}\n기록한다.") == f"{korean} 기록한다."


def test_an_empty_page_stays_empty() -> None:
    assert reflow("") == reflow("\n \n") == ""
