"""Plain text, Markdown and source code: the text is the document, as written."""

import re

from hopnode.worker.corpus.chunking.outline import outline_of
from hopnode.worker.corpus.parsing.formats.decode import decode
from hopnode.worker.corpus.parsing.formats.draft import Draft, RawDocument, check_length

_FRONT_MATTER_TITLE = re.compile(r"\A---\n(?:(?!---\n)[^\n]*\n){0,60}?title:[ \t]*([^\n]+)\n")


def read_text(raw: RawDocument, kind: str) -> Draft:
    """`kind` is `text`, `markdown` or `code:<language>`; the title of Markdown is its front matter's or first heading."""
    text, warnings = decode(raw.data, raw.charset)
    check_length(len(text), raw.max_characters)
    title = _markdown_title(text.replace("\r\n", "\n")) if kind == "markdown" else ""
    return Draft(kind=kind, parts=(text,), title=title, warnings=warnings)


def _markdown_title(text: str) -> str:
    match = _FRONT_MATTER_TITLE.match(text)
    return match[1].strip().strip("\"'") if match else outline_of(text).title
