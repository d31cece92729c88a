"""JSON as language models write it: the first balanced value counts, and what is nearly JSON is mended. Knows no meaning.

Nothing is completed: text that ends before its brackets close holds no value.
"""

import json
import re
from typing import cast

from pydantic import JsonValue

_ILLEGAL_BACKSLASH = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_CLOSERS = {"{": "}", "[": "]"}


def loads(text: str) -> JsonValue:
    """The value of `text` as it stands, else of its first balanced object or list, else of that one mended.

    Mended are backslashes that JSON does not know and raw control characters. ValueError when there is no value.
    """
    try:
        return _read(_STRICT, text)
    except ValueError:
        pass
    found = first_balanced(text)
    if found is None:
        raise ValueError("there is no whole JSON object or list")
    try:
        return _read(_FORGIVING, found)
    except ValueError:
        return _read(_FORGIVING, _ILLEGAL_BACKSLASH.sub(r"\\\\", found))


def first_balanced(text: str) -> str | None:
    """The first object or list in `text` whose brackets close, as it is written there. Returns None when none does."""
    start = next((at for at, letter in enumerate(text) if letter in _CLOSERS), None)
    if start is None:
        return None
    open_brackets: list[str] = []
    in_text = escaped = False
    for at in range(start, len(text)):
        letter = text[at]
        if in_text:
            in_text = escaped or letter != '"'
            escaped = letter == "\\" and not escaped
        elif letter == '"':
            in_text, escaped = True, False
        elif letter in _CLOSERS:
            open_brackets.append(_CLOSERS[letter])
        elif letter in "}]":
            if open_brackets.pop() != letter:
                return None
            if not open_brackets:
                return text[start : at + 1]
    return None


_STRICT = json.JSONDecoder()
_FORGIVING = json.JSONDecoder(strict=False)
"""Takes raw line breaks and other control characters inside texts."""


def _read(decoder: json.JSONDecoder, text: str) -> JsonValue:
    try:
        return cast(JsonValue, decoder.decode(text))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
