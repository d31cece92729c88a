"""Cuts a long text into bounded slices at its strongest boundaries, so that no later step is quadratic in the text.

Knows lines, headings and fences; it counts characters, never tokens.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator

from hopnode.worker.corpus.chunking.outline import Outline

SLICE_CHARACTERS = 32_000
LONG_LINE_CHARACTERS = 6_000
UNBROKEN_CHARACTERS = 2_500

_LINE_LONGER = re.compile(rf"[^\n]{{{LONG_LINE_CHARACTERS + 1},}}")
_SENTENCE_END = re.compile(r"[.!?](?=\s)|[。！？｡]|[;,](?=\s)")
_BLANK_LINE = re.compile(r"\n\n(?=\S)")  # what follows is not indented: a new paragraph, function or class
_ZWJ = "\u200d"
_GLUED = re.compile("[\u200c\u200d\ufe00-\ufe0f\U0001f3fb-\U0001f3ff\U000e0100-\U000e01ef]")


def slices(text: str, outline: Outline) -> Iterator[tuple[int, int]]:
    """Tiles `text` with (start, end) pairs: at most 32,000 characters each, 6,000 within a line longer than that, 2,500
    within a line that long without sentence ends.

    A splitter that reads the rest of its input for every word takes quadratic time in a line without sentence ends. It
    took 40 s for 1 MB of random letters, and 90 s for 300,000 Chinese characters. Over such slices its time is linear.
    """
    start = 0
    for line in _LINE_LONGER.finditer(text):
        yield from _lines(text, outline, start, line.start())
        yield from _long_line(text, line.start(), line.end())
        start = line.end()
    yield from _lines(text, outline, start, len(text))


def _lines(text: str, outline: Outline, start: int, end: int) -> Iterator[tuple[int, int]]:
    while end - start > SLICE_CHARACTERS:
        cut = _cut_between_lines(text, outline, start, start + SLICE_CHARACTERS)
        yield start, cut
        start = cut
    if start < end:
        yield start, end


def _cut_between_lines(text: str, outline: Outline, start: int, limit: int) -> int:
    """The last heading in the second half, else the last blank line (outside a fence), else the last line end."""
    half = (start + limit) // 2
    index = bisect_right(outline.headings, limit) - 1
    if index >= 0 and outline.headings[index] > half:
        return outline.headings[index]
    blank = max((match.end() for match in _BLANK_LINE.finditer(text, half, limit)), default=0)
    if blank and (fence := outline.fence_at(blank)) and fence[0] > half:
        return fence[0]
    if blank:
        return blank
    return text.rfind("\n", start, limit) + 1  # there is one: no line of this stretch is longer than a long line


def _long_line(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    while end - start > LONG_LINE_CHARACTERS:
        cut = _cut_in_line(text, start, start + LONG_LINE_CHARACTERS)
        yield start, cut
        start = cut
    yield start, end


def _cut_in_line(text: str, start: int, limit: int) -> int:
    """After the last sentence in the last third; without one earlier, after the last space, or between two graphemes."""
    sentences = [match.end() for match in _SENTENCE_END.finditer(text, limit - (limit - start) // 3, limit)]
    if sentences:
        return sentences[-1]
    limit = start + UNBROKEN_CHARACTERS
    third = limit - UNBROKEN_CHARACTERS // 3
    space = text.rfind(" ", third, limit) + 1
    if space:
        return space
    cut = limit
    while cut > third and _inside_grapheme(text, cut):
        cut -= 1
    return cut if cut > third else limit


def _inside_grapheme(text: str, cut: int) -> bool:
    after = text[cut]
    return text[cut - 1] == _ZWJ or bool(_GLUED.match(after)) or unicodedata.combining(after) > 0
