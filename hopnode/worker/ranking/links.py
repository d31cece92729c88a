"""Links between chunks: a name that stands in one and belongs to another. Finds them in terms; stores nothing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hopnode.worker.corpus.names import MOST_SHARERS
from hopnode.worker.corpus.sqlite.name_table import NamedRow
from hopnode.worker.ranking.reading import Reading

Phrase: TypeAlias = tuple[str, ...]
Owners: TypeAlias = Mapping[Phrase, Sequence[NamedRow]]


@dataclass(frozen=True)
class Link:
    """One way from a chunk to another: `phrase` stands in the one and names the other. `context` are the stems around
    the phrase, `sharers` how many documents go by it."""

    phrase: Phrase
    quality: float
    sharers: int
    context: frozenset[str]

    def merged(self, other: "Link") -> "Link":
        """The stronger of two links between the same chunks, with the context of both."""
        better = self if (self.quality, len(self.phrase)) >= (other.quality, len(other.phrase)) else other
        return Link(
            better.phrase,
            max(self.quality, other.quality),
            min(self.sharers, other.sharers),
            self.context | other.context,
        )


def owners_of(names: Sequence[NamedRow]) -> dict[Phrase, list[NamedRow]]:
    """Names by phrase, without those that too many documents go by."""
    owners: dict[Phrase, list[NamedRow]] = {}
    for named in names:
        owners.setdefault(tuple(named.phrase.split(" ")), []).append(named)
    return {phrase: rows for phrase, rows in owners.items() if len(rows) <= MOST_SHARERS}


class Phrasebook:
    """Phrases, ready to be looked for in texts."""

    def __init__(self, phrases: Iterable[Phrase]) -> None:
        self._phrases = frozenset(phrases)
        self._sizes: dict[str, list[int]] = {}
        for first, size in sorted({(phrase[0], len(phrase)) for phrase in self._phrases}, reverse=True):
            self._sizes.setdefault(first, []).append(size)

    def standing(self, terms: tuple[str, ...]) -> Iterator[tuple[int, int, Phrase]]:
        """Start, end and phrase for every place where a known phrase stands. Of several that begin there, the longest is first."""
        for start, term in enumerate(terms):
            for size in self._sizes.get(term, ()):
                phrase = terms[start : start + size]
                if phrase in self._phrases and len(phrase) == size:
                    yield start, start + size, phrase

    def mentions(self, terms: tuple[str, ...], single: frozenset[str]) -> Iterator[tuple[int, int, Phrase]]:
        """Start, end and phrase of every name in the text, the longest where several begin, none within another. A name
        of one term counts only where `single` holds it."""
        free = 0
        for start, end, phrase in self.standing(terms):
            if start >= free and (end - start > 1 or terms[start] in single):
                yield start, end, phrase
                free = end


def outgoing(row: int, reading: Reading, owners: Owners, book: Phrasebook) -> dict[int, Link]:
    """The chunks that are named in this one, by row, given all names and the book of them. Its own name leads nowhere."""
    links: dict[int, Link] = {}
    for start, end, phrase in book.mentions(reading.terms, reading.capitals):
        rows = owners[phrase]
        if any(named.row == row and named.quality >= 1 for named in rows):
            continue
        context = reading.context(start, end)
        for named in rows:
            if named.row != row:
                link = Link(phrase, named.quality, len(rows), context)
                links[named.row] = link.merged(links[named.row]) if named.row in links else link
    return links
