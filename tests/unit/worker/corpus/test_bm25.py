import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rank_bm25 import BM25Okapi

from hopnode.worker.corpus.bm25 import COMMON_SHARE, GUARDED_COLLECTION, K1, B, idf, telling_terms, term_score

BAGS = [bag.split() for bag in ("whale blue", "whale", "krill whale whale sea", "sea", "sea wind rain", "rain", "wind")]


def test_the_score_is_that_of_rank_bm25() -> None:
    oracle = BM25Okapi(BAGS, k1=1.2, b=0.75)
    average = sum(map(len, BAGS)) / len(BAGS)
    for term in ("whale", "sea", "krill", "rain"):
        holding = sum(term in bag for bag in BAGS)
        expected = oracle.get_scores([term])
        for bag, score in zip(BAGS, expected, strict=True):
            mine = term_score(idf(len(BAGS), holding), float(Counter(bag)[term]), float(len(bag)), average)
            assert math.isclose(mine, score, abs_tol=1e-12), (term, bag)


@given(
    st.lists(st.tuples(st.integers(0, 255), st.integers(1, 5_000)), min_size=1, max_size=50),
    st.floats(1e-6, 20),
    st.floats(1, 5_000),
)
def test_many_chunks_at_once_score_to_the_bit_as_each_alone(
    chunks: list[tuple[int, int]], weight: float, average: float
) -> None:
    counts = np.array([count for count, _ in chunks], np.float64)
    lengths = np.array([length for _, length in chunks], np.float64)
    together = term_score(np.full(len(chunks), weight), counts, lengths, average)
    alone = [term_score(weight, float(count), float(length), average) for count, length in chunks]
    assert together.tolist() == alone


@given(st.integers(1, 200), st.integers(1, 2_000), st.floats(1, 2_000))
def test_a_term_gives_more_for_more_of_it_and_less_in_a_longer_chunk(count: int, length: int, average: float) -> None:
    one = term_score(1.0, float(count), float(length), average)
    assert 0 < one < K1 + 1
    assert term_score(1.0, float(count + 1), float(length), average) > one
    assert term_score(1.0, float(count), float(length + 1), average) < one
    assert math.isclose(term_score(2.5, float(count), float(length), average), 2.5 * one)


def test_a_chunk_of_average_length_has_no_correction() -> None:
    assert math.isclose(term_score(1.0, 1.0, 80.0, 80.0), 1.0)
    assert math.isclose(term_score(1.0, 1.0, 160.0, 80.0), (K1 + 1) / (1 + K1 * (1 + B)))


def test_a_rare_term_weighs_more_and_none_weighs_nothing() -> None:
    weights = [idf(100, frequency) for frequency in (1, 2, 10, 49, 50, 51, 99, 100)]
    assert weights == sorted(weights, reverse=True)
    assert weights[0] == pytest.approx(math.log(99.5 / 1.5))
    assert min(weights) > 0
    assert idf(1, 1) > 0


def test_a_query_is_ranked_by_its_rarest_terms() -> None:
    frequency = {f"word{number}": number for number in range(1, 201)}
    kept = telling_terms(frequency, 1_000)
    assert kept == [f"word{number}" for number in range(1, 65)]
    assert telling_terms({}, 1_000) == []


def test_terms_that_are_nearly_everywhere_tell_nothing_in_a_large_collection() -> None:
    most = int(COMMON_SHARE * GUARDED_COLLECTION)
    frequency = {"rare": 3, "frequent": most, "everywhere": most + 1}
    assert telling_terms(frequency, GUARDED_COLLECTION) == ["rare", "frequent"]
    assert telling_terms(frequency, GUARDED_COLLECTION - 1) == ["rare", "frequent", "everywhere"]


def test_a_query_of_nothing_but_common_terms_is_ranked_by_the_two_rarest() -> None:
    frequency = {"the": 9_000, "of": 8_000, "and": 9_500}
    assert telling_terms(frequency, 10_000) == ["of", "the"]
