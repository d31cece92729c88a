"""What was plain at the first look keeps a place, however many links speak for others."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pytest
from support.harness.space import make_chunk

from hopnode.worker.corpus.records import Chunk, Hit, SearchHits
from hopnode.worker.corpus.sqlite.name_table import NamedRow
from hopnode.worker.ranking.evidence import Evidence
from hopnode.worker.ranking.question import WeighedQuestion
from hopnode.worker.ranking.signals import names_of
from hopnode.worker.ranking.weighing import PLACES, SECURED, rank
from hopnode.worker.ranking.weights import Round


class Plain:
    """Twelve chunks, the first of which are nearest to every question; no names and no links."""

    def __init__(self, *, words_lead: bool = False) -> None:
        self._words_lead = words_lead
        self.all = [make_chunk(f"d{row}", row, f"word number {row}") for row in range(12)]

    def snapshot(self, question: str) -> AbstractContextManager[None]:
        return nullcontext()

    def size(self) -> int:
        return len(self.all)

    def candidates(self, question: str, per_leg: int) -> SearchHits:
        return SearchHits(tuple(Hit(chunk, 1.0, rank, rank) for rank, chunk in enumerate(self.all, 1)))

    def similarities(self, question: str, rows: Sequence[int]) -> Mapping[int, float]:
        return {row: 1 - row / 12 for row in rows}

    def words_lead(self, question: str) -> bool:
        return self._words_lead

    def frequencies(self, terms: Iterable[str]) -> Mapping[str, int]:
        return dict.fromkeys(terms, 1)

    def phrases(self, leads: Iterable[str]) -> list[str]:
        return []

    def named(self, phrases: Iterable[str]) -> list[NamedRow]:
        return []

    def holding(self, phrases: Sequence[Sequence[str]], limit: int) -> list[list[int]]:
        return [[] for _ in phrases]

    def chunks(self, rows: Sequence[int]) -> Mapping[int, Chunk]:
        return {row: self.all[row] for row in rows}


def weights(count: int, similar: float) -> Round:
    """Goes by nearness alone: for it, or against it."""
    order = np.zeros(count)
    order[1] = similar
    trust = np.append(order, 0.0)
    return Round(np.zeros(count), np.ones(count), trust, order, order)


FOR, AGAINST = weights(len(names_of(1)), 1.0), weights(len(names_of(2)), -1.0)


def order_of(*rounds: Round, words_lead: bool = False) -> list[int]:
    insight = Plain(words_lead=words_lead)
    evidence = Evidence(WeighedQuestion("word", insight), insight)
    evidence.collect(10)
    return [one.row for one in rank(evidence, rounds)]


def test_without_links_the_order_is_that_of_the_first_look() -> None:
    assert order_of(FOR) == list(range(12))


def test_the_first_of_the_first_look_come_right_behind_the_first_places() -> None:
    order = order_of(FOR, AGAINST)
    assert order[:PLACES] == [11, 10, 9, 8, 7]
    assert order[PLACES : PLACES + SECURED] == [0, 1, 2]
    assert sorted(order) == list(range(12)) and order[PLACES + SECURED :] == [6, 5, 4, 3]


def test_where_words_lead_they_come_right_behind_the_first_two() -> None:
    assert order_of(FOR, AGAINST, words_lead=True) == [11, 10, 0, 1, 2, 9, 8, 7, 6, 5, 4, 3]


def test_they_keep_the_trust_that_they_had_by_themselves() -> None:
    insight = Plain()
    evidence = Evidence(WeighedQuestion("word", insight), insight)
    evidence.collect(10)
    trust = {one.row: one.trust for one in rank(evidence, [FOR, AGAINST])}
    assert trust[0] == pytest.approx(1 / (1 + np.exp(-1)))
    assert trust[11] == pytest.approx(1 / (1 + np.exp(1 / 12)))
