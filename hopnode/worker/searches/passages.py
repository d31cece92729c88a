"""The passages of a result: which of the selections are shown, and each as JSON with its citation."""

from collections.abc import Sequence

from pydantic import JsonValue

from hopnode.worker.harness.outcome import Selection
from hopnode.worker.searches.duplicates import without_duplicates
from hopnode.worker.searches.request import SearchRequest
from hopnode.worker.searches.space import Space

SCORE_DIGITS = 6
"""Digits behind the point of a score that is shown; scores are compared as they are shown."""


def kept(selections: Sequence[Selection], request: SearchRequest, space: Space) -> list[Selection]:
    """The best selections that still exist and reach the least score that is asked for, without duplicates.

    A score that a result showed keeps its own passage when it is handed back as the least one.
    """
    least = round(request.min_score, SCORE_DIGITS)
    wanted = [one for one in space.current(selections) if round(one.score, SCORE_DIGITS) >= least]
    return without_duplicates(wanted, request.top_k)


def passages(selections: Sequence[Selection], space: Space, neighbours: int) -> list[JsonValue]:
    """The selections in their order as the result shows them, with up to so many neighbours on either side of each."""
    return [_passage(rank, one, space, neighbours) for rank, one in enumerate(selections, start=1)]


def _passage(rank: int, selection: Selection, space: Space, neighbours: int) -> JsonValue:
    chunk = selection.chunk
    near = space.insight.around(chunk, neighbours) if neighbours else []
    return {
        "rank": rank,
        "score": round(selection.score, SCORE_DIGITS),
        "document_id": chunk.document_id,
        "chunk_id": chunk.id,
        "key": chunk.key,
        "title": chunk.title,
        "heading": chunk.heading,
        "url": chunk.url,
        "text": chunk.text,
        "start": chunk.start,
        "end": chunk.end,
        "page": chunk.page,
        "metadata": dict(chunk.metadata),
        "neighbours": [
            {"chunk_id": one.id, "text": one.text, "start": one.start, "end": one.end, "page": one.page} for one in near
        ],
        "justification": selection.justification,
        "found_by": list(selection.found_by),
        "votes": sum(one is not None for one in selection.ranks) or 1,
        "ranks": list(selection.ranks) or [rank],
    }
