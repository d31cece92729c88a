"""Figures of an agent's run, read from its trajectory alone and measured against gold where it is known. Runs nothing.

Definitions are those of the Context-1 report. Recall and precision are over documents, or over facts where several chunks
carry the same one. Trajectory recall is over all that was displayed at any time, prune accuracy over all that was pruned.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from hopnode.worker.harness.trajectory import StepRecord, last_attempt


@dataclass(frozen=True)
class GoldFacts:
    """What answers a question: for each fact the ids, of chunks or documents, any of which supplies it. `answers` are the
    ids that hold the final answer itself."""

    facts: tuple[frozenset[str], ...]
    answers: frozenset[str] = frozenset()

    @classmethod
    def of(cls, ids: Iterable[str], answers: Iterable[str] = ()) -> "GoldFacts":
        """Every id a fact of its own."""
        return cls(tuple(frozenset({one}) for one in dict.fromkeys(ids)), frozenset(answers))

    def covered(self, ids: Iterable[str]) -> float:
        """Share of the facts that at least one of these chunks or documents supplies; 1 when there are none."""
        held = _with_documents(ids)
        return sum(not fact.isdisjoint(held) for fact in self.facts) / len(self.facts) if self.facts else 1.0

    def has(self, chunk_or_document: str) -> bool:
        """Whether it supplies any fact."""
        names = _with_documents([chunk_or_document])
        return any(not fact.isdisjoint(names) for fact in self.facts)


@dataclass(frozen=True)
class RunFigures:
    """Of one run, or of all rollouts of a search. `output` has the documents of the final list, best first; figures that
    need gold, or prunes, are None where there is none. `calls_per_turn` counts all turns, the last one included."""

    turns: int
    tool_calls: int
    calls_per_turn: float
    pruned: int
    output: tuple[str, ...]
    prune_accuracy: float | None = None
    trajectory_recall: float | None = None
    output_recall: float | None = None
    output_precision: float | None = None
    output_f1: float | None = None
    answer_found: bool | None = None


def measure(steps: Sequence[StepRecord], gold: GoldFacts | None = None) -> RunFigures:
    """The figures of the last attempt in a trajectory. With several rollouts the final list is that of the fusion."""
    steps = last_attempt(steps)
    turns = sum(step.kind == "action" for step in steps)
    calls = sum(step.kind == "observation" for step in steps)
    pruned = [one for step in steps if step.kind == "prune" for one in _pruned(step)]
    chosen = _chosen(steps)
    plain = RunFigures(
        turns=turns,
        tool_calls=calls,
        calls_per_turn=calls / turns if turns else 0.0,
        pruned=len(pruned),
        output=tuple(dict.fromkeys(map(document_of, chosen))),
    )
    return plain if gold is None else _against(plain, gold, steps, pruned, chosen)


def _against(
    plain: RunFigures, gold: GoldFacts, steps: Sequence[StepRecord], pruned: Sequence[str], chosen: Sequence[str]
) -> RunFigures:
    shown = [one for step in steps if step.kind == "observation" for one in _texts(step, "shown")]
    recall = gold.covered(chosen)
    right = {document_of(one) for one in chosen if gold.has(one)}
    precision = len(right) / len(plain.output) if plain.output else 0.0
    return RunFigures(
        plain.turns,
        plain.tool_calls,
        plain.calls_per_turn,
        plain.pruned,
        plain.output,
        prune_accuracy=1 - sum(map(gold.has, pruned)) / len(pruned) if pruned else None,
        trajectory_recall=gold.covered(shown),
        output_recall=recall,
        output_precision=precision,
        output_f1=2 * precision * recall / (precision + recall) if precision + recall else 0.0,
        answer_found=not gold.answers.isdisjoint(_with_documents(chosen)) if gold.answers else None,
    )


def stretches(steps: Sequence[StepRecord]) -> tuple[tuple[int, int], ...]:
    """First and last turn of each stretch of one run in which nothing was pruned: within it every view begins with the one
    before. The turn of a prune ends its stretch, since the views after it are shorter."""
    steps = last_attempt(steps)
    turns = [cast(int, step.data["turn"]) for step in steps if step.kind == "action"]
    ends = sorted({cast(int, step.data["turn"]) for step in steps if step.kind == "prune" and _pruned(step)})
    cuts = [end for end in ends if turns and end < turns[-1]]
    firsts = [turns[0], *(cut + 1 for cut in cuts)] if turns else []
    return tuple(zip(firsts, [*cuts, *turns[-1:]], strict=True))


def document_of(chunk_or_document: str) -> str:
    """The document's id in a chunk's id, which is cut at its only underscore."""
    return chunk_or_document.split("_", 1)[0]


def _with_documents(ids: Iterable[str]) -> set[str]:
    return {name for one in ids for name in (one, document_of(one))}


def _pruned(step: StepRecord) -> list[str]:
    return [*_texts(step, "chunk_ids"), *_texts(step, "document_ids")]


def _texts(step: StepRecord, name: str) -> list[str]:
    return cast(list[str], step.data[name])


def _chosen(steps: Sequence[StepRecord]) -> list[str]:
    """Chunk ids of the final list, in its order: of the last step that has one."""
    last = next((step for step in reversed(steps) if step.kind in ("fusion", "end")), None)
    if last is None:
        return []
    return [str(one["chunk_id"]) for one in cast(list[dict[str, object]], last.data.get("selections", []))]
