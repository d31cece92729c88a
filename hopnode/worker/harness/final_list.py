"""The final list of documents: read from what a model wrote, and resolved against what the run was really shown.

Knows no model. Nothing that was not displayed in this run can come out of here, whatever the text says.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from hopnode.worker.corpus.records import Chunk
from hopnode.worker.harness.actions import FinalEntry
from hopnode.worker.harness.context import Context
from hopnode.worker.harness.outcome import Selection, rank_score
from hopnode.worker.ranking.overlap import by_overlap

_OPEN = re.compile(
    r"<\s*document\s+id\s*=\s*(?:\"([^\"<>]*)\"|'([^'<>]*)'|\{([^{}<>]*)\}|([^\s<>]+))[^<>]*>", re.IGNORECASE
)
_CLOSE = re.compile(r"<\s*/\s*document\s*>", re.IGNORECASE)
_REASON = re.compile(r"<\s*justification\s*>(.*?)(?:<\s*/\s*justification\s*>|\Z)", re.IGNORECASE | re.DOTALL)
_NOTHING = re.compile(r"<\s*nodocuments\b", re.IGNORECASE)
_FENCE = re.compile(r"\A\s*```(?:json)?\s*(.*?)\s*```\s*\Z", re.DOTALL)
_OF_CALLS = frozenset({"chunk_ids", "tool_calls"})
"""Names that say that a list belongs to a tool call which went astray."""
_TAG = re.compile(r"<[^<>]*>")
DOCUMENT_CHUNKS = 3
"""At most this many passages stand for a document that was only read and is named by its document id."""


@dataclass(frozen=True)
class Resolved:
    """A final list as selections, and the ids in it that name nothing this run displayed."""

    selections: tuple[Selection, ...]
    unknown: tuple[str, ...] = ()


def parse_final(text: str) -> tuple[FinalEntry, ...] | None:
    """The final list in `text`, in its order. Returns None when there is none, empty when it says that nothing was found.

    Two forms are read. One is `<Document id=ID><Justification>…</Justification></Document>`, also with quoted or braced
    ids and unclosed tags. The other is a JSON list, bare, fenced, or under one key. Its entries are ids, or objects with
    `id` and `justification`.
    """
    entries = _tagged(text)
    return _first_of_each(_from_json(text) if entries is None else entries, text)


def parse_tagged(text: str) -> tuple[FinalEntry, ...] | None:
    """As `parse_final`, in the tagged form only: for text that was not written as an answer, where JSON may be anything."""
    return _first_of_each(_tagged(text), text)


def _first_of_each(entries: list[FinalEntry] | None, text: str) -> tuple[FinalEntry, ...] | None:
    if entries is None:
        return () if _NOTHING.search(text) else None
    first: dict[str, FinalEntry] = {}
    for entry in entries:
        if entry.id:
            first.setdefault(entry.id, entry)
    return tuple(first.values())


def _tagged(text: str) -> list[FinalEntry] | None:
    opens = list(_OPEN.finditer(text))
    if not opens:
        return None
    ends = [opening.start() for opening in opens[1:]] + [len(text)]
    entries: list[FinalEntry] = []
    for opening, end in zip(opens, ends, strict=True):
        body = _CLOSE.split(text[opening.end() : end], maxsplit=1)[0]
        reason = _REASON.search(body)
        bare = next(group for group in opening.groups() if group is not None)
        justification = _TAG.sub("", reason.group(1) if reason else body).strip()
        entries.append(FinalEntry(_clean(bare), justification))
    return entries


def _from_json(text: str) -> list[FinalEntry] | None:
    fenced = _FENCE.match(text)
    try:
        parsed = cast(object, json.loads(fenced.group(1) if fenced else text))
    except (ValueError, RecursionError):
        return None
    if isinstance(parsed, dict):
        fields = cast(dict[str, object], parsed)
        lists = [value for name, value in fields.items() if isinstance(value, list) and name not in _OF_CALLS]
        parsed = cast(object, lists[0]) if len(lists) == 1 else None
    if not isinstance(parsed, list):
        return None
    entries: list[FinalEntry] = []
    for item in cast(list[object], parsed):
        if isinstance(item, dict):
            fields = cast(dict[str, object], item)
            if "id" not in fields:
                return None
            entries.append(FinalEntry(_clean(str(fields.get("id", ""))), str(fields.get("justification", "")).strip()))
        elif isinstance(item, str | int):
            entries.append(FinalEntry(_clean(str(item))))
    return entries


def _clean(given: str) -> str:
    return given.strip().strip("\"'{}[]/").strip()


def resolve(ranking: Sequence[FinalEntry], context: Context, limit: int) -> Resolved:
    """Selections in the order of the ranking, at most `limit`; a chunk that comes twice keeps its first place."""
    shown = context.shown()
    chosen: dict[str, tuple[Chunk, str]] = {}
    unknown: list[str] = []
    for entry in ranking:
        chunks = [shown[entry.id]] if entry.id in shown else _of_document(entry, context)
        if not chunks:
            unknown.append(entry.id)
        for chunk in chunks:
            chosen.setdefault(chunk.id, (chunk, entry.justification))
    selections = (
        Selection(chunk, rank_score(rank), justification, context.found_by(chunk.id))
        for rank, (chunk, justification) in enumerate(list(chosen.values())[:limit], start=1)
    )
    return Resolved(tuple(selections), tuple(unknown))


def _of_document(entry: FinalEntry, context: Context) -> list[Chunk]:
    """What a document id stands for: its passages that a search or grep found and that are still in view; of a document
    that was only read the passages that share most with question and justification; else what was pruned of it."""
    held = [held for held in context.held() if held.chunk.document_id == entry.id]
    found = [one.chunk for one in held if any(not way.startswith("read: ") for way in one.found_by)]
    if found:
        return found
    if held:
        scores = by_overlap(f"{context.question} {entry.justification}", [one.chunk for one in held])
        best = sorted(range(len(held)), key=lambda at: -scores[at])[:DOCUMENT_CHUNKS]
        return sorted((held[at].chunk for at in best), key=lambda chunk: chunk.position)
    return [chunk for chunk in context.shown().values() if chunk.document_id == entry.id][:DOCUMENT_CHUNKS]


def fallback(context: Context, limit: int) -> Resolved:
    """A ranking without a final list: what is still in view, by reciprocal rank over the results that show it."""
    best = sorted(context.held(), key=lambda held: -held.weight)[:limit]
    return resolve([FinalEntry(held.chunk.id) for held in best], context, limit)
