"""Reciprocal rank fusion of ranked lists, and how much the dense list weighs beside the lexical one; knows ranks only."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from worker.corpus.analyzer import is_unspaced

Key = TypeVar("Key", bound=Hashable)

RRF_K = 60
"""The constant of Cormack, Clarke and Buettcher (2009)."""


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
    ranks = [{item: rank for rank, item in enumerate(leg.items, start=1)} for leg in legs]
    scores: dict[Key, float] = {item: 0.0 for leg in legs for item in leg.items}
    for item in scores:
        for leg, rank_of in zip(legs, ranks, strict=True):
            rank = rank_of.get(item, missing_rank)
            if rank is not None:
                scores[item] += leg.weight / (k + rank)
    return sorted(scores.items(), key=lambda entry: -entry[1])


_DENSE_WEIGHTS = {"minilm": (0.5, 0.1), "use": (0.3, 0.2)}
_OTHER_DENSE_WEIGHT = (0.5, 0.5)


def default_dense_weight(embedder: str, query: str) -> float:
    """Weight of the dense leg when the collection sets none, the lexical leg being 1."""
    spaced, unspaced = _DENSE_WEIGHTS.get(embedder, _OTHER_DENSE_WEIGHT)
    return unspaced if is_unspaced(query) else spaced
