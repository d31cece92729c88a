"""Rows of a CSV become lines that a search finds by column and value; nothing of a cell is lost."""

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopnode.worker.corpus.parsing.formats.draft import RawDocument, gather, markdown_table
from hopnode.worker.corpus.parsing.formats.tabular import read_csv, table_lines
from hopnode.worker.errors import DocumentRejected

WORDS = st.text("abcdefgh", min_size=1, max_size=8)
CELLS = st.text(st.sampled_from("abc 123,;|\t\"'\n:.#é"), max_size=12)


def lines(text: str | bytes, delimiter: str | None = None) -> list[str]:
    data = text.encode() if isinstance(text, str) else text
    (part,) = read_csv(RawDocument(data), delimiter).parts
    return part.split("\n")


def squeezed(cell: str) -> str:
    return " ".join(cell.split())


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[str]]]:
    """A header of words, and rows of as many cells in which anything may stand but a wholly empty row."""
    width = draw(st.integers(2, 5))
    header = draw(st.lists(WORDS, min_size=width, max_size=width, unique=True))
    row = st.lists(CELLS, min_size=width, max_size=width).filter(lambda cells: any(map(squeezed, cells)))
    return header, draw(st.lists(row, min_size=1, max_size=6))


@settings(max_examples=40, deadline=None)
@given(tables())
def test_every_cell_of_a_table_stands_behind_the_name_of_its_column(table: tuple[list[str], list[list[str]]]) -> None:
    header, rows = table
    told = list(table_lines([header, *rows]))
    assert len(told) == 1 + len(rows)
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in told)
    for row, line in zip(rows, told[1:], strict=True):
        wanted = [f"{name}: {squeezed(cell)}" for name, cell in zip(header, row, strict=True) if squeezed(cell)]
        assert line == " | ".join(wanted) + "\n"


@settings(max_examples=40, deadline=None)
@given(table=tables(), delimiter=st.sampled_from(",;\t|"))
def test_a_written_csv_gives_the_lines_of_its_cells(table: tuple[list[str], list[list[str]]], delimiter: str) -> None:
    header, rows = table
    buffer = io.StringIO(newline="")
    csv.writer(buffer, delimiter=delimiter).writerows([header, *rows])
    assert lines(buffer.getvalue(), delimiter) == "".join(table_lines([header, *rows])).rstrip("\n").split("\n")


def test_the_delimiter_is_the_one_that_makes_rows_of_equal_length() -> None:
    assert lines("name;price\nchair;1,50\ntable;20,00\n")[1] == "name: chair | price: 1,50"
    assert lines("name|text\na|x, y, z\nb|one, two\n")[1] == "name: a | text: x, y, z"
    assert lines("name\ttext\na\tx; y\nb\tz\n")[1] == "name: a | text: x; y"
    assert lines('name,text\na,"x; y; z"\nb,"u; v"\n')[1] == "name: a | text: x; y; z"


def test_one_column_is_a_table_too() -> None:
    assert lines("name\nanna\nben\n") == ["name", "name: anna", "name: ben"]


def test_rows_that_are_longer_or_shorter_than_the_header_keep_what_they_have() -> None:
    assert lines("a,b,c\nx\nx,y,z,extra\n") == ["a | b | c", "a: x", "a: x | b: y | c: z | extra"]


def test_empty_rows_and_columns_leave_no_trace() -> None:
    assert lines("a,b,\n,,\nx,,\n\n,y,\n") == ["a | b", "a: x", "b: y"]


@pytest.mark.parametrize("row", ["12,50%", "1.5,2026-01-31", "$,7", "-3,+4.5e"])
def test_a_row_with_a_number_names_no_columns(row: str) -> None:
    assert lines(f"{row}\nx,y\nu,v\n")[0].count(":") == 0
    assert lines(f"{row}\nx,y\nu,v\n")[-1] == "x: u | y: v"


def test_notes_above_the_header_stand_alone_and_the_first_full_row_of_words_names_the_columns() -> None:
    told = lines("Report of the year,,\n,,\nname,quota,region\nalpha,120,eu\n")
    assert told == ["Report of the year", "name | quota | region", "name: alpha | quota: 120 | region: eu"]


def test_a_header_below_the_first_rows_is_not_looked_for() -> None:
    rows = [f"{number},{number}" for number in range(12)]
    assert lines("\n".join([*rows, "name,quota", "alpha,1"]))[-1] == "alpha | 1"


def test_a_row_is_never_read_as_a_heading() -> None:
    assert not any(line.startswith("#") for line in lines("#a,b\n#x,y\n"))


def test_a_quote_that_never_closes_loses_no_text() -> None:
    told = "\n".join(lines('a,b\nx,"y\nz,w\n'))
    assert all(letter in told for letter in "xyzw")


def test_zero_bytes_within_a_wide_file_do_not_end_the_table() -> None:
    assert lines(("a,b\nx\x00,y\n" + "u,v\n" * 100).encode("utf-16"))[:3] == ["a | b", "a: x | b: y", "a: u | b: v"]


def test_a_table_that_is_too_long_is_refused_before_it_is_read_to_its_end() -> None:
    data = b"a,b\n" + b"word,word\n" * 10_000
    with pytest.raises(DocumentRejected) as refused:
        read_csv(RawDocument(data, max_characters=1_000))
    assert refused.value.reason == "too-large"
    assert "1,000" in str(refused.value)


def test_gathering_stops_at_the_first_piece_over_the_limit() -> None:
    taken: list[int] = []

    def endless():
        while True:
            taken.append(1)
            yield "word "

    with pytest.raises(DocumentRejected):
        gather(endless(), 100)
    assert len(taken) == 21


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=5))
def test_a_markdown_table_keeps_every_cell_in_its_column(rows: list[list[str]]) -> None:
    header, line, *body = markdown_table(rows).split("\n")
    assert line == "|---|---|---|"
    for row, written in zip(rows, [header, *body], strict=True):
        cells = written.removeprefix("| ").removesuffix(" |").replace("\\|", "\0").split(" | ")
        assert [cell.replace("\0", "|").strip() for cell in cells] == [squeezed(cell) for cell in row]
