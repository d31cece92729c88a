"""What a policy without a language model may ask of the indexed text, beyond the tools: counts, names and closeness.

Nothing here is shown to anybody: what the policy wants to return, it has to bring into view with a tool call first.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from hopnode.worker.corpus.records import Chunk, SearchHits
from hopnode.worker.corpus.sqlite.name_table import NamedRow

__all__ = ["Insight", "NamedRow"]


class Insight(Protocol):
    """A view of the collections of one search, already filtered."""

    def snapshot(self, question: str) -> AbstractContextManager[None]:
        """A block in which all answers come from one state of the index; `question` is what they are about."""
        ...

    def size(self) -> int:
        """Number of chunks."""
        ...

    def candidates(self, question: str, per_leg: int) -> SearchHits:
        """The best chunks of either leg with their ranks, at most `per_leg` of each."""
        ...

    def similarities(self, question: str, rows: Sequence[int]) -> Mapping[int, float]:
        """Cosine of the question with each row's vector; rows without a vector are left out."""
        ...

    def words_lead(self, question: str) -> bool:
        """Whether words tell more than vectors in these collections, asked in the question's language."""
        ...

    def frequencies(self, terms: Iterable[str]) -> Mapping[str, int]:
        """In how many chunks each term stands; unknown terms are left out."""
        ...

    def phrases(self, leads: Iterable[str]) -> list[str]:
        """The phrases of stored names that begin with one of the leads (`hopnode.worker.corpus.names.lead_of`)."""
        ...

    def named(self, phrases: Iterable[str]) -> list[NamedRow]:
        """Whom these phrases name."""
        ...

    def holding(self, phrases: Sequence[Sequence[str]], limit: int) -> Sequence[list[int]]:
        """For each phrase the rows in which its terms stand one behind the other; none when there are more than
        `limit`."""
        ...

    def chunks(self, rows: Sequence[int]) -> Mapping[int, Chunk]:
        """Whole chunks by row; rows that are gone are left out."""
        ...
