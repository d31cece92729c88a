"""What the demo holds of a question: the outcome of each mode, the sample it was asked of, and the totals over all.

Knows no node and no terminal.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hopnode.node_service.commands.searching import Finished

MODES = ("one_shot", "agent")


@dataclass(frozen=True)
class ModeOutcome:
    """What one mode returned: the finished search, and which gold paragraphs it holds."""

    mode: str
    finished: "Finished"
    found: frozenset[str]

    @property
    def result(self) -> dict[str, Any]:
        """The result of the search."""
        return self.finished.search["result"]


@dataclass(frozen=True)
class Comparison:
    """One question and the answers of all modes. `gold` is empty for a question that is not of the sample."""

    question: str
    gold: tuple[str, ...]
    answers: tuple[ModeOutcome, ...]


@dataclass(frozen=True)
class LoadedSample:
    """The loaded sample: titles by paragraph id, and paragraph ids by the document ids that the node gave them."""

    titles: dict[str, str]
    keys: dict[str, str] = field(default_factory=dict[str, str])

    def key_of(self, document_id: str) -> str:
        """The paragraph id behind a document id; empty for a document that is not of the sample."""
        return self.keys.get(document_id, "")

    def title_of(self, chunk_id: str) -> str:
        """The title of the paragraph that a chunk is of; the chunk's id where it is none of the sample."""
        return self.titles.get(self.key_of(chunk_id.rpartition("_")[0]), chunk_id)


def totals(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Gold paragraphs in all, how many each mode returned, and how many questions it found all gold for."""
    return {
        "gold": sum(len(one.gold) for one in comparisons),
        "found": {mode: sum(len(_of(one, mode).found) for one in comparisons) for mode in MODES},
        "complete": {
            mode: sum(bool(one.gold) and len(_of(one, mode).found) == len(one.gold) for one in comparisons)
            for mode in MODES
        },
    }


def _of(comparison: Comparison, mode: str) -> ModeOutcome:
    return next(answer for answer in comparison.answers if answer.mode == mode)
