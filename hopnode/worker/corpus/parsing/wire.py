"""The frames between a parser pool and its child: two lengths, a JSON header, raw bytes. No pickle, no code crosses."""

import struct
from collections.abc import Sequence
from typing import IO

from pydantic import BaseModel, ConfigDict

from hopnode.worker.corpus.records import PageSpan, ParsedDocument

OUT_OF_MEMORY = "Parsing the document needs more memory than is allowed."
EXIT_OUT_OF_MEMORY = 3
"""How a child ends that has no memory left for an answer."""

_LENGTHS = struct.Struct(">II")
_MOST_HEADER_BYTES = 64_000_000


class Request(BaseModel):
    """What to parse; the document's bytes are the frame's body."""

    model_config = ConfigDict(extra="forbid")

    media_type: str | None
    filename: str | None


class Reply(BaseModel):
    """What became of it; the text is the frame's body. `ready` opens the talk, `last` says that the child ends now."""

    model_config = ConfigDict(extra="forbid")

    ready: bool = False
    reason: str | None = None
    message: str = ""
    kind: str = ""
    title: str = ""
    pages: Sequence[tuple[int, int, int]] = ()
    warnings: Sequence[str] = ()
    last: bool = False


def send(stream: IO[bytes], header: Request | Reply, body: bytes = b"") -> None:
    """Writes one frame; raises `OSError` when the other side is gone."""
    head = header.model_dump_json().encode()
    stream.write(_LENGTHS.pack(len(head), len(body)))
    stream.write(head)
    stream.write(body)
    stream.flush()


def receive(stream: IO[bytes], most_body_bytes: int) -> tuple[bytes, bytes] | None:
    """Reads one frame (header, body), or None when the other side ended. Raises `ValueError` for a frame that is too long."""
    lengths = stream.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        return None
    head_length, body_length = _LENGTHS.unpack(lengths)
    if head_length > _MOST_HEADER_BYTES or body_length > most_body_bytes:
        raise ValueError("frame too long")
    head, body = stream.read(head_length), stream.read(body_length)
    return (head, body) if len(head) == head_length and len(body) == body_length else None


def reply_of(document: ParsedDocument, *, last: bool) -> tuple[Reply, bytes]:
    """The frame that carries a parsed document."""
    pages = [(page.number, page.start, page.end) for page in document.pages]
    reply = Reply(kind=document.kind, title=document.title, pages=pages, warnings=document.warnings, last=last)
    return reply, document.text.encode()


def document_of(reply: Reply, body: bytes) -> ParsedDocument:
    """The parsed document that a frame carries."""
    return ParsedDocument(
        text=body.decode(),
        kind=reply.kind,
        title=reply.title,
        pages=tuple(PageSpan(*page) for page in reply.pages),
        warnings=tuple(reply.warnings),
    )
