"""Server-sent events out of the bytes of a stream, as the HTML standard says (section 9.2.6), and when to ask again.

Lines end at CR and LF only: JSON may hold the other line separators of Unicode as they are.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from hopnode_client.errors import HopnodeError, NoAnswer, Unavailable, UnexpectedAnswer

_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class Event:
    """One event; `id` is None where the event itself carries none."""

    kind: str
    data: str
    id: str | None


class EventReader:
    """Takes the bytes as they come and gives back the events that they complete."""

    def __init__(self) -> None:
        self._rest = b""
        self._fields: dict[str, list[str]] = {}

    def feed(self, piece: bytes) -> Iterator[Event]:
        """The events that end in this piece. An event that the stream breaks off in is never told."""
        *lines, self._rest = _LINE_END.split(self._rest + piece)
        if piece.endswith(b"\r") and lines:  # it may be the first half of CR LF: wait for what follows
            self._rest = lines.pop() + b"\r"
        for line in lines:
            if line:
                name, _, value = line.decode("utf-8", "replace").partition(":")
                self._fields.setdefault(name, []).append(value.removeprefix(" "))
            elif event := self._complete():
                yield event

    def _complete(self) -> Event | None:
        fields, self._fields = self._fields, {}
        if "data" not in fields:  # a comment, or the `retry` of the beginning
            return None
        return Event(fields.get("event", ["message"])[-1], "\n".join(fields["data"]), fields.get("id", [None])[-1])


class Reconnections:
    """Counts the breaks of a stream in a row, and says how long to wait before the next try: 23 s in all."""

    most = 8

    def __init__(self) -> None:
        self._breaks = 0

    def progress(self) -> None:
        """Something came: whatever broke before is over."""
        self._breaks = 0

    def pause_after(self, error: HopnodeError) -> float:
        """Seconds until the next try. Raises the error when it is no break, or one too many."""
        self._breaks += 1
        passing = isinstance(error, NoAnswer | Unavailable)
        behind_proxy = isinstance(error, UnexpectedAnswer) and error.status in (429, 502, 503, 504)
        if self._breaks > self.most or not (passing or behind_proxy):
            raise error
        return min(0.25 * 2 ** (self._breaks - 1), 5.0)
