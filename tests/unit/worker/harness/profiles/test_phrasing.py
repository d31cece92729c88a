from pathlib import Path

import pytest

from hopnode.worker.errors import ConfigurationError
from hopnode.worker.harness.profiles.carrier import tool_specs
from hopnode.worker.harness.profiles.phrasing import load_phrasing, shipped


def test_without_a_file_the_shipped_wording_counts() -> None:
    assert load_phrasing(None) is shipped()
    assert [tool.name for tool in tool_specs(shipped())] == [
        "search_corpus",
        "grep_corpus",
        "read_document",
        "multi_tool_use",
        "prune_chunks",
    ]


def test_a_file_without_headings_is_a_prompt(tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("  Find {query} — and {braces} stay.\n# A heading\n=== not one\n")
    phrasing = load_phrasing(file)
    assert phrasing.ask("it {query}") == "Find it {query} — and {braces} stay.\n# A heading\n=== not one"
    assert phrasing.described == shipped().described


def test_sections_replace_what_they_name_and_leave_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("=== search_corpus ===\nLooks.\n=== search_corpus.query ===\nThe words.\n")
    phrasing = load_phrasing(file)
    assert phrasing.prompt == shipped().prompt
    search, grep = tool_specs(phrasing)[:2]
    assert search.description == "Looks."
    assert search.parameters["properties"] == {"query": {"type": "string", "description": "The words."}}
    assert grep.description == shipped().described["grep_corpus"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("Find it.", "exactly once"),
        ("{query} {query}", "exactly once"),
        ("", "exactly once"),
        ("=== prompt ===\n=== search_corpus ===\nx", "exactly once"),
        ("=== prompts ===\n{query}", "section `prompts`"),
    ],
)
def test_a_file_that_cannot_work_is_refused_with_the_reason(tmp_path: Path, text: str, complaint: str) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text(text)
    with pytest.raises(ConfigurationError, match=complaint):
        load_phrasing(file)


@pytest.mark.parametrize("content", [None, b"\xff\xfe{query}"])
def test_a_file_that_cannot_be_read_is_named_with_its_setting(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "prompt.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigurationError, match="HOPNODE_PROMPT_FILE"):
        load_phrasing(file)
