"""One look at a question: the passages of one hybrid query in their best order, and whether more looking would pay.

Used for the mode `one_shot`, and by `auto` to decide between one shot and the agent. Knows no tools and no budget.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hopnode.worker.corpus.finding.insight import CorpusInsight
from hopnode.worker.corpus.records import Chunk
from hopnode.worker.ranking.evidence import Evidence
from hopnode.worker.ranking.question import WeighedQuestion
from hopnode.worker.ranking.reasons import called, reason, told_link
from hopnode.worker.ranking.weighing import Placement, fitted_rounds, rank

NEEDED = 0.5
"""Trust from which a passage counts as needed for the answer."""


@dataclass(frozen=True)
class Route:
    """Which mode `auto` takes, and why, in a sentence. `shot` is what to return where one query is enough, best first. It has
    also what links lead to, and links count in its order: they were looked up to decide."""

    mode: str
    why: str
    shot: list[Placement]


def survey(question: str, insight: CorpusInsight, wanted: int = 20) -> Evidence:
    """What lies near the question and what it names, to choose `wanted` passages from; no link is followed yet."""
    with insight.snapshot(question):
        evidence = Evidence(WeighedQuestion(question, insight), insight)
        evidence.collect(wanted)
    return evidence


def one_shot(evidence: Evidence, most: int) -> list[Placement]:
    """The best passages by what they are themselves: words, vectors, names. No link counts."""
    return rank(evidence, fitted_rounds()[:1])[:most]


def route(evidence: Evidence, shot: list[Placement]) -> Route:
    """One shot is enough when it holds everything that the question's names and links lead to."""
    held = {one.row for one in shot}
    ranked = rank(evidence)
    needed = [one.row for one in ranked if one.trust >= NEEDED]
    missing = [row for row in needed if row not in held]
    if not needed:
        return Route("agent", "No passage of the one query is sure to be needed.", ranked)
    if not missing:
        return Route("one_shot", "The one query holds all that the question's names and links lead to.", ranked)
    way = evidence.way_to(missing[0], [row for row in needed if row != missing[0]])
    why = told_link(evidence, missing[0], *way) if way else reason(evidence, missing[0], [])
    return Route("agent", f"The one query lacks a passage that is needed: {why}", ranked)


def came_by(evidence: Evidence, row: int, others: Sequence[int]) -> str:
    """How the one query came to see a passage: by itself, or by a link from another passage of the result."""
    if row in evidence.near or evidence.candidates[row].named:
        return evidence.question.text
    way = evidence.way_to(row, [other for other in others if other != row])
    return f"link: {called(evidence, way[0])}" if way else evidence.question.text


def trust_in(evidence: Evidence, chunks: list[Chunk]) -> dict[int, float]:
    """How likely each chunk is needed for the answer, by row, wherever it was found."""
    evidence.consider({chunk.row: chunk for chunk in chunks})
    return {one.row: one.trust for one in rank(evidence)}
