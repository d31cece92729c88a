"""The door to parsing: bytes become text in its stored form, or a rejection with a reason. Knows formats by name only.

`parse` works in this process; `ParserPool` gives formats that can hurt to child processes with limits.
"""

import math
import os
import threading
import weakref
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Self

from hopnode.worker.corpus.parsing.formats.detect import charset_of, detect, is_risky
from hopnode.worker.corpus.parsing.formats.draft import Draft, RawDocument, check_length, one_line
from hopnode.worker.corpus.parsing.normalize import normalize_text
from hopnode.worker.corpus.parsing.process import ChildDied, ParsingProcess
from hopnode.worker.corpus.parsing.wire import OUT_OF_MEMORY
from hopnode.worker.corpus.records import PageSpan, ParsedDocument
from hopnode.worker.errors import DocumentRejected
from hopnode.worker.logs import get_logger

__all__ = ["PIPELINE_VERSION", "ParserPool", "normalize_text", "parse"]

PIPELINE_VERSION = 2
"""Grows with every change that makes the same bytes another text or other chunks, so that syncs read them again."""

MAX_CHARACTERS = 10_000_000

_log = get_logger(__name__)
_BETWEEN_PAGES = "\n\n"
_LONGEST_TITLE = 200
_IN_PROCESS_BYTES = 1_000_000


def parse(
    raw: bytes, *, media_type: str | None, filename: str | None, max_characters: int = MAX_CHARACTERS
) -> ParsedDocument:
    """The text of a document, in this process and without limits of time or memory.

    The first bytes decide what it is, then the media type, then the file name. Raises `DocumentRejected` with the
    reason `empty`, `unsupported-type`, `corrupt`, `encrypted`, `too-large`, `zip-bomb`, `needs-ocr` or `out-of-memory`.
    """
    document = RawDocument(
        raw, PurePosixPath((filename or "").replace("\\", "/")).name, charset_of(media_type), max_characters
    )
    try:
        draft = _read(document, detect(raw, media_type, filename))
    except DocumentRejected:
        raise
    except MemoryError as error:
        raise DocumentRejected("out-of-memory", OUT_OF_MEMORY) from error
    except Exception as error:  # the document boundary: libraries meet hostile bytes with any error at all
        _log.warning("parse_failed", error=type(error).__name__)
        raise DocumentRejected(
            "corrupt", "The document is damaged and cannot be read.", error=type(error).__name__
        ) from error
    return _finished(draft, document)


def _read(document: RawDocument, format_name: str) -> Draft:
    """Calls the one reader; readers are imported when they are needed, since their libraries take a second to load."""
    match format_name:
        case "pdf":
            from hopnode.worker.corpus.parsing.formats.pdf import read_pdf as read
        case "html":
            from hopnode.worker.corpus.parsing.formats.html import read_html as read
        case "zip":
            from hopnode.worker.corpus.parsing.formats.office.reader import read_office as read
        case "csv" | "tsv":
            from hopnode.worker.corpus.parsing.formats.tabular import read_csv

            return read_csv(document, "\t" if format_name == "tsv" else None)
        case "json":
            from hopnode.worker.corpus.parsing.formats.structured import read_json as read
        case "jsonl":
            from hopnode.worker.corpus.parsing.formats.structured import read_jsonl as read
        case "ipynb":
            from hopnode.worker.corpus.parsing.formats.notebook import read_notebook as read
        case _:
            from hopnode.worker.corpus.parsing.formats.text import read_text

            return read_text(document, format_name)
    return read(document)


def _finished(draft: Draft, document: RawDocument) -> ParsedDocument:
    """Brings a draft into its stored form; page offsets are those of the stored text."""
    text, pages = _joined(normalize_text(part) for part in draft.parts)
    if not text.strip():
        raise DocumentRejected("empty", "The document holds no text.")
    check_length(len(text), document.max_characters)
    title = one_line(normalize_text(draft.title)) or PurePosixPath(document.name).stem
    return ParsedDocument(
        text=text,
        kind=draft.kind,
        title=title[:_LONGEST_TITLE],
        pages=pages if draft.paged else (),
        warnings=draft.warnings,
    )


def _joined(parts: Iterable[str]) -> tuple[str, tuple[PageSpan, ...]]:
    """The parts with a blank line between them; an empty page is an empty span where it would be."""
    texts: list[str] = []
    pages: list[PageSpan] = []
    end = 0
    for number, part in enumerate(parts, 1):
        if part and texts:
            texts.append(_BETWEEN_PAGES)
            end += len(_BETWEEN_PAGES)
        pages.append(PageSpan(number, end, end + len(part)))
        if part:
            texts.append(part)
            end += len(part)
    return "".join(texts), tuple(pages)


class ParserPool:
    """Parses documents of any origin: what can hurt runs in a warm child process with limits, plain text right here.

    PDF, Office and HTML files, every archive, and anything over 1 MB go to a child. A child that dies or is too slow
    is replaced. Safe for many threads: up to `children` documents are parsed side by side, others wait their turn.
    """

    def __init__(self, timeout_seconds: float, memory_bytes: int, max_characters: int, *, children: int = 2) -> None:
        self._timeout = timeout_seconds
        self._memory = memory_bytes
        self._max_characters = max_characters
        self._children = children
        self._start_over()

    def parse_safely(self, raw: bytes, *, media_type: str | None, filename: str | None) -> ParsedDocument:
        """As `parse`, within limits: raises `DocumentRejected` also with `timeout` or `out-of-memory`."""
        if len(raw) <= _IN_PROCESS_BYTES and not is_risky(detect(raw, media_type, filename)):
            return parse(raw, media_type=media_type, filename=filename, max_characters=self._max_characters)
        if os.getpid() != self._owner:
            self._start_over()  # a forked process must not talk to the children of its parent
        with self._slots:
            return self._in_child(raw, media_type, filename)

    def close(self) -> None:
        """Ends the idle children; a later call starts new ones."""
        while self._idle:
            self._idle.pop().end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start_over(self) -> None:
        self._owner = os.getpid()
        self._slots = threading.BoundedSemaphore(self._children)
        self._idle: list[ParsingProcess] = []
        weakref.finalize(self, _end_all, self._idle, self._owner)

    def _in_child(self, raw: bytes, media_type: str | None, filename: str | None) -> ParsedDocument:
        child = self._take()
        try:
            document = child.parse(raw, media_type, filename, self._timeout)
        except ChildDied as death:
            _log.warning("parsing_process_ended", reason=death.reason, exit_code=death.exit_code)
            raise DocumentRejected(death.reason, str(death)) from death
        finally:
            if child.is_usable():
                self._idle.append(child)
            else:
                child.end()
        return document

    def _take(self) -> ParsingProcess:
        while self._idle:
            try:
                child = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if child.is_usable():
                return child
            child.end()
        return ParsingProcess(self._memory, math.ceil(self._timeout), self._max_characters)


def _end_all(idle: list[ParsingProcess], owner: int) -> None:
    if os.getpid() == owner:
        for child in idle:
            child.end()
