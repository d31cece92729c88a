"""What the parts of the benchmarks' page share: tables, names of sets, figures as they are written, differences of two reports."""

from collections.abc import Iterable, Mapping, Sequence

from hopnode.worker.evaluation.comparison import Difference, compare
from hopnode.worker.evaluation.report import Report

Modes = Mapping[str, Report]
"""The reports of one set in one layout, by mode."""


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [columns, ["---" if column[:1].isalpha() and i < 2 else "---:" for i, column in enumerate(columns)], *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def name(report: Report) -> str:
    variant = "" if report.titles else ", title-blind"
    return f"{report.dataset}{variant} ({report.questions:,} over {report.documents:,})"


def difference(modes: Modes, first: str, second: str, figure: str) -> Difference:
    return next(one for one in compare(modes[first], modes[second]).differences if one.name == figure)


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def points(value: float) -> str:
    return f"{100 * value:+.1f}"


def between(one: Difference) -> str:
    return f"{points(one.low)} to {points(one.high)}"


def compared(one: Difference) -> tuple[object, ...]:
    """The cells that tell of a paired comparison."""
    return percent(one.before), percent(one.after), points(one.difference), between(one), one.wins, one.losses
