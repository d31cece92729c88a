"""How a report of an evaluation reads on a terminal: its figures, what it cost, and what to be careful about."""

import io
from typing import Any

import pytest
from rich.console import Console

from hopnode.node_service.commands.evaluation import view
from hopnode.worker.evaluation.comparison import compare
from hopnode.worker.evaluation.report import Report

CUTS = ("2", "5", "10", "20")


def figures(value: float) -> dict[str, Any]:
    return {"recall": dict.fromkeys(CUTS, value), "all": dict.fromkeys(CUTS, value), "mrr": value, "ndcg10": value}


def report(value: float = 0.5, **fields: Any) -> Report:
    between = (value - 0.1, value + 0.1)
    made: dict[str, Any] = {
        **figures(value),
        "dataset": "hops",
        "questions": 1_200,
        "documents": 34_000,
        "mode": "one_shot",
        "profile": "offline",
        "titles": True,
        "top_k": 20,
        "seed": 0,
        "embedder": "minilm",
        "intervals": {
            "recall": dict.fromkeys(CUTS, between),
            "all": dict.fromkeys(CUTS, between),
            "mrr": between,
            "ndcg10": between,
        },
        "latency_ms": {"p50": 12.3, "p95": 45.6},
        "cost": dict.fromkeys(
            ("turns", "tool_calls", "pruned_chunks", "context_tokens_peak", "prompt_tokens", "completion_tokens"), 0.0
        ),
    }
    return Report.model_validate(made | fields)


def shown(made: Report) -> str:
    console = Console(file=io.StringIO(), width=100, highlight=False, emoji=False)
    view.show(console, made)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def row(text: str, name: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.strip().startswith(name)]
    return line.strip().removeprefix(name).split()


def test_figures_are_per_cent_under_their_names_with_their_intervals() -> None:
    text = shown(report(0.512))
    assert "hops · 1,200 questions over 34,000 documents · titled · minilm" in text
    assert set(row(text, "one_shot")) == {"51.2"}
    assert set(row(text, "95 % from")) == {"41.2"}
    assert set(row(text, "to")) == {"61.2"}


def test_every_column_has_a_value_for_every_row() -> None:
    text = shown(report(legs={"lexical": figures(0.25), "dense": figures(0.75)}))
    columns = len(row(text, "R@2")) + 1
    assert [len(row(text, name)) for name in ("one_shot", "lexical alone", "dense alone")] == [columns] * 3
    assert set(row(text, "lexical alone")) == {"25.0"}


def test_no_line_is_wider_than_a_pipe() -> None:
    text = shown(report(1.0, legs={"lexical": figures(1.0)}, mode="auto", modes={"agent": 1_000, "one_shot": 200}))
    assert max(map(len, text.splitlines())) <= 100


def test_a_report_without_faults_warns_of_nothing() -> None:
    text = shown(report())
    assert not any(word in text for word in ("failed", "degraded", "could not", "not there", "model tokens", "ran as"))


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"unknown_gold": 1_234}, "1,234 gold entries name documents that are not there"),
        (
            {"failed": {"model-unavailable": 3, "deadline-exceeded": 1}},
            "failed searches, which found nothing: deadline-exceeded 1, model-unavailable 3",
        ),
        ({"degraded": {"no-reranker": 2_000}}, "degraded searches: no-reranker 2,000"),
        ({"ingest": {"seconds": 61, "failed": {"empty": 2}}}, "documents that could not be stored: empty 2"),
        ({"ingest": {"seconds": 61}}, "ingest: 1 min 1 s"),
        ({"mode": "auto", "modes": {"one_shot": 9, "agent": 1}}, "ran as: agent 1, one_shot 9"),
        ({"titles": False}, "title-blind"),
    ],
)
def test_what_a_reader_must_know_stands_below_the_figures(fields: dict[str, Any], line: str) -> None:
    assert line in shown(report(**fields))


def test_tokens_are_told_where_a_model_was_asked() -> None:
    cost = report().cost | {"prompt_tokens": 9_000.0, "completion_tokens": 500.0, "turns": 2.5}
    text = shown(report(cost=cost))
    assert "model tokens on average: 9,500, of them written 500" in text
    assert "2.5 turns" in text


def test_hops_stand_in_their_order() -> None:
    hops = [{"hop": hop, "questions": 600, "recall": dict.fromkeys(CUTS, 0.9 / hop)} for hop in (1, 2)]
    text = shown(report(hops=hops))
    assert row(text, "1 ")[:2] == ["600", "90.0"]
    assert row(text, "2 ")[:2] == ["600", "45.0"]


def record(name: str, rank: int | None) -> dict[str, Any]:
    return {"id": name, "ranks": {"d1": rank}}


def test_a_comparison_shows_what_got_better_and_marks_what_is_clear() -> None:
    before = report(per_question=[record(f"q{n}", None) for n in range(40)] + [record("old", 1)])
    after = report(per_question=[record(f"q{n}", 1) for n in range(40)])
    console = Console(file=io.StringIO(), width=100, highlight=False, emoji=False)
    view.show_comparison(console, compare(before, after), "earlier.json")
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "beside earlier.json, over the 40 questions of both" in text
    assert row(text, "MRR") == ["0.0", "100.0", "+100.0", "+100.0", "to", "+100.0", "*", "40", "0"]
    assert "only before 1, only now 0 questions" in text
