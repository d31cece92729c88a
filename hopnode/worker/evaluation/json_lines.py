"""Reads the files that question sets are made of, plain or gzip'd, and says where one is wrong: file, line and field.

Knows lines, columns and types; what a field means is decided in `loading.py`.
"""

import csv
import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hopnode.worker.errors import InvalidRequest

LARGEST_FILE = 4_000_000_000
"""Characters; a gzip'd file that unpacks to more is not read."""


@dataclass(frozen=True)
class Record:
    """One line as an object, with its place for error messages."""

    place: str
    fields: dict[str, Any]

    def text(self, *names: str, default: str | None = None) -> str:
        """The first of these fields that is there, as text; numbers count as text. `default` None: it is required."""
        name = next((one for one in names if self.fields.get(one) is not None), None)
        if name is None:
            if default is not None:
                return default
            raise self.wrong(f"the field {' or '.join(f'`{one}`' for one in names)} is missing")
        value = self.fields[name]
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self.wrong(f"`{name}` must be text, not {_kind(value)}")
        return str(value)

    def filled(self, *names: str) -> str:
        """As `text`, and not blank."""
        value = self.text(*names)
        if not value.strip():
            raise self.wrong(f"`{next(one for one in names if one in self.fields)}` is empty")
        return value

    def list_of(self, name: str, kind: type | tuple[type, ...], *, required: bool = False) -> list[Any]:
        """A field that holds a list of values of one type; empty when it is missing and not required."""
        value = self.fields.get(name)
        if value is None:
            if required:
                raise self.wrong(f"the field `{name}` is missing")
            return []
        if not isinstance(value, list) or not all(isinstance(one, kind) for one in value):  # pyright: ignore[reportUnknownVariableType]
            raise self.wrong(f"`{name}` must be a list of {_name(kind)}")
        return value  # pyright: ignore[reportUnknownVariableType]

    def wrong(self, what: str) -> InvalidRequest:
        """The error that says what is wrong in this place."""
        return InvalidRequest(f"{self.place}: {what}.")


def json_lines(path: Path) -> Iterator[Record]:
    """The objects of a JSON Lines file; blank lines are skipped."""
    for number, line in _lines(path):
        if not line.strip():
            continue
        place = f"{path.name}, line {number}"
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise InvalidRequest(f"{place}: this is no JSON ({error}).") from error
        if not isinstance(fields, dict):
            raise InvalidRequest(f"{place}: a line must hold a JSON object, not {_kind(fields)}.")
        yield Record(place, fields)


def table_lines(path: Path, *, separator: str, columns: tuple[str, ...]) -> Iterator[Record]:
    """The rows of a table with a header that names at least `columns`."""
    rows = csv.reader(_source(path), delimiter=separator)
    try:
        header = [name.strip().lower() for name in next(rows, [])]
        if missing := [name for name in columns if name not in header]:
            found = ", ".join(name for name in header if name) or "nothing"
            raise InvalidRequest(
                f"{path.name}, line 1: the header must name the columns {', '.join(columns)}; "
                f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing (it names {found})."
            )
        for row in rows:
            if not any(cell.strip() for cell in row):
                continue
            place = f"{path.name}, line {rows.line_num}"
            if len(row) != len(header):
                raise InvalidRequest(f"{place}: there are {len(row)} cells, and the header names {len(header)}.")
            yield Record(place, dict(zip(header, row, strict=True)))
    except csv.Error as error:
        raise InvalidRequest(f"{path.name}, line {rows.line_num}: {error}.") from error


def whole_json(path: Path) -> Any:
    """The one JSON value of a file."""
    text = "".join(line for _, line in _lines(path))
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidRequest(f"{path.name}: this is no JSON ({error}).") from error


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    return enumerate(_source(path), start=1)


def _source(path: Path) -> Iterator[str]:
    """The lines of a file with their ends as they are: a quoted cell may hold one. The set is held in memory anyway."""
    lines: list[str] = []
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
            read = 0
            for line in file:
                read += len(line)
                if read > LARGEST_FILE:
                    raise InvalidRequest(f"{path.name} is too large: more than {LARGEST_FILE:,} characters.")
                lines.append(line)
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path.name} is not UTF-8: {error.reason} near line {len(lines) + 1}.") from error
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidRequest(f"{path} cannot be read: {error}.") from error
    return iter(lines)


def _kind(value: object) -> str:
    names: dict[type, str] = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _name(kind: type | tuple[type, ...]) -> str:
    names = {str: "texts", int: "whole numbers", float: "numbers", dict: "objects", list: "lists"}
    return " or ".join(names[one] for one in (kind if isinstance(kind, tuple) else (kind,)))
