"""Chunks tile a document exactly, keep to its structure, and are made in linear time."""

import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.data import samples

from hopnode.worker.corpus.chunking.chunker import MAX_TOKENS, OTHER_SCRIPTS, chunk
from hopnode.worker.corpus.parsing.parser import normalize_text, parse
from hopnode.worker.corpus.records import ChunkSpan, PageSpan, ParsedDocument
from hopnode.worker.tokens import count_tokens

KINDS = ["text", "markdown", "table", "code:python", "code:javascript", "code:bash", "code:php", "code:kotlin"]
FRAGMENTS = [
    "# h\n", "## sub\n", "Title\n====\n", "```\n", "~~~py\n", "| a | b |\n", "|---|---|\n", "| 1 | 2 |\n", "- x\n", "  - y\n",
    "> q\n", "word ", "word. ", "\n", "\n\n", "   ", "\t", "漢字", "한국어 ", "😀", "👨\u200d👩\u200d👧", "e\u0301\u0302\u0303",
    "<b>", "[a](b)", "**", "def f():\n    ", "return x\n", "{", "}", "\x1c", "---\n", "a" * 50, "x: 1 | y: 2\n", "\\", "\u3000",
]  # fmt: skip


def tiled(document: ParsedDocument, max_tokens: int = MAX_TOKENS) -> list[ChunkSpan]:
    """The chunks, after every promise about them was checked."""
    chunks = chunk(document, max_tokens)
    end = 0
    for one in chunks:
        assert one.start >= end
        assert not document.text[end : one.start].strip(), "text was lost between chunks"
        assert one.text == document.text[one.start : one.end]
        assert one.text.strip()
        assert one.tokens == count_tokens(one.text) <= OTHER_SCRIPTS * max_tokens
        end = one.end
    assert not document.text[end:].strip(), "text was lost at the end"
    return chunks


def text_of(parts: list[str]) -> str:
    return normalize_text("".join(parts))


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(FRAGMENTS), max_size=60).map(text_of), st.sampled_from(KINDS), st.sampled_from([4, 16, 64])
)
def test_chunks_tile_every_document(text: str, kind: str, max_tokens: int) -> None:
    tiled(ParsedDocument(text=text, kind=kind), max_tokens)


