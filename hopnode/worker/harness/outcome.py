"""What a finished agent run hands back; knows chunks and numbers, nothing of models, prompts or storage."""

from dataclasses import dataclass

from hopnode.worker.corpus.finding.fusion import RRF_K
from hopnode.worker.corpus.records import Chunk


def rank_score(rank: int) -> float:
    """Score in (0, 1] of a rank counted from 1: its share of the best reciprocal-rank score, `61 / (60 + rank)`.

    It means the same in every mode. One list at rank r gives 61 / (60 + r). Several lists fused with RRF give the sum of
    1 / (60 + r), divided by the best possible sum. For one list both are the same.
    """
    return (RRF_K + 1) / (RRF_K + rank)


@dataclass(frozen=True)
class Selection:
    """A chunk in the result, best first; `score` is `rank_score` of its place, `found_by` how the run came to see it.

    An entry of `found_by` is a search query as it was sent, `grep: <pattern>` or `read: <document id>`. `ranks` has an
    entry for every rollout: the place there, from 1, or None; empty before rollouts are put together.
    """

    chunk: Chunk
    score: float
    justification: str = ""
    found_by: tuple[str, ...] = ()
    ranks: tuple[int | None, ...] = ()


@dataclass(frozen=True)
class Usage:
    """Counts of one run. Tokens of prompts and completions as the endpoint measured them (estimated where it did not);
    `context_tokens_*` are our own count of the pruned view; seconds are wall-clock sums over turns, but those of the
    reranker over its calls, of which several may run at once."""

    turns: int = 0
    tool_calls: int = 0
    parallel_calls: int = 0
    pruned_chunks: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    model_seconds: float = 0.0
    tool_seconds: float = 0.0
    rerank_seconds: float = 0.0
    context_tokens_peak: int = 0
    context_tokens_final: int = 0
    token_budget: int = 0


@dataclass(frozen=True)
class RolloutEnd:
    """How one rollout ended: its stop reason (or the code of the error of its model), what it chose, and whether its list
    counted in the fusion."""

    rollout: int
    stop_reason: str
    degraded: tuple[str, ...] = ()
    counted: bool = True
    turns: int = 0
    tool_calls: int = 0
    chunk_ids: tuple[str, ...] = ()


@dataclass(frozen=True)
class AgentOutcome:
    """The ranked selections, why the run ended, and every degradation by name (empty: none). `rollouts` is filled when
    the outcome is that of one or more of them."""

    selections: tuple[Selection, ...]
    stop_reason: str
    degraded: tuple[str, ...]
    usage: Usage
    index_version: int = 0
    vector_lag: int = 0
    rollouts: tuple[RolloutEnd, ...] = ()
