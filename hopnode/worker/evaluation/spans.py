"""How much of the evidence within long documents lies in the passages that fit a budget of tokens.

A document of many pages is found easily and answers nothing by itself: here the characters count, not the document.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hopnode.worker.corpus.parsing.parser import normalize_text
from hopnode.worker.evaluation.dataset import Gold, GoldSpan, Text
from hopnode.worker.tokens import count_tokens

BUDGET_TOKENS = 2_000
"""Tokens of passages that are looked at, best first; the first passage that does not fit ends the list."""
FIXED_TOKENS = 512
"""Size of the pieces of the baseline."""


@dataclass(frozen=True)
class Passage:
    """Characters `start` to `end` of a stored document, and how many tokens they are."""

    document: str
    start: int
    end: int
    tokens: int


def fitting(passages: Iterable[Passage], budget: int = BUDGET_TOKENS) -> list[Passage]:
    """The passages from the best on that together stay within the budget."""
    kept: list[Passage] = []
    left = budget
    for passage in passages:
        left -= passage.tokens
        if left < 0:
            break
        kept.append(passage)
    return kept


def covered(spans: Sequence[GoldSpan], passages: Iterable[Passage]) -> tuple[float, float]:
    """The share of the evidence's characters that the passages hold, and whether they hold all of it (0 or 1)."""
    wanted: dict[str, set[int]] = {}
    for span in spans:
        wanted.setdefault(span.document, set()).update(range(span.start, span.end))
    total = sum(len(places) for places in wanted.values())
    for passage in passages:
        wanted.get(passage.document, set()).difference_update(range(passage.start, passage.end))
    missing = sum(len(places) for places in wanted.values())
    return 1 - missing / total, float(missing == 0)


def stored(gold: Mapping[str, Gold], documents: Sequence[Text]) -> tuple[dict[str, tuple[GoldSpan, ...]], int]:
    """The evidence of each question as characters of the stored texts, which are normalised, and how many spans could
    not be placed there."""
    texts = {one.id: one.text for one in documents}
    changed = {name for name, text in texts.items() if normalize_text(text) != text}
    placed: dict[str, tuple[GoldSpan, ...]] = {}
    lost = 0
    for question, one in gold.items():
        spans = [
            _moved(span, texts[span.document], span.document in changed) for span in one.spans if span.document in texts
        ]
        placed[question] = tuple(span for span in spans if span is not None)
        lost += len(one.spans) - len(placed[question])
    return placed, lost


def _moved(span: GoldSpan, text: str, is_changed: bool) -> GoldSpan | None:
    if span.end > len(text):
        return None
    if not is_changed:
        return span
    start = len(normalize_text(text[: span.start]))
    moved = replace(span, start=start, end=start + len(normalize_text(text[span.start : span.end])))
    return moved if moved.end > moved.start else None


def fixed_pieces(document: Text, tokens: int = FIXED_TOKENS) -> list[tuple[int, str]]:
    """The baseline's chunks: offsets and texts of pieces of `tokens` tokens, cut wherever they are full."""
    text, pieces, start = normalize_text(document.text), list[tuple[int, str]](), 0
    while start < len(text):
        end = _full(text, start, tokens)
        pieces.append((start, text[start:end]))
        start = end
    return pieces


def _full(text: str, start: int, tokens: int) -> int:
    """The furthest end at which a piece is still within its tokens."""
    low, high = start + 1, min(len(text), start + 16 * tokens)
    while low < high:
        middle = (low + high + 1) // 2
        if count_tokens(text[start:middle]) <= tokens:
            low = middle
        else:
            high = middle - 1
    return low
