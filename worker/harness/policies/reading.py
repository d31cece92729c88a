"""A chunk as the offline policy reads it: its index terms, name and capitalised words. Pure and cached."""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from worker.corpus.analyzer import analyze
from worker.corpus.names import best_name
from worker.corpus.records import Chunk

STEM_LETTERS = 6
"""Words that share this many first letters count as forms of one word; crude, and the same for every language."""
CONTEXT_TERMS = 12
"""Terms on either side of a mention that say what it is about."""

_WORD = re.compile(r"\w+")
_LEAST_CAPITAL_LETTERS = 3
_CACHED = 20_000


@dataclass(frozen=True)
class Reading:
    """`terms` of the chunk below its title and heading, `written` its text alone, `name` the terms of the document's best
    name. `keys` has a number for each term, the same for the same: numbers of many readings are gone through at once."""

    terms: tuple[str, ...]
    keys: NDArray[np.int64]
    name: tuple[str, ...]
    written: str
    is_opening: bool

    @cached_property
    def capitals(self) -> frozenset[str]:
        """The terms of words written with a capital letter."""
        words = _WORD.findall(self.written)
        capitals = {word for word in words if word[0].isupper() and len(word) >= _LEAST_CAPITAL_LETTERS}
        return frozenset(map(sys.intern, analyze(" ".join(capitals), query=True)))

    @cached_property
    def spaced(self) -> str:
        """The terms in one string, each behind a space: to look for those that begin with a stem."""
        return f" {' '.join(self.terms)}"

    def places(self, phrase: tuple[str, ...]) -> Iterator[int]:
        """Where the phrase begins."""
        start, size = -1, len(phrase)
        try:
            while True:
                start = self.terms.index(phrase[0], start + 1)
                if self.terms[start : start + size] == phrase:
                    yield start
        except ValueError:
            return

    def context(self, start: int, end: int) -> frozenset[str]:
        """Stems around `terms[start:end]`."""
        around = self.terms[max(0, start - CONTEXT_TERMS) : start] + self.terms[end : end + CONTEXT_TERMS]
        return frozenset([term[:STEM_LETTERS] for term in around])

    def context_of(self, phrase: tuple[str, ...]) -> frozenset[str]:
        """Stems around every place where the phrase stands."""
        return frozenset[str]().union(*(self.context(start, start + len(phrase)) for start in self.places(phrase)))


def read(chunk: Chunk) -> Reading:
    """Reads a chunk below its title and heading, or remembers having read it."""
    return _read(chunk.title, chunk.heading, chunk.text, chunk.position == 0)


@lru_cache(_CACHED)
def _read(title: str, heading: str, text: str, is_opening: bool) -> Reading:
    # Many chunks share a term: kept once, it takes no memory in each, and is compared and looked up faster.
    terms = tuple(map(sys.intern, analyze("\n".join(part for part in (title, heading, text) if part), query=True)))
    keys = np.fromiter(map(hash, terms), np.int64, len(terms))
    return Reading(terms, keys, best_name(title, text) or terms[:2], text, is_opening)
