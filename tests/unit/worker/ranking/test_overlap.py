"""Where no reranker runs, chunks are scored by the words that they share with a text."""

from hypothesis import given
from hypothesis import strategies as st
from support.harness.space import make_chunk

from hopnode.worker.ranking.overlap import by_overlap

WORDS = st.lists(st.sampled_from(["ship", "harbour", "dawn", "light", "東京"]), max_size=8).map(" ".join)


def scores(query: str, *texts: str) -> list[float]:
    return by_overlap(query, [make_chunk("d", row, text) for row, text in enumerate(texts)])


def test_a_chunk_without_a_word_in_common_has_the_score_nought() -> None:
    shared, other = scores("where is the harbour", "harbour at dawn", "painted ships")
    assert shared > 0 == other


def test_a_word_that_few_chunks_hold_weighs_more() -> None:
    rare, frequent, _ = scores("harbour light", "light", "harbour", "harbour")
    assert rare > frequent


def test_repetition_adds_less_and_less() -> None:
    once, twice, thrice, _ = scores("ship", "ship", "ship ship", "ship ship ship", "dawn")
    assert once < twice < thrice
    assert twice - once > thrice - twice


def test_no_chunks_no_scores_and_no_words_no_score() -> None:
    assert scores("ship") == []
    assert scores("", "ship") == [0]
    assert scores("🙂", "ship 🙂") == [0]


def test_words_of_a_script_without_spaces_count() -> None:
    first, second = scores("東京の港", "東京は大きい", "京都は古い")
    assert first > second


@given(WORDS, st.lists(WORDS, min_size=1, max_size=5))
def test_the_order_of_the_chunks_does_not_change_their_scores(query: str, texts: list[str]) -> None:
    assert scores(query, *reversed(texts)) == list(reversed(scores(query, *texts)))


@given(WORDS, st.lists(WORDS, min_size=1, max_size=5))
def test_asking_a_word_twice_changes_nothing(query: str, texts: list[str]) -> None:
    assert scores(f"{query} {query}", *texts) == scores(query, *texts)
