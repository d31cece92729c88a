"""Passages that say the same twice take a place that another could have; here the later one goes. Compares words only."""

from collections.abc import Sequence

from hopnode.worker.harness.outcome import Selection
from hopnode.worker.ranking.reading import read

ALIKE = 0.9
"""Share of different words that two passages must have in common to count as one."""


def without_duplicates(selections: Sequence[Selection], most: int) -> list[Selection]:
    """The first `most` selections in their order, without those whose words are nearly those of an earlier one."""
    kept: list[tuple[Selection, frozenset[int]]] = []
    for selection in selections:
        if len(kept) == most:
            break
        words = frozenset(read(selection.chunk).keys.tolist())
        if not any(_alike(words, others) for _, others in kept):
            kept.append((selection, words))
    return [selection for selection, _ in kept]


def _alike(first: frozenset[int], second: frozenset[int]) -> bool:
    fewer, more = sorted((len(first), len(second)))
    if fewer < ALIKE * more:  # they cannot have enough in common
        return False
    common = len(first & second)
    return common >= ALIKE * (fewer + more - common)
