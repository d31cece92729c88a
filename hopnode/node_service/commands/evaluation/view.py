"""How a report of an evaluation looks: one table of figures, what it cost, and what to be careful about.

Knows reports and rich; readable in 100 columns. Figures are shown as per cent, the files keep fractions.
"""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from hopnode.node_service.commands.terminal import display
from hopnode.worker.evaluation.comparison import Comparison
from hopnode.worker.evaluation.measures import CUTS
from hopnode.worker.evaluation.report import Figures, Report, SpanFigures

LABELS = {
    **{f"{name}@{cut}": f"{label}@{cut}" for name, label in (("recall", "R"), ("all", "All")) for cut in CUTS},
    "mrr": "MRR",
    "ndcg10": "nDCG@10",
}


def show(console: Console, report: Report) -> None:
    """The whole report."""
    titles = "titled" if report.titles else "title-blind"
    about = f"{report.questions:,} questions over {report.documents:,} documents · {titles} · {report.embedder}"
    console.print(Text.assemble((report.dataset, "bold"), f" · {about}"))
    console.print()
    console.print(display.table(_columns(report), _rows(report)))
    console.print()
    if report.hops:
        console.print(display.table(("hop", "questions#", *(f"R@{cut}#" for cut in report.recall)), _hops(report)))
        console.print()
    if report.spans:
        _show_spans(console, report.spans)
    for line in _costs(report):
        console.print(Text(line, "dim"))
    for line in _warnings(report):
        console.print(Text(line, "yellow"))


def show_comparison(console: Console, compared: Comparison, earlier: str) -> None:
    """This run beside an earlier one."""
    console.print()
    console.print(Text(f"beside {earlier}, over the {compared.questions:,} questions of both", "bold"))
    rows = [
        (
            LABELS[one.name],
            _percent(one.before),
            _percent(one.after),
            f"{100 * one.difference:+.1f}",
            f"{100 * one.low:+.1f} to {100 * one.high:+.1f}{' *' if one.is_clear else ''}",
            one.wins,
            one.losses,
        )
        for one in compared.differences
    ]
    columns = ("", "before#", "now#", "difference#", "95 % interval#", "better#", "worse#")
    console.print(display.table(columns, rows))
    console.print(
        Text(
            f"* the interval leaves out zero · p50 {compared.p50_before:,.1f} → {compared.p50_after:,.1f} ms"
            f" · only before {compared.only_before}, only now {compared.only_after} questions",
            "dim",
        )
    )


def _columns(report: Report) -> Sequence[str]:
    return ("", *(f"R@{cut}#" for cut in report.recall), *(f"All@{cut}#" for cut in ("5", "10")), "MRR#", "nDCG@10#")


def _rows(report: Report) -> Iterable[Sequence[str]]:
    yield (report.mode, *_figures(report))
    between = report.intervals
    pairs = [*between.recall.values(), between.all["5"], between.all["10"], between.mrr, between.ndcg10]
    yield ("  95 % from", *(_percent(low) for low, _ in pairs))
    yield ("  to", *(_percent(high) for _, high in pairs))
    for leg, figures in report.legs.items():
        yield (f"{leg} alone", *_figures(figures))


def _figures(figures: Figures) -> Sequence[str]:
    values = [*figures.recall.values(), figures.all["5"], figures.all["10"], figures.mrr, figures.ndcg10]
    return [_percent(value) for value in values]


def _hops(report: Report) -> Iterable[Sequence[object]]:
    for hop in report.hops:
        yield (hop.hop, hop.questions, *(_percent(value) for value in hop.recall.values()))


def _show_spans(console: Console, spans: SpanFigures) -> None:
    rows = [
        (
            name,
            _percent(one.recall),
            " to ".join(map(_percent, one.interval)),
            _percent(one.whole),
            f"{one.tokens:,.0f}",
        )
        for name, one in (("passages", spans.found), (f"fixed {spans.fixed_tokens}-token pieces", spans.fixed))
    ]
    title = f"evidence within {spans.budget_tokens:,} tokens, {spans.questions:,} questions"
    console.print(display.table((title, "characters#", "95 %#", "all of it#", "tokens#"), rows))
    low, high = spans.difference_interval
    console.print(
        Text(f"difference {100 * spans.difference:+.1f} points, 95 % {100 * low:+.1f} to {100 * high:+.1f}", "dim")
    )
    console.print()


def _costs(report: Report) -> Iterable[str]:
    latency = report.latency_ms
    yield f"one search: p50 {latency.p50:,.1f} ms, p95 {latency.p95:,.1f} ms, one at a time"
    cost = report.cost
    yield (
        f"on average: {cost['turns']:.1f} turns, {cost['tool_calls']:.1f} tool calls, "
        f"{cost['pruned_chunks']:.1f} chunks pruned, {cost['context_tokens_peak']:,.0f} tokens of context"
    )
    if used := cost["prompt_tokens"] + cost["completion_tokens"]:
        yield f"model tokens on average: {used:,.0f}, of them written {cost['completion_tokens']:,.0f}"
    if len(report.modes) > 1 or report.mode == "auto":
        yield "ran as: " + ", ".join(f"{mode} {count:,}" for mode, count in sorted(report.modes.items()))
    if report.ingest:
        yield f"ingest: {display.duration(report.ingest.seconds)}"


def _warnings(report: Report) -> Iterable[str]:
    if report.unknown_gold:
        yield f"{report.unknown_gold:,} gold entries name documents that are not there: they count as not found."
    if report.failed:
        yield "failed searches, which found nothing: " + _counted(report.failed)
    if report.degraded:
        yield "degraded searches: " + _counted(report.degraded)
    if report.ingest and report.ingest.failed:
        yield "documents that could not be stored: " + _counted(report.ingest.failed)
    if report.spans and report.spans.lost:
        yield f"{report.spans.lost:,} spans could not be placed in the stored text; they are left out."


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))


def _percent(value: float) -> str:
    return f"{100 * value:.1f}"
