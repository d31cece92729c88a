"""Regular expressions over the chunks of a workspace, with RE2 and limits: no pattern may stall the process.

A large collection is narrowed down by a trigram index first; what the index does not hold yet is scanned.
"""

import re
import time
import unicodedata
from collections.abc import Iterator
from itertools import pairwise
from typing import Protocol

import re2

from hopnode.worker.corpus.finding.legs import Scope
from hopnode.worker.corpus.sqlite.lexical import rows_with_trigrams
from hopnode.worker.corpus.sqlite.reading import CollectionRow, texts_behind, texts_of_rows
from hopnode.worker.corpus.sqlite.text_store import Snapshot
from hopnode.worker.errors import InvalidRequest

LONGEST_PATTERN_BYTES = 1_024
MAX_MEMORY_BYTES = 8 << 20
LARGEST_PROGRAM_BYTES = 640 << 10
"""Memory in which a pattern must compile (some 10,000 instructions): a bomb is refused within milliseconds, and what is
let through stays bearable when RE2 has to walk every instruction for every byte."""
MAX_SECONDS = 2.0
_FIRST_BATCH, _LARGEST_BATCH = 16, 512


class Grep:
    """A compiled pattern with its clock; case counts unless the pattern starts with `(?i)`."""

    def __init__(self, pattern: str, max_seconds: float = MAX_SECONDS) -> None:
        self._regexp = compile_pattern(pattern)
        self._trigrams = required_trigrams(pattern)
        self._ends_at = time.monotonic() + max_seconds
        self._max_seconds = max_seconds

    def rows(self, snapshot: Snapshot, collection: CollectionRow, scope: Scope, limit: int) -> list[int]:
        """The first `limit` matching rows of the collection, in the order in which they were stored.

        Raises `InvalidRequest` when time is up before the search is through.
        """
        found: list[int] = []
        for row, text in self._candidates(snapshot, collection, scope):
            if time.monotonic() > self._ends_at:
                raise InvalidRequest(
                    f"The pattern was not through after {self._max_seconds:g} s. Give it a literal of three characters "
                    "or more that every match holds, or search first and grep for less."
                )
            if self._regexp.search(text):
                found.append(row)
                if len(found) >= limit:
                    break
        return found

    def _candidates(self, snapshot: Snapshot, collection: CollectionRow, scope: Scope) -> Iterator[tuple[int, bytes]]:
        indexed = collection.grep_row if self._trigrams else 0
        after, wanted = 0, _FIRST_BATCH
        while indexed:
            rows = rows_with_trigrams(snapshot, collection.number, self._trigrams, after, wanted)
            yield from texts_of_rows(snapshot, [row for row in rows if _allowed(row, scope)])
            if len(rows) < wanted:
                break
            after, wanted = rows[-1], min(2 * wanted, _LARGEST_BATCH)
        for row, text in texts_behind(snapshot, collection.number, indexed):
            if _allowed(row, scope):
                yield row, text


class _Compiled(Protocol):
    def search(self, text: bytes) -> object | None: ...


def compile_pattern(pattern: str) -> _Compiled:
    """The pattern for UTF-8 bytes; `InvalidRequest` with RE2's reason, or when it is too long or too large."""
    encoded = unicodedata.normalize("NFC", pattern).encode("utf-8", "replace")  # as the stored text is
    if not pattern or len(encoded) > LONGEST_PATTERN_BYTES:
        raise InvalidRequest(f"A pattern has 1 to {LONGEST_PATTERN_BYTES} bytes.")
    try:
        _compile(encoded, LARGEST_PROGRAM_BYTES)
        return _compile(encoded, MAX_MEMORY_BYTES)
    except re2.error as error:
        raise InvalidRequest(
            f"The pattern cannot be used: {(reason := _reason(error))}.{_hint(pattern, reason)}"
        ) from error


def _compile(pattern: bytes, max_memory: int) -> _Compiled:
    options = re2.Options()
    options.max_mem = max_memory
    options.log_errors = False
    return re2.compile(pattern, options)


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else "unknown"
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)


def _hint(pattern: str, reason: str) -> str:
    if "too large" in reason:
        return " Use smaller repetition counts, or a plain class like [a-z] where a Unicode one is repeated."
    if re.search(r"\(\?(<?[=!]|>)", pattern):
        return " RE2 has no look-around; grep for the part that must be there."
    if re.search(r"\\[1-9]", pattern):
        return " RE2 has no back-references."
    if re.search(r"[()\[\]{}*+?]", pattern):
        return " To look for a special character itself, put a backslash before it."
    return ""


_LEADING_FLAGS = re.compile(r"\(\?[ims]+\)")
_UNREAD = re.compile(r"\||\(\?|\[:|\\[0-9xpPQ]")
_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{[\d,]*\}|.", re.DOTALL)
_PLAIN = re.compile(r"[^\\.^$*+?{}\[\]()|]")
_ESCAPED = re.compile(r"\\[^\w\s]")


def required_trigrams(pattern: str) -> list[str]:
    """Triples of characters that every match must hold; empty when nothing can be said.

    Reads only what is certain: literal characters outside groups and classes, in a pattern without alternatives. What
    it does not understand ends a run of literals or the reading as a whole; it never claims too much.
    """
    flags = _LEADING_FLAGS.match(pattern)
    rest = unicodedata.normalize("NFC", pattern[flags.end() :] if flags else pattern)
    if _UNREAD.search(rest):
        return []
    runs = [run for run in _literal_runs(rest) if len(run) >= 3]
    return list(dict.fromkeys(run[index : index + 3] for run in runs for index in range(len(run) - 2)))


def _literal_runs(pattern: str) -> list[str]:
    parts: list[str] = _TOKEN.findall(pattern)
    runs, run, depth = [""], "", 0
    for part, following in pairwise([*parts, ""]):
        depth += (part == "(") - (part == ")")
        optional = following in ("*", "?") or following.startswith("{")
        literal = part if _PLAIN.fullmatch(part) else part[1:] if _ESCAPED.fullmatch(part) else ""
        if literal and depth == 0 and not optional:
            run += literal
        if not literal or depth or optional or following == "+":
            runs.append(run)
            run = ""
    return [*runs, run]


def _allowed(row: int, scope: Scope) -> bool:
    return scope is None or row in scope
