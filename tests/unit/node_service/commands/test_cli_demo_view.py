"""How the demo looks in 100 columns, with and without colour."""

import io
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from hopnode.node_service.commands.demo import sample, view
from hopnode.node_service.commands.demo.demo import DEMO_QUESTIONS
from hopnode.node_service.commands.demo.records import Comparison, LoadedSample, ModeOutcome, totals
from hopnode.node_service.commands.searching import Finished
from hopnode.node_service.commands.terminal import display
from hopnode.node_service.commands.terminal.step_lines import Step
from hopnode.worker.settings import WorkerSettings

LIBRARY = LoadedSample(
    {"w1": "Forbidden Ground", "w2": "Pál Gábor", "w3": "Other"}, {"d1": "w1", "d2": "w2", "d3": "w3"}
)


def _passage(rank: int, document: str, title: str) -> dict[str, Any]:
    return {"rank": rank, "score": 0.5, "document_id": document, "title": title, "start": 0, "end": 59, "page": None}


def _answer(mode: str, documents: list[str], found: set[str]) -> ModeOutcome:
    passages = [_passage(rank, name, LIBRARY.titles[LIBRARY.keys[name]]) for rank, name in enumerate(documents, 1)]
    usage = {"token_budget": 32768, "context_tokens_final": 5120, "context_tokens_peak": 9000}
    result = {"passages": passages, "stop_reason": "answered", "degraded": ["vectors-unavailable"], "usage": usage}
    call = {"id": "1", "name": "search_corpus", "arguments": '{"query": "director of Forbidden Ground"}'}
    steps = (
        Step("action", {"turn": 1, "calls": [call], "final": None}),
        Step("observation", _observation("search_corpus", ["d1_0", "d3_0"])),
        Step("observation", _observation("search_corpus", ["d2_0"])),
        Step("prune", {"turn": 1, "chunk_ids": ["d3_0"], "freed_tokens": 10}),
    )
    return ModeOutcome(mode, Finished({"result": result}, steps if mode == "agent" else (), 0.25), frozenset(found))


def _observation(tool: str, shown: list[str]) -> dict[str, Any]:
    return {"turn": 1, "call_id": "1", "tool": tool, "shown": shown, "tokens": 10, "error": False, "text": ""}


COMPARISON = Comparison(
    "Which film whose director is younger, Forbidden Ground or Free Guy?",
    ("w1", "w2"),
    (_answer("one_shot", ["d1", "d3"], {"w1"}), _answer("agent", ["d1", "d2"], {"w1", "w2"})),
)


def _shown(*, colour: bool) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=100, force_terminal=colour, no_color=not colour, highlight=False, emoji=False)
    settings = WorkerSettings(data_dir="/data/demo")
    view.opening(console, 1294, settings)
    view.comparison(console, COMPARISON, LIBRARY, 1)
    view.closing(console, [COMPARISON], settings, "http://127.0.0.1:8700")
    return stream.getvalue()


def test_both_modes_stand_side_by_side_with_gold_marked_and_citations() -> None:
    lines = _shown(colour=False).splitlines()
    row = next(line for line in lines if "1 Forbidden Ground [0:59]" in line)
    assert row.count("✓ 1 Forbidden Ground [0:59]") == 2
    assert any("found 1 of 2 gold" in line and "found 2 of 2 gold" in line for line in lines)


def test_the_agents_way_shows_hops_new_gold_what_was_pruned_the_gauge_and_every_degradation() -> None:
    text = " ".join(_shown(colour=False).split())
    assert "1 search “director of Forbidden Ground” → 2 passages, ✓ Forbidden Ground" in text
    assert "→ 1 passage, ✓ Pál Gábor" in text
    assert "pruned 1 passage: Other" in text
    assert "5,120 / 32,768 tokens, 9,000 at the peak" in text
    assert "degraded vectors-unavailable" in text


def test_the_end_gives_totals_and_says_how_to_go_on() -> None:
    text = _shown(colour=False)
    assert "1 / 2" in text and "2 / 2" in text
    assert f"HOPNODE_DATA_DIR=/data/demo {display.program()} serve" in text
    assert "http://127.0.0.1:8700/docs" in text


@pytest.mark.parametrize("colour", [True, False])
def test_no_line_is_wider_than_100_columns_with_or_without_colour(colour: bool) -> None:
    text = _shown(colour=colour)
    assert ("\x1b[3" in text) is colour
    assert max(line.cell_len for line in Text.from_ansi(text).split()) <= 100


def test_totals_count_gold_by_mode_and_questions_with_all_of_it() -> None:
    assert totals([COMPARISON, COMPARISON]) == {
        "gold": 4,
        "found": {"one_shot": 2, "agent": 4},
        "complete": {"one_shot": 0, "agent": 2},
    }


def test_the_sample_is_whole_and_holds_the_questions_that_the_demo_asks() -> None:
    paragraphs = {paragraph.id: paragraph for paragraph in sample.paragraphs()}
    questions = {question.id: question for question in sample.questions()}
    assert (len(paragraphs), len(questions)) == (1294, 163)
    assert all(key in paragraphs for question in questions.values() for key in question.gold)
    assert len(set(DEMO_QUESTIONS)) == 3 and set(DEMO_QUESTIONS) <= set(questions)
