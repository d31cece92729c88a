"""Splits a parsed document into chunks that tile it in order, cut where its structure allows.

Knows structure and token counts; it never changes text, so every chunk is `document.text[start:end]`.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from typing import Protocol

from semantic_text_splitter import CodeSplitter, MarkdownSplitter, TextSplitter

from hopnode.worker.corpus.chunking.outline import Outline, outline_of
from hopnode.worker.corpus.chunking.slices import slices
from hopnode.worker.corpus.records import ChunkSpan, PageSpan, ParsedDocument
from hopnode.worker.tokens import count_tokens

MAX_TOKENS = 256
"""What MiniLM sees of a text; the second half of a larger chunk would be found by its words only. Measured on evidence
within long documents, 2,000 tokens of chunks of this size hold 94 % of it, of twice the size 87 %."""
OTHER_SCRIPTS = 2
"""How many times as many tokens a chunk may have where most letters are not Latin: the same text takes 1.2 (Chinese) to 2.0
times (Greek, Thai) as many tokens as in English. Measured on Japanese, halving such chunks costs 3 points at rank 1."""

_HEADING_CHARACTERS = 300
_ROW_START_CHARACTERS = 80
_SCRIPT_CHARACTERS = 20_000
_CODE_PREFIX = "code:"

# kind "code:<language>" → (package, function that returns the grammar)
_GRAMMARS = {
    "bash": ("tree_sitter_bash", "language"),
    "c": ("tree_sitter_c", "language"),
    "c_sharp": ("tree_sitter_c_sharp", "language"),
    "cpp": ("tree_sitter_cpp", "language"),
    "go": ("tree_sitter_go", "language"),
    "java": ("tree_sitter_java", "language"),
    "javascript": ("tree_sitter_javascript", "language"),
    "php": ("tree_sitter_php", "language_php"),
    "python": ("tree_sitter_python", "language"),
    "ruby": ("tree_sitter_ruby", "language"),
    "rust": ("tree_sitter_rust", "language"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
}


class _Splitter(Protocol):
    def chunk_indices(self, text: str) -> list[tuple[int, str]]: ...


def chunk(document: ParsedDocument, max_tokens: int = MAX_TOKENS) -> list[ChunkSpan]:
    """The chunks of `document`: in order, without overlap, never blank, each of 1…`max_tokens` o200k tokens, or twice as
    many in other scripts than Latin.

    Together they hold every character that is not white space. Offsets are code points. `heading` is the path of
    headings at the chunk's start, then what a piece of a table needs to be read alone: the header row of a Markdown
    table, or the beginning of the row that the chunk continues. `page` is the page on which the chunk starts.
    """
    text = document.text
    outline = outline_of(text) if document.kind in ("markdown", "table") else Outline()
    splitter = _splitter(document.kind, max_tokens if _is_latin(text) else OTHER_SCRIPTS * max_tokens)
    spans: list[ChunkSpan] = []
    for start, piece in _pieces(text, outline, splitter):
        spans.append(
            ChunkSpan(
                text=piece,
                start=start,
                end=start + len(piece),
                tokens=count_tokens(piece),
                heading=_heading(document, outline, start),
                page=_page(document.pages, start),
            )
        )
    return spans


def _pieces(text: str, outline: Outline, splitter: _Splitter) -> Iterator[tuple[int, str]]:
    for start, end in slices(text, outline):
        for offset, piece in splitter.chunk_indices(text[start:end]):
            if piece and not piece.isspace():
                yield start + offset, piece


def _heading(document: ParsedDocument, outline: Outline, start: int) -> str:
    parts = [outline.path_at(start)[-_HEADING_CHARACTERS:], outline.table_header_at(start)]
    if document.kind == "table":
        parts.append(_row_start(document.text, start))
    return " > ".join(part for part in parts if part)[: 2 * _HEADING_CHARACTERS]


def _row_start(text: str, start: int) -> str:
    """The first cells of the row that a chunk continues; nothing when it starts with a row."""
    row = text.rfind("\n", 0, start) + 1
    if not text[row:start].strip():
        return ""
    first = text[row : min(start, row + _ROW_START_CHARACTERS)]
    return first.rsplit(" | ", 1)[0].strip()


def _is_latin(text: str) -> bool:
    """Whether most letters are Latin, judged by the beginning of the text."""
    letters = [letter for letter in text[:_SCRIPT_CHARACTERS] if letter.isalpha()]
    return 2 * sum(letter <= "\u024f" for letter in letters) >= len(letters)


def _page(pages: tuple[PageSpan, ...], start: int) -> int | None:
    index = bisect_right(pages, start, key=lambda page: page.start) - 1
    return pages[index].number if index >= 0 else None


@cache
def _splitter(kind: str, max_tokens: int) -> _Splitter:
    """The splitter of one kind of text; it asks for exact counts, which is faster than guessing and counting again."""
    grammar = _GRAMMARS.get(kind.removeprefix(_CODE_PREFIX)) if kind.startswith(_CODE_PREFIX) else None
    if grammar:
        package, function = grammar
        language: Callable[[], object] = getattr(import_module(package), function)
        return CodeSplitter.from_callback(language(), count_tokens, max_tokens)
    if kind == "markdown":
        return MarkdownSplitter.from_callback(count_tokens, max_tokens)
    return TextSplitter.from_callback(count_tokens, max_tokens)
