"""Writes docs/benchmarks.md from reports; every sentence with a figure in it comes from one."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from hopnode.worker.evaluation.report import Report
from page.auto import auto_section
from page.harness import harness_section
from page.held_out import held_out_section
from page.load import load_section
from page.pool import pool_section
from page.text import between, compared, difference, name, percent, points, table

MODES = ("one_shot", "agent", "auto")
HEAD = """# Benchmarks

How well and how fast Hopnode searches without a language model, and what a search with one takes beside it. Measured by
`bench/retrieval_quality.py`, `bench/search_latency.py`, `bench/ingest.py`, `bench/harness_overhead.py` and `bench/load.py`; the
first of them writes this page:

```
python bench/retrieval_quality.py DATA --data-dir FOLDER --pooled 20000
```

DATA is a folder with question sets in the forms of [evaluation.md](evaluation.md), where every figure is explained. Everything is a
default of the node: embedder, weights, limits. The agent is the offline one: no language model, no network. Searches return 20
passages.
"""
SETS = """The sets are public. Several documents a question: 2WikiMultiHopQA (Ho et al., 2020), HotpotQA (Yang et al., 2018)
and MuSiQue (Trivedi et al., 2022). One document: XQuAD (Artetxe et al., 2020), JaQuAD (So et al., 2022) and
KorQuAD 1.0 (Lim et al., 2019).
Evidence within documents: chunk spans (Smith and Troynikov, 2024). Their collections are small, up to two thousand paragraphs that
belong to the questions. So figures are far above what the same search finds in a whole Wikipedia. Language models may have seen it.
Seed {seed}; at most {most} questions of a set.

The weights of the ranking were fitted on three of these sets: 2wiki-dev-163, hotpotqa-train-100 and musique-train-100
(`bench/train_offline.py`). So all figures of these sets and of their pool flatter it; only those of what was held out do not.
They are there to compare modes and layouts with one another. One shot uses the first round of the same weights.