@settings(deadline=None)
@given(st.text(max_size=400), st.sampled_from(KINDS))
def test_chunks_tile_any_characters(text: str, kind: str) -> None:
    text = normalize_text(text)
    tiled(ParsedDocument(text=text, kind=kind), 8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", ["", " \n\n\t ", "\u3000"])
def test_a_blank_document_has_no_chunks(text: str, kind: str) -> None:
    assert chunk(ParsedDocument(text=text, kind=kind)) == []


def test_a_short_document_is_one_chunk() -> None:
    (one,) = tiled(ParsedDocument(text=f"\n {samples.FACT} \n", kind="text"))
    assert one == ChunkSpan(samples.FACT, 2, 2 + len(samples.FACT), count_tokens(samples.FACT))


def test_offsets_count_code_points() -> None:
    text = "😀 한국어 é. " * 400
    chunks = tiled(ParsedDocument(text=text, kind="text"))
    assert len(chunks) > 3


def test_a_chunk_holds_about_as_much_text_in_any_script() -> None:
    def longest(sentence: str) -> int:
        return max(one.tokens for one in tiled(ParsedDocument(text=sentence * 200, kind="text")))

    assert MAX_TOKENS / 2 < longest("The harbour master keeps the key. Il garde la clé du phare. ") <= MAX_TOKENS
    for sentence in (
        "등대 열쇠는 항만장이 보관한다. ",
        "灯台の鍵は港長が保管している。",
        "Ο λιμενάρχης κρατά το κλειδί. ",
    ):
        assert MAX_TOKENS < longest(sentence) <= OTHER_SCRIPTS * MAX_TOKENS


# --- headings

HANDBOOK = f"""---
title: Handbook
---
Intro.

# Keys

{samples.SENTENCE * 20}

## Rotation `fast`

{samples.SENTENCE * 20}

```sh
# no heading
```

Setext
------

{samples.SENTENCE * 20}

# [Quotas](http://x.test/) #

{samples.SENTENCE * 20}
"""


def test_every_chunk_knows_the_headings_above_it() -> None:
    chunks = tiled(ParsedDocument(text=HANDBOOK, kind="markdown"))
    starts = {one.text.split("\n")[0]: one.heading for one in chunks}
    assert starts["# Keys"] == "Keys"
    assert starts["## Rotation `fast`"] == "Keys > Rotation `fast`"
    assert starts["Setext"] == "Keys > Setext"
    assert starts["# [Quotas](http://x.test/) #"] == "Quotas"
    assert {one.heading for one in chunks} <= {"", "Keys", "Keys > Rotation `fast`", "Keys > Setext", "Quotas"}


def test_a_chunk_that_continues_a_section_has_its_heading() -> None:
    text = "# One\n\n" + "\n\n".join([samples.SENTENCE * 8] * 20)
    chunks = tiled(ParsedDocument(text=text, kind="markdown"))
    assert len(chunks) > 3
    assert {one.heading for one in chunks} == {"One"}


def test_plain_text_has_no_headings() -> None:
    assert {one.heading for one in chunk(ParsedDocument(text=HANDBOOK, kind="text"))} == {""}


def test_sections_are_not_mixed_when_they_fill_a_chunk() -> None:
    text = "\n\n".join(f"# Section {number}\n\n{samples.SENTENCE * 9}" for number in range(6))
    chunks = tiled(ParsedDocument(text=text, kind="markdown"))
    assert [one.heading for one in chunks] == [f"Section {number}" for number in range(6)]
    assert all(one.text.startswith("# Section") for one in chunks)


def test_code_fences_stay_whole_where_they_fit() -> None:
    fence = "```python\n" + "value = compute(first, second)\n\n" * 12 + "```"
    text = "\n\n".join(f"{samples.SENTENCE * 6}\n\n{fence}" for _ in range(12))
    assert all(one.text.count("```") % 2 == 0 for one in tiled(ParsedDocument(text=text, kind="markdown")))


# --- tables


def test_rows_of_a_markdown_table_keep_their_header() -> None:
    rows = "\n".join(f"| name{number} | {number} | some words to fill the row |" for number in range(300))
    text = f"# Limits\n\n| Name | Quota | Note |\n|---|---|---|\n{rows}\n\nAfter | the table."
    chunks = tiled(ParsedDocument(text=text, kind="markdown"))
    inside = [one for one in chunks if one.text.startswith("| name")]
    assert len(inside) > 5
    assert {one.heading for one in inside} == {"Limits > | Name | Quota | Note |"}
    assert all(
        line.startswith("|") and line.endswith("|") for one in inside for line in one.text.split("\n\n")[0].split("\n")
    )


def test_rows_of_a_sheet_are_not_cut_and_know_their_sheet() -> None:
    rows = [["Name", "Quota"], *([f"name{number}", number] for number in range(400))]
    document = parse(samples.workbook(rows), media_type=None, filename="a.xlsx")
    chunks = tiled(document)
    assert len(chunks) > 5
    assert {one.heading for one in chunks} == {"Plan"}
    lines = [line for one in chunks for line in one.text.split("\n")]
    assert lines == document.text.split("\n")


def test_a_piece_of_a_long_row_says_which_row_it_continues() -> None:
    text = f"Name | Text\nName: alpha | Text: {samples.SENTENCE * 100}\nName: beta | Text: short"
    chunks = tiled(ParsedDocument(text=text, kind="table"))
    assert chunks[0].heading == ""
    assert {one.heading for one in chunks if "short" not in one.text and one.start > 60} == {"Name: alpha"}


# --- pages, code


def test_a_chunk_has_the_page_on_which_it_starts() -> None:
    document = parse(samples.long_pdf(6), media_type=None, filename=None)
    for one in tiled(document):
        page = next(page for page in document.pages if page.start <= one.start < page.end)
        assert one.page == page.number
    assert {one.page for one in chunk(document)} == {1, 2, 3, 4, 5, 6}


def test_an_empty_page_is_no_ones_page() -> None:
    pages = (PageSpan(1, 0, 3), PageSpan(2, 3, 3), PageSpan(3, 5, 8))
    document = ParsedDocument(text="one\n\ntwo", kind="text", pages=pages)
    assert [one.page for one in tiled(document, 1)] == [1, 3]


def test_code_is_cut_between_definitions() -> None:
    body = "        total = first + second * 3\n" * 10
    text = "\n\n".join(
        f"class C{number}:\n    def run(self, first, second):\n{body}        return total" for number in range(30)
    )
    chunks = tiled(ParsedDocument(text=text, kind="code:python"))
    assert len(chunks) > 5
    assert all(one.text.startswith("class C") for one in chunks)


@pytest.mark.parametrize(
    "language",
    ["bash", "c", "c_sharp", "cpp", "go", "java", "javascript", "php", "python", "ruby", "rust", "tsx", "typescript"],
)
def test_every_grammar_loads_and_tiles(language: str) -> None:
    tiled(ParsedDocument(text="// a\nint f(int x) { return x; }\n" * 100, kind=f"code:{language}"), 64)


def test_threads_chunk_side_by_side() -> None:
    document = ParsedDocument(text=HANDBOOK * 3, kind="markdown")
    expected = chunk(document)
    with ThreadPoolExecutor(4) as threads:
        assert all(found == expected for found in threads.map(lambda _: chunk(document), range(12)))


# --- speed

_RANDOM = random.Random(1)
_HOSTILE = {
    "one line without spaces": lambda: "".join(_RANDOM.choices("abcdefghijklmnop0123456789", k=1_000_000)),
    "one letter": lambda: "a" * 1_000_000,
    "one mark": lambda: "=" * 300_000,
    "emoji": lambda: "😀" * 300_000,
    "families": lambda: "👨\u200d👩\u200d👧\u200d👦" * 40_000,
    "chinese": lambda: "".join(map(chr, _RANDOM.choices(range(0x4E00, 0x9FFF), k=300_000))),
    "korean": lambda: "안녕하세요 세계 " * 40_000,
    "combining marks": lambda: ("a" + "\u0301" * 3_000) * 100,
    "short lines": lambda: "a\n" * 300_000,
    "blank lines": lambda: "\n" * 1_000_000 + "x",
    "white space": lambda: "a" + " " * 1_000_000 + "b",
    "table": lambda: "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 60_000,
    "fences": lambda: "```\n" * 100_000,
    "brackets": lambda: "[" * 100_000,
    "underlines": lambda: "a\n---\n\n" * 80_000,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["text", "markdown"])
@pytest.mark.parametrize("name", _HOSTILE)
def test_hostile_text_is_cut_in_seconds(name: str, kind: str) -> None:
    document = ParsedDocument(text=normalize_text(_HOSTILE[name]()), kind=kind)
    started = time.process_time()
    chunks = chunk(document)
    assert time.process_time() - started < 5
    assert chunks == tiled(document)


@pytest.mark.slow
def test_markdown_is_cut_at_a_megabyte_a_second() -> None:
    document = ParsedDocument(text=HANDBOOK * 130, kind="markdown")
    chunk(ParsedDocument(text=HANDBOOK, kind="markdown"))
    started = time.process_time()
    chunk(document)
    assert len(document.text) / (time.process_time() - started) > 1_000_000
