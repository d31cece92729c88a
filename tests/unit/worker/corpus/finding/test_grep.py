import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st
from support.data.corpora import CollectionBook

from hopnode.worker.corpus.corpus import Corpora, Corpus
from hopnode.worker.corpus.finding.grep import Grep, compile_pattern, required_trigrams
from hopnode.worker.corpus.records import NewDocument
from hopnode.worker.corpus.sqlite.lexical import create_index, extend_grep, rows_with_trigrams
from hopnode.worker.corpus.sqlite.reading import collection_rows
from hopnode.worker.corpus.sqlite.text_store import TextStore
from hopnode.worker.corpus.vectors import draining
from hopnode.worker.corpus.vectors.chroma import EmbeddedChroma
from hopnode.worker.errors import InvalidRequest

TEXTS = {
    "a": "Error E1234 was raised in module alpha.",
    "b": "error e99 is not an error code; see E5678.",
    "c": "검색 엔진의 성능 (2024)",
    "d": "Nothing to see here.\nSecond line starts with Error.",
    "e": "C++ templates cost 100% more than $5.",
}


@pytest.fixture
def filled(corpus: Corpus, book: CollectionBook) -> Corpus:
    corpus.ingest(book.make(), [NewDocument(key, text=text, metadata={"key": key}) for key, text in TEXTS.items()])
    return corpus


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        (r"E\d{4}", "ab"),
        (r"\bE[0-9]+\b", "ab"),
        ("error", "b"),
        ("(?i)error", "abd"),
        ("(?m)^Second", "d"),
        ("^Second", ""),
        ("검색", "c"),
        (r"\p{Hangul}{2}", "c"),
        (r"C\+\+", "e"),
        (r"\$5\.", "e"),
        ("(?i)ERROR|templates", "abde"),
        ("no such thing", ""),
        (".", "abcde"),
        ("", None),
    ],
)
def test_a_pattern_finds_its_chunks_in_stored_order(
    filled: Corpus, book: CollectionBook, pattern: str, found: str | None
) -> None:
    if found is None:
        with pytest.raises(InvalidRequest):
            filled.grep([book.make()], pattern)
    else:
        assert "".join(chunk.key for chunk in filled.grep([book.make()], pattern, limit=10)) == found


def test_the_limit_and_the_filter_are_kept(filled: Corpus, book: CollectionBook) -> None:
    assert [chunk.key for chunk in filled.grep([book.make()], ".", limit=2)] == ["a", "b"]
    assert [chunk.key for chunk in filled.grep([book.make()], "E", filter={"key": {"in": ["b", "c"]}})] == ["b"]


def test_several_collections_are_searched_in_their_order(filled: Corpus, book: CollectionBook) -> None:
    other = book.make("c2")
    filled.ingest(other, [NewDocument("z", text="An Error of its own.")])
    assert [chunk.key for chunk in filled.grep([other, book.make()], "Error", limit=10)] == ["z", "a", "d"]
    assert [chunk.key for chunk in filled.grep([other, book.make()], "Error", limit=1)] == ["z"]


def test_a_deleted_document_is_not_matched(filled: Corpus, book: CollectionBook) -> None:
    filled.delete(book.make(), ["a"])
    assert [chunk.key for chunk in filled.grep([book.make()], r"E\d{4}")] == ["b"]


