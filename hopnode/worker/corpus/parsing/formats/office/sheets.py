"""XLSX through openpyxl, row by row: a heading for each sheet, stored values instead of formulas, no hidden sheets."""

import io
import warnings
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time
from typing import Any

import openpyxl
from openpyxl.workbook import Workbook

from hopnode.worker.corpus.parsing.formats.draft import Draft, RawDocument, gather, one_line
from hopnode.worker.corpus.parsing.formats.tabular import table_lines


def read_xlsx(raw: RawDocument) -> Draft:
    """Every visible sheet as `# name` and its rows; a warning counts the hidden sheets that were left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # openpyxl tells of drawings and validations that it leaves out
        book = openpyxl.load_workbook(io.BytesIO(raw.data), read_only=True, data_only=True, keep_links=False)
        try:
            text = gather(_lines(book), raw.max_characters)
            title = one_line(book.properties.title or "")
            hidden = sum(sheet.sheet_state != "visible" for sheet in book.worksheets)
        finally:
            book.close()
    found = (f"{hidden} hidden sheets were left out.",) if hidden else ()
    return Draft(kind="table", parts=(text,), title=title, warnings=found)


def _lines(book: Workbook) -> Iterator[str]:
    for sheet in book.worksheets:
        if sheet.sheet_state != "visible":
            continue
        sheet.reset_dimensions()  # the stored size may be wrong, and then rows are lost
        lines = table_lines(_row(values) for values in sheet.iter_rows(values_only=True))
        first = next(lines, None)
        if first is not None:
            yield f"# {one_line(sheet.title)}\n{first}"
            yield from lines
            yield "\n"


def _row(values: Sequence[Any]) -> list[str]:
    return [_text(value) for value in values]


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        midnight = value.time() == time()
        return value.date().isoformat() if midnight else value.isoformat(" ", "seconds")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return str(value)
