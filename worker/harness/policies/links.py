"""Links between chunks: a name that stands in one and belongs to another. Finds them in terms; stores nothing."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from worker.corpus.names import LONGEST_NAME
from worker.harness.policies.insight import NamedRow
from worker.harness.policies.reading import Reading

MOST_SHARERS = 20
"""A name that more documents go by is no link."""

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


def mentions(terms: Sequence[str], owners: Owners, single: frozenset[str]) -> Iterator[tuple[int, int, Phrase]]:
    """Start, end and phrase of every name in the text, the longest where several begin. A name of one term counts
    only where `single` holds it."""
    start = 0
    while start < len(terms):
        step = 1
        for size in range(min(LONGEST_NAME, len(terms) - start), 0, -1):
            phrase = tuple(terms[start : start + size])
            if phrase in owners and (size > 1 or phrase[0] in single):
                yield start, start + size, phrase
                step = size
                break
        start += step


def outgoing(row: int, reading: Reading, owners: Owners) -> dict[int, Link]:
    """The chunks that are named in this one, by row. Its own name leads nowhere."""
    links: dict[int, Link] = {}
    for start, end, phrase in mentions(reading.terms, owners, reading.capitals):
        rows = owners[phrase]
        if any(named.row == row and named.quality >= 1 for named in rows):
            continue
        context = reading.context(start, end)
        for named in rows:
            if named.row != row:
                link = Link(phrase, named.quality, len(rows), context)
                links[named.row] = link.merged(links[named.row]) if named.row in links else link
    return links
