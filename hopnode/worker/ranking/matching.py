"""What a question and some chunks have in common, word by word: terms, stems, and pieces of the question word for word."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hopnode.worker.corpus.bm25 import term_score
from hopnode.worker.ranking.question import LONGEST_GRAM, WeighedQuestion
from hopnode.worker.ranking.reading import Reading
from hopnode.worker.ranking.weights import Numbers

OPENING_TERMS = 20
"""Terms of a chunk that count as its start: about its title and first clause. Fitted together with the weights."""


@dataclass(frozen=True)
class Matches:
    """A line for each chunk. `words` is the BM25 of the question's terms. `stems` says of each stem of the question whether a
    term begins with it. `phrase` is the weight of the heaviest piece of the question that stands there word for word;
    `opening` is that of the heaviest near the start."""

    words: Numbers
    stems: NDArray[np.bool_]
    phrase: Numbers
    opening: Numbers


@dataclass(frozen=True)
class _Met:
    """Where terms of the question stand: in which of the readings, at which place there, and which term it is."""

    lines: NDArray[np.int64]
    places: NDArray[np.int64]
    terms: NDArray[np.int64]


def match(question: WeighedQuestion, readings: Sequence[Reading]) -> Matches:
    """Compares chunks with a question, all at once; its terms are learnt, and `mean_terms` is known."""
    terms = list(question.known)
    met = _met(terms, readings)
    counts = np.bincount(met.lines * len(terms) + met.terms, minlength=len(readings) * len(terms))
    counts = counts.reshape(len(readings), len(terms))
    lengths = np.array([len(reading.keys) for reading in readings], np.float64)[:, None]
    weights = np.array([question.weight(term) for term in terms])
    words = term_score(weights, counts.astype(np.float64), lengths, question.mean_terms).sum(1)
    held = dict(zip(terms, counts.T > 0, strict=True))
    return Matches(words, _stems(question, readings, held), *_heaviest_pieces(question, readings, met, terms))


def _met(terms: Sequence[str], readings: Sequence[Reading]) -> _Met:
    """Found by key in all readings at once."""
    keys = np.fromiter(map(hash, terms), np.int64, len(terms))
    order = np.argsort(keys)
    all_keys = np.concatenate([keys[:0], *(reading.keys for reading in readings)])
    found = np.flatnonzero(np.isin(all_keys, keys))
    starts = np.cumsum([0, *(len(reading.keys) for reading in readings)])
    lines = np.searchsorted(starts, found, "right") - 1
    return _Met(lines, found - starts[lines], order[np.searchsorted(keys, all_keys[found], sorter=order)])


def _stems(
    question: WeighedQuestion, readings: Sequence[Reading], held: Mapping[str, NDArray[np.bool_]]
) -> NDArray[np.bool_]:
    """One column for each stem; `held` has one for each term."""
    texts = [reading.spaced for reading in readings]
    columns = [[cut in text for text in texts] if cut else held[stem] for stem, cut in question.cuts]
    return np.array(columns, bool).reshape(len(columns), len(texts)).T


def _heaviest_pieces(
    question: WeighedQuestion, readings: Sequence[Reading], met: _Met, terms: Sequence[str]
) -> tuple[Numbers, Numbers]:
    """Weight of the heaviest piece of the question among terms that stand side by side, anywhere and near the start."""
    phrase, opening = [0.0] * len(readings), [0.0] * len(readings)
    # one number grows by one from a place to the next in the same reading, and by more from a reading to another
    at = met.lines * (max((len(reading.keys) for reading in readings), default=0) + 2) + met.places
    beside = np.diff(at) == 1
    which: list[int] = met.terms.tolist()
    words = [terms[term] for term in which]
    for start in np.flatnonzero(beside).tolist():
        weight, end = None, start + 2
        # what begins a piece of the question is a piece itself, and no heavier
        while end <= start + LONGEST_GRAM and (longer := question.grams.get(tuple(words[start:end]))) is not None:
            weight = longer
            if end > len(beside) or not beside[end - 1]:
                break
            end += 1
        if weight is not None:
            line = int(met.lines[start])
            phrase[line] = max(phrase[line], weight)
            if met.places[start] < OPENING_TERMS:
                opening[line] = max(opening[line], weight)
    return np.array(phrase), np.array(opening)
