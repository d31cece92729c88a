"""The words of pages and docstrings: sentences that are read once. Knows no grammar; it measures lengths."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MOST_WORDS = 25
"""Words of a sentence; names in backticks and link targets are no words to read."""
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
MODULES = sorted((ROOT / "hopnode").rglob("*.py"))


def blocks_of(page: str) -> Iterator[str]:
    """Paragraphs, list items and cells of tables of a Markdown text; no code and no comments."""
    page = re.sub(r"^```.*?^```|<!--.*?-->", "", page, flags=re.MULTILINE | re.DOTALL)
    for paragraph in re.split(r"\n\s*\n", page):
        lines: list[str] = []
        for line in paragraph.splitlines():
            if line.startswith("|"):
                yield from line.strip("|").split(" | ")
            elif re.match(r"\s*(?:[-*]|\d+\.)\s|#", line):
                yield " ".join(lines)
                lines = [re.sub(r"^\s*(?:[-*]|\d+\.|#+)\s*", "", line)]
            else:
                lines.append(line.strip())
        yield " ".join(lines)


def docstrings_of(module: str) -> Iterator[str]:
    """The paragraphs of every docstring of a module's text."""
    for node in ast.walk(ast.parse(module)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from re.split(r"\n\s*\n|\n\s*- ", ast.get_docstring(node) or "")


def long_sentences(blocks: Iterator[str]) -> list[str]:
    """Sentences with more words than may be."""
    found: list[str] = []
    for block in blocks:
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", re.sub(r"``.+?``|`[^`]*`", "", " ".join(block.split())))
        for sentence in re.split(r"(?<=[.!?…;:])[)”\"*_]*\s+", text):
            if len(re.findall(r"[^\W_][\w'’%/.,-]*", sentence)) > MOST_WORDS:
                found.append(sentence)
    return found


def test_a_sentence_that_is_too_long_is_found() -> None:
    long = " ".join(["word"] * (MOST_WORDS + 1))
    assert (
        long_sentences(blocks_of(f"Short. {long}. Short.\n\n| cell | {long} |\n\n- {long}"))
        == [f"{long}."] + [long] * 2
    )
    assert long_sentences(docstrings_of(f'"""Short.\n\n{long}."""')) == [f"{long}."]
    assert long_sentences(blocks_of("```\n" + long + "\n```\n" + "`a b c` " * 30 + " [link](" + "w" * 9 + ")")) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_sentences_of_a_page_are_read_once(page: Path) -> None:
    assert long_sentences(blocks_of(page.read_text(encoding="utf-8"))) == []


def test_the_sentences_of_docstrings_are_read_once() -> None:
    found = {
        str(path.relative_to(ROOT)): long
        for path in MODULES
        if (long := long_sentences(docstrings_of(path.read_text(encoding="utf-8"))))
    }
    assert found == {}
