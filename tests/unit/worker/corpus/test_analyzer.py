import re
import unicodedata
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopnode.worker.corpus.analyzer import analyze, is_unspaced

CJK = st.text(st.sampled_from("検索東京都データベース검색엔진데이터베이스数据库全文检索の"), min_size=2, max_size=30)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Hello, World!", ["hello", "world"]),
        ("snake_case in Python3.11", ["snake", "case", "in", "python3", "11"]),
        ("STRASSE Straße", ["strasse", "strasse"]),
        ("ＡＢＣ １２３ ﬁne", ["abc", "123", "fine"]),
        ("हिन्दी किताबें", ["हिन्दी", "किताबें"]),
        ("", []),
        ("—…!? \n\t", []),
    ],
)
def test_words_are_folded_and_kept_whole(text: str, terms: list[str]) -> None:
    assert analyze(text) == terms


def test_composed_and_decomposed_letters_give_the_same_terms() -> None:
    text = "Crème brûlée à Zürich, 데이터, がぎぐ"
    assert analyze(unicodedata.normalize("NFD", text)) == analyze(text)


def test_a_run_without_spaces_is_indexed_by_pairs_and_by_single_characters() -> None:
    assert analyze("全文検索") == ["全", "文", "検", "索", "全文", "文検", "検索"]
    assert analyze("검색 엔진") == ["검", "색", "검색", "엔", "진", "엔진"]


def test_a_query_is_pairs_and_single_characters_only_where_there_is_no_pair() -> None:
    assert analyze("全文検索", query=True) == ["全文", "文検", "検索"]
    assert analyze("猫", query=True) == ["猫"]
    assert analyze("猫 cat", query=True) == ["猫", "cat"]


def test_half_width_kana_and_full_width_letters_meet_their_plain_forms() -> None:
    assert analyze("ﾃﾞｰﾀﾍﾞｰｽ", query=True) == analyze("データベース", query=True)


def test_scripts_in_one_word_are_told_apart() -> None:
    assert analyze("東京tower2", query=True) == ["東京", "tower2"]


def test_a_term_has_a_limit() -> None:
    assert analyze("a" * 1000) == ["a" * 64]


@given(CJK, st.data())
def test_every_part_of_a_cjk_text_is_found_by_its_terms(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    part = text[start : data.draw(st.integers(start + 1, len(text)))]
    assert set(analyze(part, query=True)) <= set(analyze(text))


@given(st.text(max_size=200))
def test_terms_hold_nothing_that_an_engine_could_take_for_syntax(text: str) -> None:
    for term in analyze(text):
        assert term and " " not in term
        assert all(character.isalnum() and not character.isupper() for character in term if character.isascii())


def test_a_query_counts_as_cjk_by_most_of_its_letters() -> None:
    assert is_unspaced("PostgreSQL에서 데이터베이스 검색 엔진을 설치하는 방법")
    assert not is_unspaced("how to write 検索 in English")
    assert not is_unspaced("12 + 30")


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("Pál Gábor", ["pal", "gabor"]),
        ("Łódź, São Paulo, Straße", ["lodz", "sao", "paulo", "strasse"]),
        ("năm việt nam", ["năm", "việt", "nam"]),
        ("Ёлка и йод", ["ёлка", "и", "йод"]),
    ],
)
def test_latin_words_lose_their_accents_except_where_accents_tell_words_apart(text: str, terms: list[str]) -> None:
    assert analyze(text) == terms


def test_a_word_gives_the_same_term_whatever_stands_around_it() -> None:
    assert analyze("Hà Nội") == [*analyze("Hà"), *analyze("Nội")]


MIXED = st.text(
    st.sampled_from("aB9_.=<> \n-'’–éÉßﬁİıłøæạơ\u0301\u0338\u3099\u0e31กข漢字のガﾞ한글हिन्दीЖёΩ𝒜𠀀\x85\xa0\ud800´"),
    max_size=60,
)


def runs(text: str) -> Iterator[str]:
    """Stretches of one script without spaces, or of other letters, digits and marks, told character by character."""
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    start = 0
    while start < len(text):
        within = is_unspaced if is_unspaced(text[start]) else is_spaced
        end = start
        while end < len(text) and within(text[end]):
            end += 1
        if end > start:
            yield text[start:end]
        start = max(end, start + 1)


def is_spaced(character: str) -> bool:
    is_mark = unicodedata.category(character)[0] == "M"
    return is_mark or (character.isalnum() and not is_unspaced(character))


@given(MIXED, st.booleans())
def test_a_text_gives_the_terms_of_its_runs_one_after_the_other(text: str, query: bool) -> None:
    assert analyze(text, query=query) == [term for run in runs(text) for term in analyze(run, query=query)]


@given(st.text(st.sampled_from("aZ09 _-.,\n\t\x00\x1f\x7f"), max_size=200))
def test_plain_ascii_gives_its_lower_case_words(text: str) -> None:
    assert analyze(text) == [word[:64] for word in re.findall("[a-z0-9]+", text.lower())]
