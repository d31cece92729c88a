"""The part of the benchmarks' page on a pool: what questions lose when other sets and unrelated text lie around their passages."""

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

from hopnode.worker.evaluation.comparison import Difference, compare
from hopnode.worker.evaluation.report import QuestionRecord, Report
from page.text import Modes, compared, name, percent, points, table

PREFIX = "pooled-"
"""How the name of a pool begins; its questions and documents are named `set/id`."""
ABOUT = """### In a pool

R@5 of the same questions, alone and in a pool. Alone they are asked over the passages of their own set. The pool has those of all
these sets, and {unrelated} unrelated passages of real text between them: manual pages and documentation, without titles.
"""


def pool_rows(
    by_mode: Mapping[tuple[str, bool], Modes], figure: str = "recall@5"
) -> Iterator[tuple[Report, Difference]]:
    """Every set and mode that was measured alone and in a pool: the report alone, and the difference that the pool makes."""
    for (pool_name, titles), pool in by_mode.items():
        if not pool_name.startswith(PREFIX):
            continue
        parts = dict.fromkeys(one.id.partition("/")[0] for report in pool.values() for one in report.per_question)
        for part in parts:
            for mode, alone in by_mode.get((part, titles), {}).items():
                if mode in pool:
                    differences = compare(alone, part_of(pool[mode], part)).differences
                    yield alone, next(one for one in differences if one.name == figure)


def part_of(pool: Report, part: str) -> Report:
    """The questions of one set in a pool, under the names that they have in the set."""
    before = f"{part}/"
    records = [_renamed(one, before) for one in pool.per_question if one.id.startswith(before)]
    return pool.model_copy(update={"dataset": part, "per_question": records})


def _renamed(record: QuestionRecord, before: str) -> QuestionRecord:
    def plain(name: str) -> str:
        return name.removeprefix(before)

    return record.model_copy(
        update={
            "id": plain(record.id),
            "ranks": {plain(key): rank for key, rank in record.ranks.items()},
            "gains": {plain(key): gain for key, gain in record.gains.items()} if record.gains else None,
        }
    )


def pool_section(by_mode: Mapping[tuple[str, bool], Modes]) -> list[str]:
    """The section in Markdown; nothing when there is no pool."""
    rows = list(pool_rows(by_mode))
    if not rows:
        return []
    unrelated = next(key.removeprefix(PREFIX) for key, _ in by_mode if key.startswith(PREFIX))
    lines = ((name(alone), alone.mode, *compared(one)) for alone, one in rows)
    columns = ("set", "mode", "alone", "in the pool", "difference", "95 %", "better", "worse")
    return [ABOUT.format(unrelated=f"{int(unrelated):,}"), table(columns, lines), "\n".join(_all_together(rows))]


def _all_together(rows: Sequence[tuple[Report, Difference]]) -> Iterator[str]:
    """One line for each layout and mode over the questions of all sets."""
    for titles, mode in dict.fromkeys((alone.titles, alone.mode) for alone, _ in rows):
        chosen = [(alone, one) for alone, one in rows if (alone.titles, alone.mode) == (titles, mode)]
        asked = sum(alone.questions for alone, _ in chosen)
        before, after = (
            sum(alone.questions * figure(one) for alone, one in chosen) / asked
            for figure in (attrgetter("before"), attrgetter("after"))
        )
        layout = "titled" if titles else "title-blind"
        told = f"{percent(before)} alone, {percent(after)} in the pool: {points(after - before)} points."
        yield f"* All {asked:,} questions, {layout}, `{mode}`: {told}"
