"""A chunk as the offline policy reads it: its index terms, stems, name and capitalised words. Pure and cached."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from worker.corpus.analyzer import analyze
from worker.corpus.names import names_of
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
    """`name` are the terms of the document's best name, `capitals` the terms of words written with a capital letter."""

    terms: tuple[str, ...]
    counts: Mapping[str, int]
    stems: frozenset[str]
    name: tuple[str, ...]
    capitals: frozenset[str]
    is_opening: bool

    def context(self, start: int, end: int) -> frozenset[str]:
        """Stems around `terms[start:end]`."""
        around = self.terms[max(0, start - CONTEXT_TERMS) : start] + self.terms[end : end + CONTEXT_TERMS]
        return frozenset(term[:STEM_LETTERS] for term in around)

    def context_of(self, phrase: tuple[str, ...]) -> frozenset[str]:
        """Stems around every place where the phrase stands."""
        size, stems = len(phrase), frozenset[str]()
        for start, term in enumerate(self.terms):
            if term == phrase[0] and self.terms[start : start + size] == phrase:
                stems |= self.context(start, start + size)
        return stems


def read(chunk: Chunk) -> Reading:
    """Reads a chunk below its title and heading, or remembers having read it."""
    return _read(chunk.title, chunk.heading, chunk.text, chunk.position == 0)


@lru_cache(_CACHED)
def _read(title: str, heading: str, text: str, is_opening: bool) -> Reading:
    terms = tuple(analyze("\n".join(part for part in (title, heading, text) if part), query=True))
    names = names_of(title, text)
    capitals = {word for word in _WORD.findall(text) if len(word) >= _LEAST_CAPITAL_LETTERS and word[0].isupper()}
    return Reading(
        terms=terms,
        counts=Counter(terms),
        stems=frozenset(term[:STEM_LETTERS] for term in terms),
        name=names[0].terms if names else terms[:2],
        capitals=frozenset(analyze(" ".join(sorted(capitals)), query=True)),
        is_opening=is_opening,
    )
