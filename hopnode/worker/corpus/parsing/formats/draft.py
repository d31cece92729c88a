"""What goes into a reader and what comes out of it, before text is brought into its stored form."""

from collections.abc import Iterable
from dataclasses import dataclass

from hopnode.worker.errors import DocumentRejected


@dataclass(frozen=True)
class RawDocument:
    """Bytes with what is known of them. `charset` is what the media type declared; `max_characters` bounds the text."""

    data: bytes
    name: str = ""
    charset: str | None = None
    max_characters: int = 10_000_000


@dataclass(frozen=True)
class Draft:
    """Text as a reader found it: one part, or one a page when `paged`. `kind` as in `ParsedDocument`."""

    kind: str
    parts: tuple[str, ...]
    paged: bool = False
    title: str = ""
    warnings: tuple[str, ...] = ()


def gather(pieces: Iterable[str], max_characters: int) -> str:
    """Joins `pieces`, without line ends at the end; stops as soon as they are longer than a document may be."""
    parts: list[str] = []
    length = 0
    for piece in pieces:
        length += len(piece)
        check_length(length, max_characters)
        parts.append(piece)
    return "".join(parts).rstrip("\n")


def check_length(characters: int, max_characters: int) -> None:
    """Raises `DocumentRejected("too-large")` above the limit."""
    if characters > max_characters:
        raise DocumentRejected("too-large", f"The document's text is longer than {max_characters:,} characters.")


def markdown_table(rows: Iterable[Iterable[str]]) -> str:
    """Rows as a Markdown table whose first row is the header; cells are put on one line."""
    lines: list[str] = []
    for cells in rows:
        line = " | ".join(one_line(cell).replace("|", "\\|") for cell in cells)
        lines.append(f"| {line} |")
        if len(lines) == 1:
            lines.append("|" + "---|" * (line.count(" | ") + 1))
    return "\n".join(lines)


def one_line(text: str) -> str:
    """`text` with every run of white space as one space."""
    return " ".join(text.split())