def test_a_decomposed_pattern_finds_composed_text(corpus: Corpus, book: CollectionBook) -> None:
    corpus.ingest(book.make(), [NewDocument("a", text="Ein Café in Zürich.")])
    assert corpus.grep([book.make()], "Cafe\u0301 in Zu\u0308rich")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(unclosed", "missing \\)"),
        ("[a-", "missing \\]"),
        ("*a", "no argument for repetition"),
        (r"(a)\1", "no back-references"),
        ("(?<=a)b", "no look-around"),
        ("a(?!b)", "no look-around"),
        ("x" * 1_025, "1 to 1024 bytes"),
        ("검" * 342, "1 to 1024 bytes"),
        ("((a{100}){100}){100}", "invalid repetition size"),
        (r"\pN{1000}", "too large.*smaller repetition"),
        ("\ud800(", "cannot be used"),
    ],
)
def test_a_pattern_that_cannot_be_run_is_refused_with_its_reason(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        compile_pattern(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|aa)+$",
        "(.*a){12}x",
        "(x+x+)+y",
        "([a-zA-Z]+)*!",
        "(a{0,30}){0,30}b",
        "((((a*)*)*)*)*b",
        "[ab]*a[ab]{200}c",
        "(?i)(a?){500}b",
        r"(\w+\s?)+[^\w\s]x",
        r"(\pL|\pM|\pN){200}!",
    ],
)
def test_a_regex_bomb_is_answered_at_once_or_refused(corpus: Corpus, book: CollectionBook, pattern: str) -> None:
    text = ("ab" * 700 + " " + "a" * 600 + " ") * 2
    corpus.ingest(book.make(), [NewDocument(str(number), text=text + str(number)) for number in range(5)])
    started = time.perf_counter()
    try:
        corpus.grep([book.make()], pattern)
    except InvalidRequest as error:
        assert str(error)
    assert time.perf_counter() - started < 0.1 * 5  # five documents of 4 kB, on a machine that may be busy


def test_a_search_that_takes_too_long_is_given_up(filled: Corpus, book: CollectionBook, tmp_path: Path) -> None:
    store = TextStore(tmp_path / "workspaces" / "w1" / "corpus.db")
    with store.read() as connection:
        (row,) = collection_rows(connection)
        with pytest.raises(InvalidRequest, match="literal of three characters"):
            Grep("[a-z]+9", max_seconds=-1).rows(connection, row, None, 5)
    store.close()


@pytest.mark.parametrize(
    ("pattern", "trigrams"),
    [
        ("license", ["lic", "ice", "cen", "ens", "nse"]),
        ("(?i)license.*warranty", ["lic", "ice", "cen", "ens", "nse", "war", "arr", "rra", "ran", "ant", "nty"]),
        ("ab", []),
        ("abc?", []),
        ("abcd?", ["abc"]),
        ("abcd+ef", ["abc", "bcd"]),
        ("abc|def", []),
        ("(abc)def", ["def"]),
        ("(?:abc)?def", []),
        ("[abc]def", ["def"]),
        ("[^]abc]def", ["def"]),
        ("[[:alpha:]xyz]def", []),
        (r"\x41bcd", []),
        (r"\p{Greek}abc", []),
        (r"a\.b\+c", ["a.b", ".b+", "b+c"]),
        ("abc{0}def", ["def"]),
        (r"\d\d\d", []),
        (r"^abc$", ["abc"]),
        ("데이터", ["데이터"]),
    ],
)
def test_only_what_every_match_must_hold_is_asked_of_the_index(pattern: str, trigrams: list[str]) -> None:
    assert required_trigrams(pattern) == trigrams


PIECES = st.sampled_from(
    [
        *(
            "abc",
            "abd",
            "k",
            "K",
            "\u212a",
            "s",
            "\u017f",
            "ß",
            "é",
            "데이터",
            ".",
            "\\.",
            "a+",
            "b*",
            "c?",
            "d{2}",
            "e{0,1}",
        ),
        *(
            "[abc]",
            "[^a]",
            "[^]a]",
            "(abc)",
            "(ab|c)",
            "(?:abd)?",
            "|",
            "\\w",
            "\\x61",
            "\\141",
            "\\pL",
            "^",
            "$",
            " ",
            "{",
        ),
        *("}", "\\"),
    ]
)
PARTS = st.sampled_from(
    ["abc", "ABD", "abd", "kK", "\u212as", "\u017fs", "dd", " ", "데이터", "é", "É", ".", "a", "b{"]
)


@given(st.lists(PIECES, max_size=6).map("".join), st.booleans(), st.lists(PARTS, max_size=8).map("".join))
def test_a_text_that_matches_always_has_the_required_trigrams(pattern: str, any_case: bool, text: str) -> None:
    pattern = ("(?i)" if any_case else "") + pattern
    options = re2.Options()
    options.log_errors = False
    try:
        regexp = re2.compile(pattern.encode(), options)
    except re2.error:
        return
    if not regexp.search(text.encode()):
        return
    trigrams = required_trigrams(pattern)
    if trigrams:
        assert _in_index(text, trigrams)


