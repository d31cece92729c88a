"""Reads what a gpt-oss model wrote in the harmony format, however badly; asks no library and raises nothing.

A call comes only from a message of the assistant that is addressed to a tool. What follows the first finished call, or a
final answer, is not the model's to write (results, user messages) and is not read.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from hopnode.worker.inference.messages import ToolCall


class Mark(Enum):
    """The structural tokens of the format."""

    START = "<|start|>"
    END = "<|end|>"
    MESSAGE = "<|message|>"
    CHANNEL = "<|channel|>"
    CONSTRAIN = "<|constrain|>"
    RETURN = "<|return|>"
    CALL = "<|call|>"


Piece = Mark | str
"""A structural token, or the text between two of them."""


@dataclass(frozen=True)
class HarmonyReply:
    """A reply taken apart. `text` is for the reader (final channel, or spoken beside calls), `reasoning` is not; a call's
    arguments are as the model wrote them. `broken` says that something stood where the format allows nothing."""

    reasoning: str = ""
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    broken: bool = False


_MARKS = re.compile("|".join(re.escape(mark.value) for mark in Mark))


def pieces_of(text: str) -> Iterator[Piece]:
    """The pieces of a reply that came as text with its structural tokens spelled out."""
    at = 0
    for found in _MARKS.finditer(text):
        if found.start() > at:
            yield text[at : found.start()]
        yield Mark(found.group())
        at = found.end()
    if at < len(text):
        yield text[at:]


def looks_like_harmony(text: str) -> bool:
    """Whether structural tokens of the format stand in `text`, which a server should have taken out."""
    return _MARKS.search(text) is not None


@dataclass
class _Message:
    """One message as it is collected; `started` tells whether <|start|> stood before it, `ended_by` which token closed it
    (None when the reply broke off)."""

    header: str = ""
    body: str = ""
    has_body: bool = False
    started: bool = False
    ended_by: Mark | None = None


def read_reply(pieces: Iterable[Piece]) -> HarmonyReply:
    """The reply in `pieces`, which begin after the prompt: with `<|start|>assistant`, or anywhere later in a header."""
    reasoning: list[str] = []
    text: list[str] = []
    calls: list[ToolCall] = []
    broken = False
    for message in _messages(pieces):
        by_assistant, channel, recipient = _header(message)
        _find_body(message, recipient)
        if not message.has_body:
            broken |= bool(message.header.strip())
            if not channel and not recipient:
                reasoning.append(_MARKS.sub(" ", message.header))
        elif not by_assistant:
            broken = True
        elif recipient:
            calls.append(ToolCall(f"call_{len(calls)}", recipient, message.body))
        elif channel in ("final", "commentary") and message.ended_by is not Mark.CALL:
            text.append(message.body)
        else:
            broken |= channel != "analysis" or message.ended_by is Mark.CALL
            reasoning.append(message.body)
        if message.ended_by in (Mark.RETURN, Mark.CALL):
            break
    return HarmonyReply(_joined(reasoning), _joined(text), tuple(calls), broken)


def _messages(pieces: Iterable[Piece]) -> Iterator[_Message]:
    """Messages in order. A new header begins at <|start|>, and at a <|channel|> inside a body: the model forgot <|end|>."""
    message = _Message()
    for piece in pieces:
        if isinstance(piece, str):
            if message.has_body:
                message.body += piece
            else:
                message.header += piece
        elif piece is Mark.MESSAGE:
            message.has_body = True
        elif piece in (Mark.END, Mark.RETURN, Mark.CALL):
            message.ended_by = piece
            yield message
            message = _Message()
        elif piece is Mark.START or (piece is Mark.CHANNEL and message.has_body):
            if message.header or message.has_body:
                yield message
            message = _Message(started=True) if piece is Mark.START else _Message(header=piece.value)
        elif not message.has_body:
            message.header += piece.value
    if message.header or message.has_body:
        yield message


_CHANNEL = re.compile(r"<\|channel\|>\s*(analysis|commentary|final)")
_RECIPIENT = re.compile(r"to=(?:<\|constrain\|>)?([\w.-]*)")
_OTHERS = re.compile(r"(user|system|developer|tool|functions\.)\b", re.IGNORECASE)
_NOBODY = frozenset({"", "all", "user", "assistant", "system", "developer"})


def _header(message: _Message) -> tuple[bool, str, str]:
    """Whether the assistant is the author, the channel, and the recipient. A header without an author is the assistant's,
    whose turn it is; text that strayed between two messages names no author."""
    author = message.header.split("<|", 1)[0].split("to=", 1)[0].strip()
    ours = not author or author.startswith("assistant") if message.started else not _OTHERS.match(author)
    channel = _CHANNEL.search(message.header)
    addressed = _RECIPIENT.search(message.header)
    recipient = tool_name(addressed.group(1)) if addressed else ""
    by_assistant = ours and recipient != "assistant"
    return by_assistant, channel.group(1) if channel else "", "" if recipient in _NOBODY else recipient


def _find_body(message: _Message, recipient: str) -> None:
    """Arguments that stand in the header, because the model forgot <|message|>, are the body of a call."""
    at = min((at for at in (message.header.find("{"), message.header.find("[")) if at >= 0), default=-1)
    if recipient and not message.has_body and at >= 0:
        message.body, message.has_body = _MARKS.split(message.header[at:], maxsplit=1)[0], True


def tool_name(written: str) -> str:
    """A tool's name without what the format leaves on it: a namespace in front, structural tokens around it."""
    bare = written.strip().removeprefix(Mark.CONSTRAIN.value)
    return bare.split("<|", 1)[0].strip().removeprefix("functions.")


def _joined(parts: Sequence[str]) -> str:
    return "\n".join(part.strip() for part in parts if part.strip())