Where words lead, which is in all other languages, the order has weights of its own, learnt from XQuAD beside these three. JaQuAD,
KorQuAD and chunk spans taught nothing. We also learnt such weights from JaQuAD instead of XQuAD. With those, one shot was at most
1.0 point behind the better leg, in R@1 and in R@5. That holds for every language of XQuAD, with 100 questions each.
"""
HASHED = (
    "Real text of a Debian machine; documents have vectors of hashed words, since embedding them takes hours, and every "
    "query is embedded by MiniLM all the same. One shot is more than the search tool: it also weighs the candidates of both legs."
)


def write_page(reports: Sequence[Report], others: Sequence[dict[str, Any]], machine: str) -> str:
    """The whole page in Markdown."""
    runs = Runs(reports)
    parts = [
        HEAD,
        _measured_on(reports, machine),
        *held_out_section(others),
        *_multi_hop(runs),
        *_single_hop(runs),
        *_spans(runs),
        *auto_section(runs.by_mode),
        *_speed(others),
        *harness_section(others, table),
        *load_section(others, table),
        *_missing(runs),
    ]
    return "\n".join(part.rstrip() + "\n" for part in parts)


class Runs:
    """Reports by set, variant and mode."""

    def __init__(self, reports: Sequence[Report]) -> None:
        self.by_mode: dict[tuple[str, bool], dict[str, Report]] = {}
        for report in sorted(reports, key=lambda one: (one.dataset, not one.titles, MODES.index(one.mode))):
            self.by_mode.setdefault((report.dataset, report.titles), {})[report.mode] = report

    def where(self, *, several_gold: bool) -> list[dict[str, Report]]:
        return [modes for modes in self.by_mode.values() if _has_several_gold(_any(modes)) == several_gold]


def _with(found: Sequence[dict[str, Report]], *modes: str) -> list[dict[str, Report]]:
    """Those that were measured in all these modes; `_missing` names the others."""
    return [one for one in found if all(mode in one for mode in modes)]


def _has_several_gold(report: Report) -> bool:
    return sum(len(one.ranks) for one in report.per_question) > 1.5 * report.questions


def _missing(runs: Runs) -> list[str]:
    """Says what is not on the page, so that nobody takes it for whole."""
    by_mode = {mode: [name(_any(modes)) for modes in runs.by_mode.values() if mode not in modes] for mode in MODES}
    lines = [f"* `{mode}`: {', '.join(sets)}" for mode, sets in by_mode.items() if sets]
    return ["## Not measured yet", "\n".join(lines)] if lines else []


def _any(modes: dict[str, Report]) -> Report:
    return next(iter(modes.values()))


def _measured_on(reports: Sequence[Report], machine: str) -> str:
    day = datetime.fromtimestamp(max(one.created_at for one in reports), UTC).date()
    versions = ", ".join(f"{name} {number}" for name, number in reports[0].versions.items())
    return f"Measured on {day}: {machine}. Versions: {versions}.\n\n" + SETS.format(
        seed=reports[0].seed, most=max(one.questions for one in reports)
    )


# --- several documents a question -----------------------------------------------------------------------------------


def _multi_hop(runs: Runs) -> list[str]:
    found = runs.where(several_gold=True)
    if not found:
        return []
    columns = ("set", "mode", "R@2", "R@5", "95 %", "R@10", "R@20", "All@5", "nDCG@10", "p50 ms", "p95 ms")
    rows = [_row(report) for modes in found for report in modes.values()]
    parts = ["## Questions that need several documents", table(columns, rows)]
    parts.append("The agent against one shot, question by question (R@5):\n")
    columns = ("set", "one shot", "agent", "difference", "95 %", "better", "worse")
    parts.append(table(columns, (_pair(modes, "one_shot", "agent") for modes in _with(found, "one_shot", "agent"))))
    parts += pool_section(runs.by_mode)
    parts += _hops(found)
    return [*parts, *_where_it_does_not_help(found, "5", "several documents")]


def _row(report: Report) -> Sequence[object]:
    low, high = report.intervals.recall["5"]
    values = [report.recall[cut] for cut in ("2", "5")]
    rest = [report.recall["10"], report.recall["20"], report.all["5"], report.ndcg10]
    times = (f"{report.latency_ms.p50:.0f}", f"{report.latency_ms.p95:.0f}")
    return (
        name(report),
        report.mode,
        *map(percent, values),
        f"{percent(low)} to {percent(high)}",
        *map(percent, rest),
        *times,
    )


def _pair(modes: dict[str, Report], first: str, second: str, figure: str = "recall@5") -> Sequence[object]:
    return name(modes[first]), *compared(difference(modes, first, second, figure))


def _hops(found: Sequence[dict[str, Report]]) -> list[str]:
    rows = [
        (
            name(report),
            report.mode,
            hop.hop,
            hop.questions,
            *(percent(hop.recall[cut]) for cut in ("2", "5", "10", "20")),
        )
        for modes in found
        for report in modes.values()
        for hop in report.hops
        if report.mode != "auto"
    ]
    columns = ("set", "mode", "hop", "questions", "R@2", "R@5", "R@10", "R@20")
    return ["### Hop by hop", table(columns, rows)] if rows else []


def _where_it_does_not_help(found: Sequence[dict[str, Report]], cut: str, what: str) -> list[str]:
    """Plain words on sets where the agent is not clearly better, and where it is worse."""
    lines: list[str] = []
    found = _with(found, "one_shot", "agent")
    for modes in found:
        one = difference(modes, "one_shot", "agent", f"recall@{cut}")
        if not one.is_clear:
            lines.append(
                f"* {name(modes['agent'])}: {points(one.difference)} points R@{cut}, and the interval ({between(one)}) holds zero."
            )
        elif one.difference < 0:
            lines.append(
                f"* {name(modes['agent'])}: the agent is worse, {points(one.difference)} points R@{cut} ({between(one)})."
            )
    slower = [modes["agent"].latency_ms.p50 / modes["one_shot"].latency_ms.p50 for modes in found]
    if slower:
        lines.append(f"* Time of a search: {min(slower):.1f} to {max(slower):.1f} times the median of one shot.")
    return [f"### Where the agent does not help: {what}", "\n".join(lines)] if lines else []


# --- one document a question ----------------------------------------------------------------------------------------


def _single_hop(runs: Runs) -> list[str]:
    found = [modes for modes in _with(runs.where(several_gold=False), "one_shot") if not _any(modes).spans]
    if not found:
        return []
    columns = (
        "set",
        "embedder",
        "words alone",
        "vectors alone",
        "one shot",
        "against the better leg",
        "agent",
        "p50 ms one shot",
        "p50 ms agent",
    )
    parts = [
        "## Questions that need one document",
        "R@1 / R@5 of each leg of the index alone, of one shot, and of the agent.\n",
    ]
    parts.append(table(columns, (_legs(modes) for modes in found)))
    return [*parts, *_where_it_does_not_help(found, "1", "one document")]


def _legs(modes: dict[str, Report]) -> Sequence[object]:
    one, agent = modes["one_shot"], modes.get("agent")
    best = {cut: max(leg.recall[cut] for leg in one.legs.values()) for cut in ("1", "5")}
    return (
        name(one),
        one.embedder,
        *(_first_and_fifth(leg.recall) for leg in (one.legs["lexical"], one.legs["dense"])),
        _first_and_fifth(one.recall),
        " / ".join(points(one.recall[cut] - best[cut]) for cut in best),
        _first_and_fifth(agent.recall) if agent else "",
        f"{one.latency_ms.p50:.0f}",
        f"{agent.latency_ms.p50:.0f}" if agent else "",
    )


def _first_and_fifth(recall: dict[str, float]) -> str:
    return f"{percent(recall['1'])} / {percent(recall['5'])}"


# --- evidence and speed ---------------------------------------------------------------------------------------------


def _spans(runs: Runs) -> list[str]:
    rows = [
        (
            name(report),
            report.mode,
            f"{percent(report.spans.found.recall)} ({' to '.join(map(percent, report.spans.found.interval))})",
            percent(report.spans.fixed.recall),
            points(report.spans.difference),
            " to ".join(map(points, report.spans.difference_interval)),
            f"{report.spans.found.tokens:,.0f} / {report.spans.fixed.tokens:,.0f}",
        )
        for modes in runs.by_mode.values()
        for report in modes.values()
        if report.spans
    ]
    if not rows:
        return []
    columns = ("set", "mode", "evidence found", "fixed pieces", "difference", "95 %", "tokens")
    about = (
        "The share of the evidence's characters within the first 2,000 tokens of passages. Beside it stands one shot over pieces "
        "of exactly 512 tokens of the same documents.\n"
    )
    return ["## Evidence within long documents", about, table(columns, rows)]


def _speed(others: Sequence[dict[str, Any]]) -> list[str]:
    parts: list[str] = []
    for found in sorted((one for one in others if "chunks" in one), key=lambda one: one["chunks"]):
        beside = "÷: beside raw Chroma, k = 50, as many at once."
        parts.append(f"## Time of a search, {found['chunks']:,} chunks\n\n{found['machine']}. {beside} {HASHED}\n")
        rows = []
        for what, group in groupby(sorted(found["rows"], key=_place_in(found)), key=lambda row: row["what"]):
            cells = [f"{row['p50']:.1f} / {row['p95']:.1f} (÷ {row['ratio']:.1f})" for row in group]
            rows.append((what, *cells))
        counts = sorted({row["at_once"] for row in found["rows"]})
        parts.append(table(("p50 / p95 ms", *(f"{count} at once" for count in counts)), rows))
    for found in (one for one in others if "documents" in one):
        parts.append(f"## Ingest, {found['documents']:,} documents, {found['embedder']}\n\n{found['machine']}.\n")
        alone, first = found["rows"][0], found["rows"][1]
        rows = [
            (
                row["what"],
                f"{row['seconds']:.1f}",
                f"{row['cpu_seconds']:.1f}",
                f"{row['seconds'] / alone['seconds']:.2f}",
                f"{row['cpu_seconds'] / alone['cpu_seconds']:.2f}",
                f"{100 * row['seconds'] / first['seconds']:.1f} %",
            )
            for row in found["rows"]
        ]
        columns = ("what", "seconds", "CPU seconds", "time ÷ embedding", "CPU ÷ embedding", "time ÷ first ingest")
        parts.append(table(columns, rows))
    return parts


def _place_in(found: dict[str, Any]) -> Any:
    order = list(dict.fromkeys(row["what"] for row in found["rows"]))
    return lambda row: (order.index(row["what"]), row["at_once"])
