"""Reciprocal rank fusion of ranked lists, and how much the dense list weighs beside the lexical one; knows ranks only."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Generic, TypeVar

from hopnode.worker.corpus.analyzer import is_unspaced

Key = TypeVar("Key", bound=Hashable)

RRF_K = 60
"""The constant of Cormack, Clarke and Buettcher (2009); the same for the legs of a search, for the rollouts of an agent and for
the score of a rank."""


@dataclass(frozen=True)
class Leg(Generic[Key]):
    """One ranked list, best first, and its weight."""

    items: Sequence[Key]
    weight: float = 1.0


def fuse(legs: Sequence[Leg[Key]], *, k: int = RRF_K, missing_rank: int | None = None) -> list[tuple[Key, float]]:
    """All items with their fused score, best first; equal scores keep the order in which the legs named them.

    An item gets `weight / (k + rank)` from each leg that holds it, ranks counted from 1. A leg that does not hold it
    gives nothing, or counts as `missing_rank` when that is set (the rule of the harness over several rollouts).
    """
    scores: dict[Key, float] = dict.fromkeys((item for leg in legs for item in leg.items), 0.0)
    for leg in legs:
        for rank, item in enumerate(leg.items, start=1):
            scores[item] += leg.weight / (k + rank)
        if missing_rank is not None:
            for item in scores.keys() - set(leg.items):
                scores[item] += leg.weight / (k + missing_rank)
    return sorted(scores.items(), key=itemgetter(1), reverse=True)


# Measured with bench/fusion_weights.py (recall@1 / recall@5, words alone -> with this weight). MiniLM: 2Wiki 37.6/69.0
# -> 39.7/73.0, MuSiQue 31.2/50.9 -> 33.8/59.7, HotpotQA 40.0/78.0 -> 42.5/81.5. USE is much weaker than words: it helps
# a little at a small weight (German 87.1/96.0 -> 88.6/96.6, Russian 81.0/92.4 -> 82.0/93.4) and ruins the order at an
# equal one (Korean 90.1 -> 65.4 at rank 1, Hindi, which it was not trained on, 89.4 -> 22.0).
_FALLBACK = 0.01
"""Behind everything that words find: for text that an embedder was not trained on."""
_EQUAL = 0.5
WORDS_LEAD = 0.3
"""Share of the dense leg below which a search leaves the order to words."""


def dense_weight_of(chosen: float | None, embedder: str, query: str) -> float:
    """The share that a collection sets, or the default of its embedder for the query's language."""
    return default_dense_weight(embedder, query) if chosen is None else chosen


def default_dense_weight(embedder: str, query: str) -> float:
    """Share of the dense leg (0 to 1, the lexical leg has the rest) when a collection sets none."""
    if embedder == "minilm":
        return 0.6 if _all_letters(query, _LATIN) else _FALLBACK
    if embedder == "use":
        if is_unspaced(query):
            return 0.02
        return 0.05 if _all_letters(query, _TRAINED_BY_USE) else _FALLBACK
    return _EQUAL


_LATIN = ((0x00, 0x17F),)
# Up to Latin Extended-A, Cyrillic, Arabic. Vietnamese and Romanian, which USE does not know, have letters beyond.
_TRAINED_BY_USE = ((0x00, 0x17F), (0x400, 0x4FF), (0x600, 0x6FF))


def _all_letters(text: str, ranges: Sequence[tuple[int, int]]) -> bool:
    codes = (ord(letter) for letter in text if letter.isalpha())
    return all(any(first <= code <= last for first, last in ranges) for code in codes)


def knows_language(embedder: str, query: str) -> bool:
    """Whether the embedder was trained on text in the query's script; if not, its vectors say next to nothing."""
    return default_dense_weight(embedder, query) > _FALLBACK
