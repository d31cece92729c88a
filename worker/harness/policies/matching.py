"""What a chunk and a question have in common, word by word: terms, stems, and pieces of the question word for word."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from worker.harness.policies.question import LONGEST_GRAM, Question
from worker.harness.policies.reading import Reading

OPENING_TERMS = 20
"""Terms of a chunk that count as its start."""


@dataclass(frozen=True)
class Match:
    """`words` is the BM25 of the question's terms (k1 1.2, b 0.75), `stems` says of each stem of the question whether a
    term begins with it, `phrase` is the weight of the heaviest piece of the question that stands there word for word,
    `opening` of the heaviest near the start."""

    words: float
    stems: tuple[bool, ...]
    phrase: float
    opening: float


def match(question: Question, readings: Sequence[Reading]) -> Iterator[Match]:
    """Compares chunks with a question, one after the other; its terms are learnt, and `mean_terms` is known."""
    for reading, (places, terms) in zip(readings, _met(question, readings), strict=True):
        counts: dict[str, int] = {}
        for term in terms:
            counts[term] = counts.get(term, 0) + 1
        length = 1.2 * (0.25 + 0.75 * len(reading.keys) / question.mean_terms)
        words = sum(question.weight(term) * count * 2.2 / (count + length) for term, count in counts.items())
        stems = tuple((cut in reading.spaced) if cut else stem in counts for stem, cut in question.cuts)
        yield Match(words, stems, *_heaviest_pieces(question, places, terms))


def _met(question: Question, readings: Sequence[Reading]) -> Iterator[tuple[list[int], list[str]]]:
    """Terms of the question as they stand in each reading, and their places. Found by key in all readings at once."""
    if not readings:
        return
    term_of = {hash(term): term for term in question.known}
    wanted = np.fromiter(term_of, np.int64, len(term_of))
    keys = np.concatenate([reading.keys for reading in readings])
    found = np.flatnonzero(np.isin(keys, wanted))
    terms = [term_of[key] for key in keys[found].tolist()]
    starts = np.cumsum([0, *(len(reading.keys) for reading in readings)])
    cuts = np.searchsorted(found, starts)
    places = (found - np.repeat(starts[:-1], np.diff(cuts))).tolist()
    for first, last in pairwise(cuts.tolist()):
        yield places[first:last], terms[first:last]


def _heaviest_pieces(question: Question, places: list[int], terms: list[str]) -> tuple[float, float]:
    """Weight of the heaviest piece of the question among terms that stand side by side, anywhere and near the start."""
    phrase = opening = 0.0
    for at, (place, following) in enumerate(pairwise(places)):
        if following == place + 1 and (weight := question.grams.get((terms[at], terms[at + 1]))) is not None:
            # what begins a piece of the question is a piece itself, and no heavier
            for end in range(at + 3, min(at + LONGEST_GRAM, len(terms)) + 1):
                longer = question.grams.get(tuple(terms[at:end])) if places[end - 1] == place + end - at - 1 else None
                if longer is None:
                    break
                weight = longer
            phrase = max(phrase, weight)
            opening = max(opening, weight) if place < OPENING_TERMS else opening
    return phrase, opening