def _in_index(text: str, trigrams: list[str]) -> bool:
    connection = sqlite3.connect(":memory:")
    create_index(connection, 1)
    connection.execute("INSERT INTO grep_1 (rowid, text) VALUES (1, ?)", (text,))
    found = rows_with_trigrams(connection, 1, trigrams, after=0, limit=1_000)
    connection.close()
    return found == [1]


def test_the_pre_filter_changes_no_answer(
    open_node: Callable[..., Corpora], book: CollectionBook, tmp_path: Path
) -> None:
    corpus = open_node().open("w1")
    collection = book.make()
    corpus.ingest(collection, [NewDocument(key, text=text) for key, text in TEXTS.items()])
    patterns = [r"(?i)error", "Error E1234", "검색 엔", "module", r"E\d{4}", "Nothing", "(?i)NOTHING to"]
    before = {pattern: corpus.grep([collection], pattern, limit=10) for pattern in patterns}
    store = TextStore(tmp_path / "workspaces" / "w1" / "corpus.db")
    with store.write() as connection:
        assert extend_grep(connection, 1, 0, 3) == 3  # the rest is not in the pre-filter yet
    assert {pattern: corpus.grep([collection], pattern, limit=10) for pattern in patterns} == before
    with store.write() as connection:
        assert extend_grep(connection, 1, 3, 100) == 5
        assert extend_grep(connection, 1, 5, 100) == 5
    assert {pattern: corpus.grep([collection], pattern, limit=10) for pattern in patterns} == before
    corpus.delete(collection, ["a"])
    corpus.ingest(collection, [NewDocument("b", text="Now module beta, Error E1234.")])
    assert [chunk.key for chunk in corpus.grep([collection], "Error E1234")] == ["b"]
    with store.read() as connection:
        assert rows_with_trigrams(connection, 1, ["mod"], after=0, limit=1_000) == []
    store.close()


def test_the_pre_filter_is_asked_for_more_until_enough_of_it_matches(
    corpus: Corpus, book: CollectionBook, tmp_path: Path
) -> None:
    texts = [f"module of case{number}" if number % 50 == 49 else "a modular module" for number in range(120)]
    corpus.ingest(book.make(), [NewDocument(f"k{number:03}", text=text) for number, text in enumerate(texts)])
    store = TextStore(tmp_path / "workspaces" / "w1" / "corpus.db")
    with store.write() as connection:
        assert extend_grep(connection, 1, 0, 110) == 110
    store.close()
    found = [chunk.key for chunk in corpus.grep([book.make()], "module of", limit=10)]
    assert found == ["k049", "k099"]
    assert len(corpus.grep([book.make()], r"mod\w+ mod", limit=200)) == 118
    assert [chunk.key for chunk in corpus.grep([book.make()], "case|k", limit=1)] == ["k049"]


def test_only_large_collections_get_a_pre_filter(corpus: Corpus, book: CollectionBook, tmp_path: Path) -> None:
    corpus.ingest(book.make(), [NewDocument("a", text="text")])
    corpus.maintain()
    store = TextStore(tmp_path / "workspaces" / "w1" / "corpus.db")
    with store.read() as connection:
        (row,) = collection_rows(connection)
    store.close()
    assert row.chunks < draining.GREP_CHUNKS and row.grep_row == 0


def test_the_pre_filter_catches_up_in_one_go_however_many_batches_that_takes(
    corpus: Corpus, book: CollectionBook, tmp_path: Path
) -> None:
    corpus.ingest(book.make(), [NewDocument(f"k{number}", text=f"text {number}") for number in range(7)])
    store = TextStore(tmp_path / "workspaces" / "w1" / "corpus.db")
    vectors = EmbeddedChroma(tmp_path / "unused")
    draining.Drainer(store, vectors, "w1").catch_up_grep(from_chunks=1, batch=2)
    vectors.close()
    with store.read() as connection:
        (row,) = collection_rows(connection)
        assert rows_with_trigrams(connection, 1, ["tex"], after=0, limit=1_000) == list(range(1, 8))
    store.close()
    assert (row.chunks, row.grep_row) == (7, 7)
