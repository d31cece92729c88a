from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopnode.worker.corpus.parsing.parser import normalize_text
from hopnode.worker.evaluation.dataset import Gold, GoldSpan, Text
from hopnode.worker.evaluation.spans import Passage, covered, fitting, fixed_pieces, stored
from hopnode.worker.tokens import count_tokens


def test_passages_are_taken_from_the_best_on_until_the_first_that_does_not_fit() -> None:
    passages = [Passage("a", 0, 9, tokens) for tokens in (900, 900, 300, 100)]
    assert fitting(passages, 2_000) == passages[:2]
    assert fitting(passages, 2_100) == passages[:3]
    assert fitting(passages, 10) == []


def test_evidence_is_counted_by_characters_over_all_passages() -> None:
    spans = [GoldSpan("a", 0, 10), GoldSpan("a", 100, 110), GoldSpan("b", 5, 25)]
    passages = [Passage("a", 5, 105, 9), Passage("b", 0, 5, 9), Passage("c", 0, 99, 9)]
    assert covered(spans, passages) == (pytest.approx(10 / 40), 0.0)
    assert covered(spans, [Passage("a", 0, 200, 9), Passage("b", 0, 15, 9), Passage("b", 15, 30, 9)]) == (1.0, 1.0)
    assert covered(spans, []) == (0.0, 0.0)


def test_spans_that_overlap_count_once() -> None:
    assert covered([GoldSpan("a", 0, 10), GoldSpan("a", 5, 20)], [Passage("a", 0, 10, 9)])[0] == pytest.approx(0.5)


def test_evidence_is_found_again_in_the_text_as_it_is_stored() -> None:
    text = "caf\u0065\u0301 \r\n Nordlys sails."
    start = text.index("Nordlys")
    gold = {"q": Gold({"a": 1}, spans=(GoldSpan("a", start, start + 7), GoldSpan("a", 90, 99), GoldSpan("gone", 0, 1)))}
    placed, lost = stored(gold, [Text("a", "", text)])
    assert lost == 2
    (span,) = placed["q"]
    assert "café \n Nordlys sails."[span.start : span.end] == "Nordlys"


def test_a_text_that_is_stored_as_it_is_keeps_its_spans() -> None:
    gold = {"q": Gold({"a": 1}, spans=(GoldSpan("a", 2, 4),))}
    assert stored(gold, [Text("a", "", "0123456")]) == ({"q": (GoldSpan("a", 2, 4),)}, 0)


@settings(max_examples=25, deadline=None)
@given(st.text(alphabet="ab é漢\n.x", max_size=400), st.integers(2, 30))
def test_fixed_pieces_tile_the_text_and_are_full(text: str, tokens: int) -> None:
    pieces = fixed_pieces(Text("a", "", text), tokens)
    whole = "".join(piece for _, piece in pieces)
    assert [start for start, _ in pieces] == [sum(len(one) for _, one in pieces[:at]) for at in range(len(pieces))]
    assert all(count_tokens(piece) <= tokens or len(piece) == 1 for _, piece in pieces)
    for (_, piece), (_, following) in pairwise(pieces):
        assert count_tokens(piece + following[:1]) > tokens or count_tokens(piece) == tokens
    assert whole == normalize_text(text)
