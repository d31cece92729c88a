"""Weighs evidence into an order of chunks, in three rounds: the question alone, then links from what the last round trusts.

The weights are data (`ranking.json`), fitted by `bench/train_offline.py` on public questions; nothing here knows them. The limits
below were chosen when they were fitted, and the weights fitted with them: another value needs weights fitted anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from hopnode.worker.ranking.evidence import Evidence
from hopnode.worker.ranking.signals import Direct, Linked
from hopnode.worker.ranking.weights import Numbers, Round, loaded

MOST_SEEDS, LEAST_SEED_TRUST = 15, 0.005
"""Passages whose links are followed, and how much trust they need: about what a passage has by chance."""
MOST_SHARING, LEAST_SHARING_TRUST = 6, 0.02
"""The same for rare words that passages share: there are more of these, and they say less."""
NO_TRUST, LOG_TRUST_SCALE = 1e-4, 5
"""What stands for a trust of 0 in its logarithm, well below that of the last candidate; and a scale that brings it to about 1.
The scale changes only the units of `mean` and `scale` in `ranking.json`."""
CLEAREST = 30.0
"""Where logits end, so that a trust stays within (0, 1) and its exponential within a float."""
WEIGHTS = Path(__file__).parent / "ranking.json"
"""The file of the weights that ship."""
SECURED, PLACES, PLACES_BEHIND_WORDS = 3, 5, 2
"""So many of those that are best without links come no later than right behind so many places: where a question needs one
passage, links mislead, and what was plain at the first look must not be lost for them. Where words lead, links count less: what
they are worth was learnt from English."""


@dataclass(frozen=True)
class Placement:
    """A chunk in its place; `trust` in (0, 1) is how likely it is needed for the answer."""

    row: int
    score: float
    trust: float


def seeds_of(trust: Sequence[float], rows: Sequence[int], most: int, least: float) -> list[int]:
    """The most trusted rows, best first."""
    order = np.argsort(-np.asarray(trust), kind="stable")[:most]
    return [rows[at] for at in order if trust[at] > least]


def numbers_of(evidence: Evidence, trust: Numbers | None) -> Numbers:
    """The lines of one round: what the question alone says. From the second round on they also have what links say, given
    the trust of the round before. `trust` is shorter than the lines when links led to new candidates."""
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
    certainty = np.column_stack(  # in the order of `Certainty`
        [
            before,
            np.log(before + NO_TRUST) / LOG_TRUST_SCALE,
            best * direct[:, [Direct.WORD_MATCH, Direct.CLOSENESS, Direct.COVERAGE]],
            best * (linked[:, Linked.MENTIONED_STRENGTH] > 0),
        ]
    )
    return np.column_stack([direct, linked, certainty])


def judge(numbers: Numbers, weights: Round, *, words_lead: bool = False) -> tuple[Numbers, Numbers]:
    """Trust and score of each line; `words_lead` as the index says it of the question."""
    standard = (numbers - weights.mean) / weights.scale
    logits = np.clip(standard @ weights.trust[:-1] + weights.trust[-1], -CLEAREST, CLEAREST)
    return 1 / (1 + np.exp(-logits)), standard @ (weights.words if words_lead else weights.order)


def rank(evidence: Evidence, rounds: Sequence[Round] | None = None) -> list[Placement]:
    """All candidates, best first. `evidence` has collected; following links lets it grow."""
    with evidence.insight.snapshot(evidence.question.text):
        return _rank(evidence, rounds or fitted_rounds())


def _rank(evidence: Evidence, rounds: Sequence[Round]) -> list[Placement]:
    trust: Numbers | None = None
    ranked: list[Placement] = []
    plain: list[Placement] = []
    words_lead = evidence.insight.words_lead(evidence.question.text)
    for weights in rounds:
        trust, score = judge(numbers_of(evidence, trust), weights, words_lead=words_lead)
        order = np.argsort(-score, kind="stable")
        best = zip(order.tolist(), score[order].tolist(), trust[order].tolist(), strict=True)
        ranked = [Placement(evidence.rows[at], its_score, its_trust) for at, its_score, its_trust in best]
        plain = plain or ranked[:SECURED]
    return _secured(ranked, plain, PLACES_BEHIND_WORDS if words_lead else PLACES)


def _secured(ranked: list[Placement], plain: Sequence[Placement], places: int) -> list[Placement]:
    """The same order, in which none of `plain` comes later than behind the first places; there it keeps the trust that it
    had by itself."""
    leading = {one.row for one in ranked[:places]}
    late = {one.row: one for one in plain if one.row not in leading}
    kept = {one.row: one.score for one in ranked if one.row in late}
    rest = [one for one in ranked if one.row not in late]
    moved = [Placement(row, kept[row], one.trust) for row, one in late.items()]
    return [*rest[:places], *moved, *rest[places:]]


@cache
def fitted_rounds() -> tuple[Round, ...]:
    """The weights that ship. Raises ConfigurationError when their file was damaged."""
    _, rounds = loaded(WEIGHTS.read_text(encoding="utf-8"))
    return rounds
