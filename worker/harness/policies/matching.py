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
    for reading, places in zip(readings, _places(question, readings), strict=True):
        counts: dict[str, int] = {}
        for at in places:
            term = reading.terms[at]
            counts[term] = counts.get(term, 0) + 1
        length = 1.2 * (0.25 + 0.75 * len(reading.terms) / question.mean_terms)
        words = sum(question.weight(term) * count * 2.2 / (count + length) for term, count in counts.items())
        stems = tuple((cut in reading.spaced) if cut else stem in counts for stem, cut in question.cuts)
        yield Match(words, stems, *_heaviest_pieces(question, reading, places))


def _places(question: Question, readings: Sequence[Reading]) -> Iterator[list[int]]:
    """Where terms of the question stand in each reading. Found by key in all at once, which leaves few to look at."""
    if not readings:
        return
    wanted = np.fromiter(map(hash, question.known), np.int64, len(question.known))
    found = np.flatnonzero(np.isin(np.concatenate([reading.keys for reading in readings]), wanted))
    ends = np.cumsum([len(reading.keys) for reading in readings])
    cuts = np.searchsorted(found, ends).tolist()
    for reading, end, first, last in zip(readings, ends.tolist(), [0, *cuts], cuts, strict=False):
        places = (found[first:last] - (end - len(reading.keys))).tolist()
        yield [at for at in places if reading.terms[at] in question.known]


def _heaviest_pieces(question: Question, reading: Reading, places: list[int]) -> tuple[float, float]:
    terms, grams = reading.terms, question.grams
    phrase = opening = 0.0
    for at, following in pairwise(places):
        if following == at + 1 and (weight := grams.get(terms[at : at + 2])) is not None:
            # what begins a piece of the question is a piece itself, and no heavier
            for end in range(at + 3, min(at + LONGEST_GRAM, len(terms)) + 1):
                longer = grams.get(terms[at:end])
                if longer is None:
                    break
                weight = longer
            phrase = max(phrase, weight)
            opening = max(opening, weight) if at < OPENING_TERMS else opening
    return phrase, opening
