"""XLSX cell by cell as its stored values, PPTX slide by slide in reading order."""

import io
import zipfile
from datetime import date, datetime, time
from typing import Any

import openpyxl
import pptx
import pytest
from pptx.util import Inches
from support.data import samples

from hopnode.worker.corpus.parsing.formats.draft import Draft, RawDocument
from hopnode.worker.corpus.parsing.formats.office.reader import read_office
from hopnode.worker.errors import DocumentRejected


def saved(file: Any) -> bytes:
    buffer = io.BytesIO()
    file.save(buffer)
    return buffer.getvalue()


def read(data: bytes, **limits: int) -> Draft:
    return read_office(RawDocument(data, **limits))


def rows_of(*rows: list[object]) -> list[str]:
    (part,) = read(samples.workbook([["Name", "Value"], *rows])).parts
    return part.split("\n")[2:]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (7, "7"),
        (7.0, "7"),
        (0.1, "0.1"),
        (-2.50, "-2.5"),
        (1e20, "1e+20"),
        (True, "true"),
        (False, "false"),
        (datetime(2026, 1, 31), "2026-01-31"),
        (datetime(2026, 1, 31, 23, 5, 9), "2026-01-31 23:05:09"),
        (date(2026, 1, 31), "2026-01-31"),
        (time(3, 4), "03:04:00"),
        ("  two\nlines ", "two lines"),
        ("007", "007"),
    ],
)
def test_a_cell_is_written_as_a_person_would_search_for_it(value: object, written: str) -> None:
    assert rows_of(["alpha", value]) == [f"Name: alpha | Value: {written}"]


def test_zero_and_false_are_values_and_nothing_is_none() -> None:
    assert rows_of(["a", 0], ["b", False], ["c", None], ["d", ""]) == [
        "Name: a | Value: 0",
        "Name: b | Value: false",
        "Name: c",
        "Name: d",
    ]


def test_every_visible_sheet_with_rows_has_a_heading_and_a_header_of_its_own() -> None:
    book = openpyxl.Workbook()
    book.worksheets[0].title = "Empty"
    for title, column in (("First", "City"), ("Second", "Key")):
        sheet = book.create_sheet(title)
        sheet.append([column, "Owner"])
        sheet.append(["x", "y"])
    (part,) = read(saved(book)).parts
    assert part == "# First\nCity | Owner\nCity: x | Owner: y\n\n# Second\nKey | Owner\nKey: x | Owner: y"


def test_a_sheet_that_is_larger_than_it_says_is_read_to_its_end() -> None:
    name = "xl/worksheets/sheet1.xml"
    data = samples.workbook([["Name", "Quota"], *(["alpha", number] for number in range(50))])
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        told = archive.read(name)
    sheet = told.replace(b'ref="A1:B51"', b'ref="A1:A2"')
    assert sheet != told
    (part,) = read(samples.replaced(data, {name: sheet})).parts
    assert part.endswith("Name: alpha | Quota: 49")


def test_a_formula_is_never_shown_and_its_column_is_left_empty_without_a_stored_value() -> None:
    assert rows_of(["alpha", "=SUM(A1:A9)"]) == ["Name: alpha"]


def test_a_workbook_over_the_limit_is_too_large() -> None:
    with pytest.raises(DocumentRejected) as refused:
        read(samples.workbook([["Name", "Text"], *(["alpha", "word " * 20] for _ in range(50))]), max_characters=1_000)
    assert refused.value.reason == "too-large"


# --- slides


def box(slide: Any, text: str, top: float, left: float = 0) -> Any:
    shape = slide.shapes.add_textbox(Inches(left), Inches(top), Inches(2), Inches(1))
    shape.text_frame.text = text
    return shape


def blank_slide() -> tuple[Any, Any]:
    deck = pptx.Presentation()
    return deck, deck.slides.add_slide(deck.slide_layouts[6])


def test_shapes_are_read_from_the_top_and_from_the_left_whatever_was_drawn_first() -> None:
    deck, slide = blank_slide()
    for text, top, left in (("low", 5, 0), ("right", 1, 4), ("left", 1, 0)):
        box(slide, text, top, left)
    draft = read(saved(deck))
    assert draft.parts == ("left\n\nright\n\nlow",)
    assert (draft.title, draft.paged) == ("left", True)


def test_groups_within_groups_and_tables_are_read() -> None:
    deck, slide = blank_slide()
    inner = slide.shapes.add_group_shape().shapes.add_group_shape()
    inner.shapes.add_textbox(Inches(0), Inches(1), Inches(1), Inches(1)).text_frame.text = "grouped"
    table = slide.shapes.add_table(2, 2, Inches(0), Inches(6), Inches(4), Inches(1)).table
    for index, text in enumerate(["key", "value", "a|b", "two\nlines"]):
        table.cell(index // 2, index % 2).text = text
    assert read(saved(deck)).parts == ("grouped\n\n| key | value |\n|---|---|\n| a\\|b | two lines |",)


def test_bullets_keep_their_depth() -> None:
    deck, slide = blank_slide()
    frame = box(slide, "point", 1).text_frame
    for text, level in (("below", 1), ("deeper", 2), ("", 1), ("back", 0)):
        line = frame.add_paragraph()
        line.text, line.level = text, level
    assert read(saved(deck)).parts == ("point\n- below\n  - deeper\nback",)


def test_the_title_of_a_slide_is_said_once_and_its_notes_come_last() -> None:
    draft = read(samples.presentation(("Retention",), notes="Speak slowly."))
    (part,) = draft.parts
    assert part.startswith("## Retention\n\n")
    assert part.count("## ") == 1
    assert part.endswith("\n\nNotes: Speak slowly.")


def test_a_deck_of_pictures_needs_ocr_and_one_without_slides_is_empty() -> None:
    with pytest.raises(DocumentRejected) as refused:
        read(samples.presentation(("", "")))
    assert refused.value.reason == "needs-ocr"
    assert read(saved(pptx.Presentation())).parts == ()


def test_a_deck_over_the_limit_is_too_large() -> None:
    with pytest.raises(DocumentRejected) as refused:
        read(samples.presentation(("Retention",) * 10), max_characters=200)
    assert refused.value.reason == "too-large"
