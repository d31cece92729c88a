"""A chunk as the ranking reads it: its index terms, name and capitalised words. Pure and cached; knows no question."""

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from hopnode.worker.corpus.analyzer import LONGEST_TERM, analyze
from hopnode.worker.corpus.names import best_name
from hopnode.worker.corpus.records import Chunk

STEM_LETTERS = 6
"""Words that share this many first letters count as forms of one word; crude, and the same for every language."""
CONTEXT_TERMS = 12
"""Terms on either side of a mention that say what it is about."""

_WORD = re.compile(r"\w+")
_LEAST_CAPITAL_LETTERS = 3
"""Shorter capitals are mostly initials and the first words of sentences."""
_CONTEXT_CHARACTERS = CONTEXT_TERMS * (LONGEST_TERM + 1)
_CACHED = 20_000
"""Readings kept, a few kilobytes each: the candidates of some hundred questions."""


@dataclass(frozen=True)
class Reading:
    """What the ranking reads of a chunk: `spaced` has the terms below its title and heading, each between spaces. `written`
    is its text alone. `name` has the terms of the document's best name.

    `keys` has the `hash` of each term: numbers of many readings are gone through at once, and lie side by side. Two
    different terms have the same one time in 2**64.
    """

    spaced: str
    keys: NDArray[np.int64]
    name: tuple[str, ...]
    written: str
    is_opening: bool

    @cached_property
    def terms(self) -> tuple[str, ...]:
        """The terms one by one; for the few chunks that are looked at closely."""
        return tuple(map(sys.intern, self.spaced.split()))  # kept once, however many chunks share a term

    @cached_property
    def capitals(self) -> frozenset[str]:
        """The terms of words written with a capital letter."""
        words = _WORD.findall(self.written)
        capitals = {word for word in words if word[0].isupper() and len(word) >= _LEAST_CAPITAL_LETTERS}
        return frozenset(map(sys.intern, analyze(" ".join(capitals), query=True)))

    def holds(self, term: str) -> bool:
        """Whether a term stands here."""
        return f" {term} " in self.spaced

    def context(self, start: int, end: int) -> frozenset[str]:
        """Stems around `terms[start:end]`."""
        return _stems(self.terms[max(0, start - CONTEXT_TERMS) : start] + self.terms[end : end + CONTEXT_TERMS])

    def context_of(self, phrase: tuple[str, ...]) -> frozenset[str]:
        """Stems around every place where the phrase stands."""
        sought, stems = f" {' '.join(phrase)} ", frozenset[str]()
        start = self.spaced.find(sought)
        while start >= 0:
            end = start + len(sought)
            before = self.spaced[max(0, start - _CONTEXT_CHARACTERS) : start].split()[-CONTEXT_TERMS:]
            stems |= _stems(before + self.spaced[end : end + _CONTEXT_CHARACTERS].split()[:CONTEXT_TERMS])
            start = self.spaced.find(sought, start + 1)
        return stems


def _stems(terms: Iterable[str]) -> frozenset[str]:
    return frozenset([term[:STEM_LETTERS] for term in terms])


def read(chunk: Chunk) -> Reading:
    """Reads a chunk below its title and heading, or remembers having read it."""
    return _read(chunk.title, chunk.heading, chunk.text, chunk.position == 0)


@lru_cache(_CACHED)
def _read(title: str, heading: str, text: str, is_opening: bool) -> Reading:
    terms = analyze("\n".join(part for part in (title, heading, text) if part), query=True)
    keys = np.fromiter(map(hash, terms), np.int64, len(terms))
    return Reading(f" {' '.join(terms)} ", keys, best_name(title, text) or tuple(terms[:2]), text, is_opening)
