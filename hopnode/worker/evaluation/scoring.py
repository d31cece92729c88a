"""Holds answers against what is right and sums up; the only place where rankings and gold meet."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hopnode.worker.evaluation.dataset import Dataset, Gold, GoldSpan
from hopnode.worker.evaluation.measures import (
    CUTS,
    NAMES,
    Values,
    figures_of,
    intervals,
    percentiles,
    ranks_of,
    resampled,
    table_of,
)
from hopnode.worker.evaluation.report import (
    Figures,
    Hop,
    Ingest,
    Intervals,
    Latency,
    QuestionRecord,
    Report,
    SpanFigures,
    Spans,
)
from hopnode.worker.evaluation.spans import BUDGET_TOKENS, FIXED_TOKENS, Passage, covered, fitting
from hopnode.worker.evaluation.trial import COUNTED, Asking, Filled, Retrieved

Rankings = Mapping[str, Sequence[str]]
"""Distinct documents, best first, by question."""


@dataclass(frozen=True)
class SpanRun:
    """The evidence as it lies in the stored texts, and the passages of the baseline by question."""

    spans: Mapping[str, Sequence[GoldSpan]]
    lost: int
    fixed: Mapping[str, Sequence[Passage]]


@dataclass(frozen=True)
class Run:
    """All that an evaluation measured, before it is held against the gold."""

    dataset: Dataset
    asking: Asking
    retrieved: Sequence[Retrieved]
    embedder: str
    titles: bool
    seed: int
    documents: int
    legs: Mapping[str, Rankings] = field(default_factory=dict[str, Rankings])
    spans: SpanRun | None = None
    filled: Filled | None = None
    unknown_gold: int = 0
    versions: Mapping[str, str] = field(default_factory=dict[str, str])


def summed_up(run: Run) -> Report:
    """The report of a run."""
    gold = run.dataset.gold
    rankings = {one.question: one.documents for one in run.retrieved}
    table = table_for(gold, rankings)
    milliseconds = [one.milliseconds for one in run.retrieved]
    return Report(
        dataset=run.dataset.name,
        questions=len(run.retrieved),
        documents=run.documents,
        mode=run.asking.mode,
        profile=run.asking.profile,
        titles=run.titles,
        top_k=run.asking.top_k,
        seed=run.seed,
        embedder=run.embedder,
        **_named(table.mean(axis=0).tolist()),
        intervals=Intervals.model_validate(_named([(one.low, one.high) for one in intervals(table, run.seed)])),
        latency_ms=Latency(p50=_percentile(milliseconds, 50), p95=_percentile(milliseconds, 95)),
        legs={leg: figures(gold, ranked) for leg, ranked in run.legs.items()},
        hops=_hops(gold, rankings),
        spans=_span_figures(run) if run.spans else None,
        cost={name: float(np.mean([one.cost.get(name, 0.0) for one in run.retrieved])) for name in COUNTED},
        modes=dict(Counter(one.mode for one in run.retrieved if one.error is None)),
        degraded=dict(Counter(name for one in run.retrieved for name in one.degraded)),
        failed=dict(Counter(one.error.partition(":")[0] for one in run.retrieved if one.error)),
        ingest=Ingest(seconds=run.filled.seconds, failed=dict(run.filled.failed)) if run.filled else None,
        unknown_gold=run.unknown_gold,
        created_at=time.time(),
        versions=dict(run.versions),
        per_question=[_record(one, gold[one.question]) for one in run.retrieved],
    )


def table_for(gold: Mapping[str, Gold], rankings: Rankings) -> Values:
    """The figures of every ranking, one line a question, in the order of `rankings`."""
    rows = [figures_of(ranks_of(gold[one].gains, ranked), gold[one].gains) for one, ranked in rankings.items()]
    return table_of(rows)


def figures(gold: Mapping[str, Gold], rankings: Rankings) -> Figures:
    """The means of all figures over these rankings."""
    return Figures.model_validate(_named(table_for(gold, rankings).mean(axis=0).tolist()))


def _named(values: Sequence[Any]) -> dict[str, Any]:
    """Values in the order of `NAMES` as the fields of a report."""
    by_name = dict(zip(NAMES, values, strict=True))
    return {
        "recall": {str(cut): by_name[f"recall@{cut}"] for cut in CUTS},
        "all": {str(cut): by_name[f"all@{cut}"] for cut in CUTS},
        "mrr": by_name["mrr"],
        "ndcg10": by_name["ndcg10"],
    }


def _record(found: Retrieved, gold: Gold) -> QuestionRecord:
    return QuestionRecord(
        id=found.question,
        ranks=ranks_of(gold.gains, found.documents),
        gains=dict(gold.gains) if any(gain != 1 for gain in gold.gains.values()) else None,
        ms=round(found.milliseconds, 3),
        mode=found.mode,
        error=found.error,
    )


def _hops(gold: Mapping[str, Gold], rankings: Rankings) -> list[Hop]:
    """Recall of the document of the first hop, of the second, and so on."""
    deepest = max((len(gold[one].hops) for one in rankings), default=0)
    found: list[Hop] = []
    for hop in range(deepest):
        ranks = [
            ranks_of({gold[one].hops[hop]: 1}, ranked)[gold[one].hops[hop]]
            for one, ranked in rankings.items()
            if len(gold[one].hops) > hop
        ]
        recall = {str(cut): sum(rank is not None and rank <= cut for rank in ranks) / len(ranks) for cut in CUTS}
        found.append(Hop(hop=hop + 1, questions=len(ranks), recall=recall))
    return found


def _span_figures(run: Run) -> SpanFigures:
    assert run.spans is not None
    asked = [one for one in run.retrieved if run.spans.spans.get(one.question)]
    ours = [_span_row(run.spans.spans[one.question], one.passages) for one in asked]
    fixed = [_span_row(run.spans.spans[one.question], run.spans.fixed.get(one.question, ())) for one in asked]
    gained = table_of(ours)[:, :1] - table_of(fixed)[:, :1]
    between = percentiles(resampled(gained, run.seed, lambda weights: weights @ gained))[0]
    return SpanFigures(
        budget_tokens=BUDGET_TOKENS,
        questions=len(asked),
        lost=run.spans.lost,
        found=_spans(table_of(ours), run.seed),
        fixed_tokens=FIXED_TOKENS,
        fixed=_spans(table_of(fixed), run.seed),
        difference=float(gained.mean()),
        difference_interval=(between.low, between.high),
    )


def _span_row(spans: Sequence[GoldSpan], passages: Sequence[Passage]) -> tuple[float, ...]:
    kept = fitting(passages)
    return (*covered(spans, kept), float(sum(one.tokens for one in kept)))


def _spans(table: Values, seed: int) -> Spans:
    recall, whole, tokens = table.mean(axis=0).tolist()
    first = intervals(table[:, :1], seed)[0]
    return Spans(recall=recall, whole=whole, tokens=tokens, interval=(first.low, first.high))


def _percentile(values: Sequence[float], share: float) -> float:
    return float(np.percentile(values, share))
