"""How results look: citations, excerpts, gauges, and nothing from outside that could paint on the terminal."""

import io
import os
import select
import subprocess
import sys
from typing import Any

import pytest
from rich.console import Console

from hopnode.node_service.commands.terminal import display

PASSAGE: dict[str, Any] = {
    "rank": 1,
    "score": 0.5,
    "document_id": "d1",
    "key": "guides/setup.md",
    "url": None,
    "title": "Setup",
    "text": "Run  the\ncommand.",
    "start": 10,
    "end": 26,
    "page": None,
    "justification": "It says so.",
}


def _shown(**changes: Any) -> str:
    stream = io.StringIO()
    display.passage(Console(file=stream, width=100, force_terminal=True, color_system=None), PASSAGE | changes)
    return stream.getvalue()


def test_a_passage_shows_rank_citation_score_origin_text_and_why() -> None:
    lines = [line.strip() for line in _shown().splitlines()]
    assert lines[0].startswith("1  Setup [10:26]") and "0.500" in lines[0]
    assert lines[1:4] == ["guides/setup.md", "Run the command.", "why: It says so."]


def test_a_url_goes_before_the_key_and_a_page_into_the_citation() -> None:
    shown = _shown(url="https://example.com/setup", page=3)
    assert "https://example.com/setup" in shown and "guides/setup.md" not in shown
    assert "[10:26] p. 3" in shown


def test_a_document_without_a_title_is_cited_by_its_id() -> None:
    assert display.citation(PASSAGE | {"title": ""}) == "d1 [10:26]"


@pytest.mark.parametrize("field", ["title", "text", "justification", "key"])
def test_text_from_outside_cannot_send_control_sequences_to_the_terminal(field: str) -> None:
    assert "\x1b[2J" not in _shown(**{field: "harmless\x1b[2Jno more\x9b"})


def test_markup_in_a_text_is_shown_as_it_stands() -> None:
    assert "[bold]x[/bold]" in _shown(text="[bold]x[/bold]")


ANSWER: dict[str, Any] = {
    "text": "Run it [2].",
    "found": True,
    "citations": [{"number": 2, "document_id": "d1", "key": "a.md", "url": None, "title": "Setup"}],
}
ANSWER["citations"][0] |= {"start": 10, "end": 26, "page": None}


def _answer(**changes: Any) -> str:
    stream = io.StringIO()
    display.answer(Console(file=stream, width=100, color_system=None), ANSWER | changes)
    return stream.getvalue()


def test_an_answer_stands_above_what_each_of_its_numbers_cites() -> None:
    assert _answer().splitlines() == ["Run it [2].", "  [2] Setup [10:26]  a.md", ""]


def test_an_answer_that_was_not_found_says_so() -> None:
    shown = _answer(found=False, text="The port is missing.", citations=[])
    assert shown.splitlines()[:2] == ["The passages do not hold the answer.", "The port is missing."]
    assert "\x1b[2J" not in _answer(text="wiped\x1b[2J")


def test_an_excerpt_is_one_line_cut_at_a_word() -> None:
    assert display.excerpt("one two three", 9) == "one two …"
    assert display.excerpt("one\n\n two") == "one two"


@pytest.mark.parametrize(("used", "bars"), [(0, 0), (16384, 10), (32768, 20), (50000, 20)])
def test_the_gauge_is_full_at_the_budget_and_never_longer(used: int, bars: int) -> None:
    text = display.gauge(used, 32768).plain
    assert text.count("█") == bars and text.count("█") + text.count("░") == 20
    assert f"{used:,} / 32,768 tokens" in text


@pytest.mark.parametrize(("seconds", "words"), [(0.04, "0.0 s"), (59.9, "59.9 s"), (61, "1 min 1 s")])
def test_durations_are_for_people(seconds: float, words: str) -> None:
    assert display.duration(seconds) == words


def test_json_reaches_a_pipe_while_its_command_goes_on() -> None:
    program = "import sys; from hopnode.node_service.commands.terminal.display import print_json; print_json({}); sys.stdin.read()"
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, text=True, env=buffered) as child:
        assert child.stdin and child.stdout
        assert select.select([child.stdout], [], [], 60)[0], "nothing was printed while the command ran"
        assert child.stdout.readline() == "{}\n"
        child.stdin.close()
