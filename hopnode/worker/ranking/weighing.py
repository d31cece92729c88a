"""Weighs evidence into an order of chunks, in three rounds: the question alone, then links from what the last round trusts.

The weights are data (`ranking.json`), fitted by `bench/train_offline.py` on public questions; nothing here knows them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from hopnode.worker.ranking.evidence import DIRECT, Evidence, Numbers

MOST_SEEDS, LEAST_SEED_TRUST = 15, 0.005
MOST_SHARING, LEAST_SHARING_TRUST = 6, 0.02
SECURED, PLACES, PLACES_BEHIND_WORDS = 3, 5, 2
"""So many of those that are best without links come no later than right behind so many places: where a question needs one
passage, links mislead, and what was plain at the first look must not be lost for them. Where words lead, links count less: what
they are worth was learnt from English."""
PARTS = ("mean", "scale", "trust", "order", "words")
"""What a round holds, in the order of `Round`."""
CERTAINTY = 6
"""How many numbers say what the round before thought."""


@dataclass(frozen=True)
class Round:
    """Weights of one round, for standardised numbers: `trust` gives a probability (its last entry is the bias),
    `order` a score that compares chunks of one question, and `words` the same where vectors know little of the language."""

    mean: Numbers
    scale: Numbers
    trust: Numbers
    order: Numbers
    words: Numbers


@dataclass(frozen=True)
class Ranked:
    """A chunk in its place; `trust` in (0, 1) is how likely it is needed for the answer."""

    row: int
    score: float
    trust: float


def seeds_of(trust: Sequence[float], rows: Sequence[int], most: int, least: float) -> list[int]:
    """The most trusted rows, best first."""
    order = np.argsort(-np.asarray(trust), kind="stable")[:most]
    return [rows[at] for at in order if trust[at] > least]


def numbers_of(evidence: Evidence, trust: Numbers | None) -> Numbers:
    """The lines of one round: what the question alone says, and from the second round on what links say given the
    trust of the round before (shorter than the lines when links led to new candidates)."""
    if trust is None:
        return evidence.direct()
    rows = list(evidence.rows)
    seeds = seeds_of(list(trust), rows, MOST_SEEDS, LEAST_SEED_TRUST)
    sharing = seeds_of(list(trust), rows, MOST_SHARING, LEAST_SHARING_TRUST)
    evidence.follow(list(dict.fromkeys(seeds + sharing)))
    evidence.share(sharing)
    trust_of = dict(zip(rows, trust.tolist(), strict=False))
    direct, linked = evidence.direct(), evidence.linked(trust_of, seeds, sharing)
    before = np.zeros(len(evidence.rows))
    before[: len(trust)] = trust
    best = before.max(initial=0.0)
    certainty = np.column_stack(
        [
            before,
            np.log(before + 1e-4) / 5,
            best * direct[:, [0, 1, 8]],
            best * (linked[:, 0] > 0),
        ]
    )
    return np.column_stack([direct, linked, certainty])


def judge(numbers: Numbers, weights: Round, *, words_lead: bool = False) -> tuple[Numbers, Numbers]:
    """Trust and score of each line; `words_lead` as the index says it of the question."""
    standard = (numbers - weights.mean) / weights.scale
    logits = np.clip(standard @ weights.trust[:-1] + weights.trust[-1], -30, 30)
    return 1 / (1 + np.exp(-logits)), standard @ (weights.words if words_lead else weights.order)


def rank(evidence: Evidence, rounds: Sequence[Round] | None = None) -> list[Ranked]:
    """All candidates, best first. `evidence` has collected; following links lets it grow."""
    with evidence.insight.snapshot(evidence.question.text):
        return _rank(evidence, rounds or fitted_rounds())


def _rank(evidence: Evidence, rounds: Sequence[Round]) -> list[Ranked]:
    trust: Numbers | None = None
    ranked: list[Ranked] = []
    plain: list[Ranked] = []
    words_lead = evidence.insight.words_lead(evidence.question.text)
    for weights in rounds:
        trust, score = judge(numbers_of(evidence, trust), weights, words_lead=words_lead)
        order = np.argsort(-score, kind="stable")
        best = zip(order.tolist(), score[order].tolist(), trust[order].tolist(), strict=True)
        ranked = [Ranked(evidence.rows[at], its_score, its_trust) for at, its_score, its_trust in best]
        plain = plain or ranked[:SECURED]
    return _secured(ranked, plain, PLACES_BEHIND_WORDS if words_lead else PLACES)


def _secured(ranked: list[Ranked], plain: Sequence[Ranked], places: int) -> list[Ranked]:
    """The same order, in which none of `plain` comes later than behind the first places; there it keeps the trust that it
    had by itself."""
    leading = {one.row for one in ranked[:places]}
    late = {one.row: one for one in plain if one.row not in leading}
    kept = {one.row: one.score for one in ranked if one.row in late}
    rest = [one for one in ranked if one.row not in late]
    moved = [Ranked(row, kept[row], one.trust) for row, one in late.items()]
    return [*rest[:places], *moved, *rest[places:]]


@cache
def fitted_rounds() -> tuple[Round, ...]:
    """The weights that ship."""
    stored = json.loads((Path(__file__).parent / "ranking.json").read_text())
    return tuple(Round(*(np.array(line[name]) for name in PARTS)) for line in stored)


__all__ = ["CERTAINTY", "DIRECT", "PARTS", "Ranked", "Round", "fitted_rounds", "judge", "numbers_of", "rank"]
