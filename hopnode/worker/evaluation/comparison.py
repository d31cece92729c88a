"""Two reports over the same questions, held against each other question by question."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pydantic import JsonValue

from hopnode.worker.errors import InvalidRequest
from hopnode.worker.evaluation.measures import NAMES, Values, figures_of, intervals, table_of
from hopnode.worker.evaluation.report import QuestionRecord, Report


@dataclass(frozen=True)
class Difference:
    """One figure before and after over the questions that both have. `low` to `high` is the 95 % bootstrap interval of the
    mean difference, paired by question; `wins` counts the questions that got better."""

    name: str
    before: float
    after: float
    difference: float
    low: float
    high: float
    wins: int
    losses: int

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Comparison:
    """All figures, and the time of one search, over the `questions` that both reports have."""

    questions: int
    only_before: int
    only_after: int
    differences: tuple[Difference, ...]
    p50_before: float
    p50_after: float


def compare(before: Report, after: Report) -> Comparison:
    """`InvalidRequest` when the reports have no question in common, or do not agree on what is right for one."""
    old, new = ({one.id: one for one in report.per_question} for report in (before, after))
    shared = [one for one in old if one in new]
    if not shared:
        raise InvalidRequest(
            f"The reports have no question in common: one is about {before.dataset}, the other about {after.dataset}."
        )
    for one in shared:
        if old[one].graded() != new[one].graded():
            raise InvalidRequest(f"The reports do not agree on the gold of the question {one!r}.")
    first, second = (_table([records[one] for one in shared]) for records in (old, new))
    changed = second - first
    between = intervals(changed, after.seed)
    differences = tuple(
        Difference(
            name=name,
            before=float(first[:, column].mean()),
            after=float(second[:, column].mean()),
            difference=float(changed[:, column].mean()),
            low=between[column].low,
            high=between[column].high,
            wins=int((changed[:, column] > 0).sum()),
            losses=int((changed[:, column] < 0).sum()),
        )
        for column, name in enumerate(NAMES)
    )
    missing = len(old) - len(shared), len(new) - len(shared)
    return Comparison(len(shared), *missing, differences, before.latency_ms.p50, after.latency_ms.p50)


def comparison_data(compared: Comparison) -> dict[str, JsonValue]:
    """The comparison as JSON: its fields by their names, and of each difference whether it is `clear`."""
    differences: list[JsonValue] = [asdict(one) | {"clear": one.is_clear} for one in compared.differences]
    return asdict(compared) | {"differences": differences}


def _table(records: Sequence[QuestionRecord]) -> Values:
    return table_of([figures_of(one.ranks, one.graded()) for one in records])
