"""Figures of a ranking against what is right: recall, complete recall, MRR and nDCG over documents, with intervals.

Knows numbers only. Definitions are those of trec_eval (`recall_k`, `recip_rank`, `ndcg_cut_10`), against which tests hold them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log2

import numpy as np
from numpy.typing import NDArray

CUTS = (1, 2, 5, 8, 10, 20)
"""Ranks at which recall is measured."""
NDCG_CUT = 10
NAMES = (*(f"recall@{cut}" for cut in CUTS), *(f"all@{cut}" for cut in CUTS), "mrr", "ndcg10")
"""Figures of one question, in the order of the columns of `table_of`."""
RESAMPLES = 2_000
_RESAMPLES_AT_ONCE = 100

Values = NDArray[np.float64]
Ranks = Mapping[str, int | None]
"""Rank from 1 of each gold document, None where it was not returned."""


@dataclass(frozen=True)
class Interval:
    """Where the mean lies with 95 % confidence, were the questions drawn anew."""

    low: float
    high: float


def distinct(documents: Sequence[str]) -> list[str]:
    """Documents by the place of their first chunk."""
    return list(dict.fromkeys(documents))


def ranks_of(gold: Mapping[str, int], ranking: Sequence[str]) -> dict[str, int | None]:
    """The rank of every gold document in a ranking of distinct documents."""
    places = {document: rank for rank, document in enumerate(ranking, start=1)}
    return {document: places.get(document) for document in gold}


def figures_of(ranks: Ranks, gains: Mapping[str, int]) -> tuple[float, ...]:
    """The figures named in `NAMES` of one question, each 0 to 1."""
    found = sorted(rank for rank in ranks.values() if rank is not None)
    within = [sum(rank <= cut for rank in found) for cut in CUTS]
    recall = [count / len(gains) for count in within]
    complete = [float(count == len(gains)) for count in within]
    return (*recall, *complete, 1 / found[0] if found else 0.0, _ndcg(ranks, gains))


def _ndcg(ranks: Ranks, gains: Mapping[str, int]) -> float:
    """Linear gains, discounted by the logarithm of the rank (Järvelin and Kekäläinen 2002, as in trec_eval)."""
    got = sum(gains[one] / log2(rank + 1) for one, rank in ranks.items() if rank is not None and rank <= NDCG_CUT)
    best = sorted(gains.values(), reverse=True)[:NDCG_CUT]
    return got / sum(gain / log2(place + 2) for place, gain in enumerate(best))


def table_of(rows: Sequence[tuple[float, ...]]) -> Values:
    """One line of figures a question."""
    return np.array(rows, np.float64).reshape(len(rows), -1)


def intervals(table: Values, seed: int) -> list[Interval]:
    """A 95 % percentile bootstrap interval of each column's mean: questions drawn with replacement, 2,000 times."""
    return percentiles(resampled(table, seed, lambda weights: weights @ table))


def resampled(table: Values, seed: int, mean: Callable[[Values], Values]) -> Values:
    """`mean` of many resamplings of the lines of a table, given as weights that add up to 1."""
    count = len(table)
    random = np.random.default_rng(seed)
    even = np.full(count, 1 / count)
    parts = range(0, RESAMPLES, _RESAMPLES_AT_ONCE)
    drawn = (random.multinomial(count, even, size=_RESAMPLES_AT_ONCE) / count for _ in parts)
    return np.concatenate([mean(weights) for weights in drawn])


def percentiles(means: Values) -> list[Interval]:
    """The middle 95 % of each column."""
    low, high = np.percentile(means, (2.5, 97.5), axis=0)
    return [Interval(float(one), float(other)) for one, other in zip(low, high, strict=True)]
