import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopnode.worker.corpus.chunking.outline import Outline, outline_of
from hopnode.worker.corpus.chunking.slices import (
    LONG_LINE_CHARACTERS,
    SLICE_CHARACTERS,
    UNBROKEN_CHARACTERS,
    slices,
)


def cut(text: str, outline: Outline | None = None) -> list[str]:
    """The slices, after it was checked that they tile the text and keep to their limits."""
    found = list(slices(text, outline or Outline()))
    assert "".join(text[start:end] for start, end in found) == text
    assert all(before[1] == after[0] for before, after in pairwise(found))
    assert all(0 < end - start <= SLICE_CHARACTERS for start, end in found)
    return [text[start:end] for start, end in found]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["word ", "a. ", "\n", "\n\n", "x", "漢", "👩\u200d", "```\n"]), st.integers(1, 9_000)
        ),
        max_size=12,
    )
)
def test_any_text_is_tiled_in_bounded_slices(parts: list[tuple[str, int]]) -> None:
    text = "".join(part * count for part, count in parts)[:200_000]
    for piece in cut(text, outline_of(text)):
        if "\n" not in piece:
            assert len(piece) <= LONG_LINE_CHARACTERS


def test_a_short_text_is_one_slice_and_an_empty_one_none() -> None:
    assert cut("one line") == ["one line"]
    assert cut("") == []
    assert cut("x\n" * (SLICE_CHARACTERS // 2)) == ["x\n" * (SLICE_CHARACTERS // 2)]


def test_the_last_heading_in_the_second_half_is_the_strongest_boundary() -> None:
    head = "text line\n\n" * 2_000
    text = f"{head}## Second\n\n" + "more of it\n\n" * 3_000
    first = cut(text, outline_of(text))[0]
    assert first == head


def test_a_heading_in_the_first_half_is_no_reason_for_a_small_slice() -> None:
    text = "start\n\n## Early\n\n" + "paragraph of some words\n\n" * 3_000
    first = cut(text, outline_of(text))[0]
    assert len(first) > SLICE_CHARACTERS // 2 and first.endswith("\n\n")


def test_without_a_heading_the_last_blank_line_is_the_boundary_and_without_one_the_last_line_end() -> None:
    lines = "a line of words\n" * 1_500
    text = f"{lines}\nnext paragraph\n" + "more lines of words\n" * 2_000
    assert cut(text)[0] == f"{lines}\n"
    single = "0123456789abcde\n" * 4_000
    assert all(piece.endswith("\n") for piece in cut(single))
    assert len(cut(single)[0]) == SLICE_CHARACTERS


def test_a_blank_line_within_an_indented_block_is_no_boundary() -> None:
    before = "name = value_of_it\n" * 1_200
    function = "def one():\n" + "    statement = 1\n\n" * 3_000
    assert len(before) > SLICE_CHARACTERS // 2
    assert cut(f"{before}\n{function}")[0] == f"{before}\n"


def test_a_code_fence_that_fits_is_not_cut_in_its_middle() -> None:
    prose = "some words here\n\n" * 1_400
    code = "```python\n" + "call(1)\n\n" * 1_800 + "```\n\n"
    text = prose + code + "after\n\n" * 4_000
    first = cut(text, outline_of(text))[0]
    assert first == prose


@pytest.mark.parametrize("end", [".", "!", "?", ";"])
def test_a_long_line_is_cut_behind_a_sentence(end: str) -> None:
    sentence = f"These are some words{end} "
    pieces = cut(sentence * 2_000)
    assert all(piece.endswith(end) for piece in pieces[:-1])
    assert all(2 * LONG_LINE_CHARACTERS // 3 <= len(piece) <= LONG_LINE_CHARACTERS for piece in pieces[:-1])


def test_a_long_line_of_chinese_is_cut_behind_its_full_stops() -> None:
    pieces = cut("数据库的搜索引擎很快。" * 3_000)
    assert all(piece.endswith("。") for piece in pieces)


def test_a_long_line_without_sentences_is_cut_behind_a_word_and_sooner() -> None:
    pieces = cut("lorem ipsum " * 3_000)
    assert all(piece.endswith(" ") for piece in pieces)
    assert all(len(piece) <= UNBROKEN_CHARACTERS for piece in pieces[:-1])


def test_a_long_line_without_words_is_cut_between_letters() -> None:
    draw = random.Random(1)
    text = "".join(draw.choices("0123456789abcdef", k=20_000))
    assert all(len(piece) == UNBROKEN_CHARACTERS for piece in cut(text)[:-2])


@pytest.mark.parametrize(
    "glued",
    ["e\u0301", "👩\u200d👧", "👍\U0001f3fd", "☎\ufe0f", "葛\U000e0100", "क\u094d"],
    ids=["accent", "family", "skin", "emoji", "ideograph", "virama"],
)
def test_what_is_read_as_one_letter_is_not_cut_apart(glued: str) -> None:
    for shift in range(len(glued)):
        text = "x" * shift + glued * 3_000
        for piece in cut(text)[1:]:
            assert piece.startswith(glued), (shift, piece[:3])


def test_marks_without_an_end_are_cut_all_the_same() -> None:
    pieces = cut("a" + "\u0301" * 20_000)
    assert all(len(piece) == UNBROKEN_CHARACTERS for piece in pieces[:-2])


def test_a_long_line_between_short_ones_is_cut_by_itself() -> None:
    before, after = "short line\n" * 10, "\nshort line" * 10
    line = "word " * 2_000
    pieces = cut(f"{before}{line}{after}")
    assert pieces[0] == before and pieces[-1] == after
    assert "".join(pieces[1:-1]) == line
