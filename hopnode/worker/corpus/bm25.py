"""BM25, once for all lexical engines and the ranking: constants, the weight of a term, what it gives a chunk, which terms tell.

Knows numbers only: no text, no index and no storage.
"""

import math
from collections.abc import Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

K1, B = 1.2, 0.75
"""The constants that FTS5 is built with; every engine ranks by them."""
GUARDED_COLLECTION = 5_000
"""Chunks from which terms that are nearly everywhere are left out of a query: FTS5 scores every chunk that has them."""
COMMON_SHARE = 0.2
_MOST_TERMS = 64

Figures = TypeVar("Figures", float, NDArray[np.float64])
"""One number, or one a chunk."""


def idf(chunks: int, frequency: int) -> float:
    """The weight of a term that stands in `frequency` of `chunks` chunks. FTS5 has the same formula. It is never zero, so that
    the smallest collection can be searched."""
    return max(1e-6, math.log((chunks - frequency + 0.5) / (frequency + 0.5)))


def rarity(chunks: int, frequency: int) -> float:
    """The weight that the ranking gives a term: `idf` with 1 added inside the logarithm, so that a term in most chunks still
    tells a little. It is 0 where `frequency` exceeds `chunks`: chunks may come while a question is weighed."""
    return math.log(1 + (chunks - frequency + 0.5) / (frequency + 0.5)) if frequency <= chunks else 0.0


def term_score(weight: Figures, count: Figures, length: Figures, average: float) -> Figures:
    """What a term of that weight gives a chunk that has it `count` times among its `length` terms; a chunk has
    `average` terms on average."""
    return weight * (K1 + 1) * count / (count + (K1 * (1 - B) + K1 * B / average * length))


def telling_terms(frequency: Mapping[str, int], chunks: int) -> list[str]:
    """The terms worth ranking by, rarest first, given in how many of `chunks` each stands."""
    rarest = sorted(frequency, key=frequency.__getitem__)[:_MOST_TERMS]
    if chunks < GUARDED_COLLECTION:
        return rarest
    telling = [term for term in rarest if frequency[term] <= COMMON_SHARE * chunks]
    return telling or rarest[:2]
