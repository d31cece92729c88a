"""Where the headings, code fences and tables of a Markdown-like text lie; it reads line starts only and renders nothing."""

import re
from bisect import bisect_right
from dataclasses import dataclass, field

_TITLE_CHARACTERS = 120
_PATH_SEPARATOR = " > "

# One alternative a line: a fence, a `#` heading, or the line under a heading or a table's header row.
_MARKS = re.compile(
    r"^(?:[ \t]*(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)"
    r"|[ ]{0,3}(?P<level>#{1,6})(?:[ \t](?P<title>[^\n]*))?"
    r"|[ ]{0,3}(?P<underline>=+|-+)[ \t]*"
    r"|[ \t]*(?P<delimiter>(?:\|[ \t]*)?:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*))$",
    re.MULTILINE,
)
_FRONT_MATTER = re.compile(r"---\n(?:[^\n]*\n){0,60}?---(?:\n|$)")
_LINK = re.compile(r"!?\[([^\[\]\n]*)\]\([^()\n]*\)")
_NOT_A_TITLE = ("#", ">", "- ", "* ", "+ ", "|", "    ", "\t")


@dataclass(frozen=True)
class Table:
    """A Markdown table: its rows lie in `text[body:end]`, `header` is the header row as written."""

    body: int
    end: int
    header: str


@dataclass
class Outline:
    """Offsets in ascending order; `paths[i]` is the path of headings in force from `headings[i]` on."""

    headings: list[int] = field(default_factory=list[int])
    paths: list[str] = field(default_factory=list[str])
    fences: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    tables: list[Table] = field(default_factory=list[Table])
    title: str = ""

    def path_at(self, offset: int) -> str:
        """The headings above `offset`, outermost first; a heading that starts there is part of it."""
        index = bisect_right(self.headings, offset) - 1
        return self.paths[index] if index >= 0 else ""

    def table_header_at(self, offset: int) -> str:
        """The header row of the table whose rows contain `offset`, or nothing."""
        index = bisect_right(self.tables, offset, key=lambda table: table.body) - 1
        return self.tables[index].header if index >= 0 and offset < self.tables[index].end else ""

    def fence_at(self, offset: int) -> tuple[int, int] | None:
        """The code fence that contains `offset`."""
        index = bisect_right(self.fences, offset, key=lambda fence: fence[0]) - 1
        return self.fences[index] if index >= 0 and offset < self.fences[index][1] else None


def outline_of(text: str) -> Outline:
    """Reads the structure of `text` in one pass, linear in its length."""
    scan = _Scan(text)
    front_matter = _FRONT_MATTER.match(text)
    for mark in _MARKS.finditer(text, front_matter.end() if front_matter else 0):
        scan.take(mark)
    return scan.done()


class _Scan:
    """The state of the pass: an open fence hides everything until it closes."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._outline = Outline()
        self._fence: tuple[str, int] | None = None
        self._above: list[tuple[int, str]] = []

    def take(self, mark: re.Match[str]) -> None:
        fence = mark["fence"]
        if self._fence:
            closes = fence and fence.startswith(self._fence[0]) and not mark["info"].strip()
            if closes:
                self._outline.fences.append((self._fence[1], mark.end()))
                self._fence = None
        elif fence:
            self._fence = (fence, mark.start())
        elif mark["level"]:
            self._heading(mark.start(), len(mark["level"]), mark["title"] or "")
        elif mark["underline"] and (title := self._line_before(mark.start())):
            self._heading(mark.start() - len(title) - 1, 1 if mark["underline"][0] == "=" else 2, title)
        elif mark["delimiter"] and "|" in mark["delimiter"]:
            self._table(mark)

    def done(self) -> Outline:
        if self._fence:
            self._outline.fences.append((self._fence[1], len(self._text)))
        return self._outline

    def _heading(self, offset: int, level: int, written: str) -> None:
        title = _LINK.sub(r"\1", written[: 4 * _TITLE_CHARACTERS].strip().rstrip("#").strip())[:_TITLE_CHARACTERS]
        if not title:
            return
        while self._above and self._above[-1][0] >= level:
            self._above.pop()
        self._above.append((level, title))
        self._outline.headings.append(offset)
        self._outline.paths.append(_PATH_SEPARATOR.join(name for _, name in self._above))
        self._outline.title = self._outline.title or title

    def _line_before(self, offset: int) -> str:
        """The one-line paragraph above `offset`, which an underline turns into a heading; else nothing."""
        start = self._text.rfind("\n", 0, max(offset - 1, 0)) + 1
        line = self._text[start : max(offset - 1, 0)]
        alone = start < 2 or self._text[start - 2] == "\n"
        plain = line.strip() and len(line) <= 2 * _TITLE_CHARACTERS and not line.startswith(_NOT_A_TITLE)
        return line if alone and plain else ""

    def _table(self, mark: re.Match[str]) -> None:
        start = self._text.rfind("\n", 0, max(mark.start() - 1, 0)) + 1
        header = self._text[start : max(mark.start() - 1, 0)].strip()
        if "|" not in header or (self._outline.tables and start < self._outline.tables[-1].end):
            return
        end = mark.end() + 1
        while end < len(self._text):
            line_end = self._text.find("\n", end)
            line_end = len(self._text) if line_end < 0 else line_end
            if "|" not in self._text[end:line_end]:
                break
            end = line_end + 1
        self._outline.tables.append(Table(body=mark.end() + 1, end=min(end, len(self._text)), header=header))
