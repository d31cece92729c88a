"""Joins the printed lines of a page into paragraphs, so that a sentence is found across a line end; knows no layout."""

import re
import unicodedata
from statistics import median

_LEAST_WIDTH = 35  # narrower lines are a table, an address or a poem
_FULL = 0.75
_LETTERS = 0.6
_ENDS = tuple(".!?:;。！？：；")
_STARTS_ANEW = re.compile(r"(?:[•◦▪■●○‣·*–—-]|\(?\d{1,3}[.)]|\(?[a-zA-Z][.)])\s|[#|>]")
_WIDE = frozenset("WF")
_HYPHENATED = re.compile(r"[^\W\d_]{2}[-\u2010]$")
# PDFium marks a hyphen that only breaks a word with one of these.
_WORD_BREAKS = re.compile("[\x02\ufffe]\n?")


def reflow(page: str) -> str:
    """One line a paragraph: a line that fills the page's width and ends no sentence goes on in the next one.

    Words hyphenated at a line end are joined; lines of a table, headings and list items stay apart.
    """
    lines = [line.strip() for line in _WORD_BREAKS.sub("", page).split("\n")]
    usual = median([width for line in lines if (width := _width(line)) >= _LEAST_WIDTH] or [0])
    out: list[str] = []
    for index, line in enumerate(lines):
        above = lines[index - 1] if index else ""
        glue = "\n"
        if usual and _goes_on(above, line, usual):
            if _HYPHENATED.search(above[-3:]) and line[0].islower():
                out[-1] = out[-1][:-1]
                glue = ""
            else:
                glue = "" if _is_wide(above[-1]) and _is_wide(line[0]) else " "
        out.append(glue + line)
    return "".join(out).strip()


def _goes_on(above: str, line: str, usual: float) -> bool:
    if not above or not line or above.endswith(_ENDS) or _STARTS_ANEW.match(line):
        return False
    return _width(above) >= _FULL * usual and _is_prose(above)


def _is_prose(line: str) -> bool:
    return sum(character.isalpha() for character in line) >= _LETTERS * len(line)


def _width(line: str) -> int:
    return len(line) if line.isascii() else sum(1 + _is_wide(character) for character in line)


def _is_wide(character: str) -> bool:
    """Han, Kana and full-width marks, which are set without spaces; Hangul is as wide and has spaces."""
    return unicodedata.east_asian_width(character) in _WIDE and not "\uac00" <= character <= "\ud7a3"
