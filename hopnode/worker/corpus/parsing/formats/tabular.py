"""Rows as lines that can be read alone: `column: value | column: value`, so that a search finds a row by its columns."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from hopnode.worker.corpus.parsing.formats.decode import decode
from hopnode.worker.corpus.parsing.formats.draft import Draft, RawDocument, gather, one_line

_DELIMITERS = ",;\t|"
_SAMPLE_LINES = 50
_HEADER_AMONG = 10
_HEADER_FILLED = 0.6
_NUMBER = re.compile(r"[-+]?[\d.,:/\s]*\d[\d.,:/\s%€$]*")
_LONGEST_NUMBER = 40
_BETWEEN = " | "

csv.field_size_limit(2**31 - 1)  # the module's default of 128 kB refuses long cells, and it has no other place for it


def read_csv(raw: RawDocument, delimiter: str | None = None) -> Draft:
    """A table of one header and its rows; the delimiter is found by which one gives rows of equal length."""
    text, warnings = decode(raw.data, raw.charset)
    text = text.replace("\x00", "")
    found = delimiter or _delimiter(text)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=found)
    return Draft(kind="table", parts=(gather(table_lines(rows), raw.max_characters),), warnings=warnings)


def table_lines(rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """One line a row, ending in a newline; the header row itself comes first, rows above it as they are.

    Without a row that can be a header, values stand alone. Empty cells are left out.
    """
    filled = (row for row in rows if any(cell.strip() for cell in row))
    first = list(islice(filled, _SAMPLE_LINES))
    header = _header_index(first)
    names = [one_line(cell) for cell in first[header]] if header is not None else []
    for index, row in enumerate(chain(first, filled)):
        labels = names if header is not None and index > header else []
        line = _BETWEEN.join(_cells(row, labels))
        yield f"\\{line}\n" if line.startswith("#") else f"{line}\n"  # a row is no heading


def _cells(row: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    for index, cell in enumerate(row):
        value = one_line(cell)
        name = names[index] if index < len(names) else ""
        if value:
            yield f"{name}: {value}" if name else value


def _header_index(rows: Sequence[Sequence[str]]) -> int | None:
    """The first of the top rows that names most columns with words."""
    widest = max((sum(1 for cell in row if cell.strip()) for row in rows), default=0)
    for index, row in enumerate(rows[:_HEADER_AMONG]):
        cells = [cell.strip() for cell in row if cell.strip()]
        worded = not any(_is_number(cell) for cell in cells)
        if worded and len(cells) >= _HEADER_FILLED * widest and len(rows) > index + 1:
            return index
    return None


def _is_number(cell: str) -> bool:
    return len(cell) <= _LONGEST_NUMBER and _NUMBER.fullmatch(cell) is not None


def _delimiter(text: str) -> str:
    """Comma, semicolon, tab or bar: the one with the most columns in the most rows."""
    sample = "".join(islice(io.StringIO(text, newline=""), _SAMPLE_LINES))
    return max(_DELIMITERS, key=lambda delimiter: _fit(sample, delimiter))


def _fit(sample: str, delimiter: str) -> float:
    widths = Counter(len(row) for row in csv.reader(io.StringIO(sample, newline=""), delimiter=delimiter) if row)
    if not widths:
        return 0
    width, rows = widths.most_common(1)[0]
    return (width > 1) * rows / widths.total() + min(width, 100) / 1_000
