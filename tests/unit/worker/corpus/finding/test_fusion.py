import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopnode.worker.corpus.finding.fusion import Leg, default_dense_weight, fuse

LISTS = st.lists(st.lists(st.integers(0, 30), unique=True, max_size=15), min_size=1, max_size=4)


def test_an_item_in_both_lists_beats_the_first_of_either() -> None:
    fused = fuse([Leg(["a", "b"]), Leg(["c", "b"])])
    assert [item for item, _ in fused] == ["b", "a", "c"]
    assert dict(fused)["b"] == pytest.approx(2 / 62)
    assert dict(fused)["a"] == pytest.approx(1 / 61)


def test_weights_scale_what_a_list_gives() -> None:
    assert [item for item, _ in fuse([Leg(["a"], 0.3), Leg(["b"], 0.7)])] == ["b", "a"]


def test_a_missing_rank_counts_as_the_rank_that_was_asked_for() -> None:
    fused = dict(fuse([Leg(["a", "b"]), Leg(["b"])], missing_rank=20))
    assert fused["a"] == pytest.approx(1 / 61 + 1 / 80)


def test_no_lists_give_nothing() -> None:
    assert fuse([]) == []
    assert fuse([Leg[int]([]), Leg[int]([])]) == []


@given(LISTS)
def test_every_item_appears_once_and_scores_fall(lists: list[list[int]]) -> None:
    fused = fuse([Leg(items) for items in lists])
    assert sorted(item for item, _ in fused) == sorted({item for items in lists for item in items})
    scores = [score for _, score in fused]
    assert scores == sorted(scores, reverse=True)


@given(st.lists(st.integers(), unique=True, max_size=30))
def test_one_list_alone_keeps_its_order(items: list[int]) -> None:
    assert [item for item, _ in fuse([Leg(items), Leg[int]([])])] == items


@pytest.mark.parametrize(
    ("embedder", "query", "weight"),
    [
        ("minilm", "who wrote this", 0.6),
        ("minilm", "誰が書いたか", 0.01),
        ("use", "wer hat das geschrieben, während es schneite", 0.05),
        ("use", "кто это написал", 0.05),
        ("use", "누가 이것을 썼는가", 0.02),
        ("use", "ใครเป็นคนเขียน", 0.02),
        ("use", "यह किसने लिखा", 0.01),
        ("use", "ai đã viết cuốn sách này, và tại sao lại thế ạ", 0.01),
        ("http:bge-m3", "누가 이것을 썼는가", 0.5),
    ],
)
def test_the_default_weight_follows_what_was_measured(embedder: str, query: str, weight: float) -> None:
    assert default_dense_weight(embedder, query) == weight
