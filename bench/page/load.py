"""The part of the benchmarks' page on many searches at once and on a long queue; written from `load.py`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Table = Callable[[Sequence[str], Iterator[Sequence[object]]], str]

ABOUT = """## {total} searches in one second, {mode} mode

{machine}. {node}, {store}.
The model is a script behind HTTP that takes {seconds:g} s for each of {replies} replies. One workspace asks for {many}
searches, and then another for {few}. {slots} run at once, {limit} of one workspace.
"""
QUEUE = """With {queued:,} queued jobs in place of 10, in the same database, median of each:
"""
NODES = {
    "embedded": "One process, `hopnode serve`",
    "server": "`hopnode api` and one `hopnode worker --role agent`, Redis",
}


@dataclass(frozen=True)
class Moments:
    """When a search was accepted, made its first step and ended, in seconds since the epoch."""

    accepted: float
    first_step: float
    ended: float


def moments(many: Sequence[Moments], few: Sequence[Moments], quiet: Sequence[Moments]) -> dict[str, Any]:
    """Waits, throughput, and where the few finished among the many; `quiet` are searches that came one by one."""
    begin = min(one.accepted for one in [*many, *few])
    ends = sorted(one.ended for one in many)
    last_of_few = max(one.ended for one in few)
    end = max(ends[-1], last_of_few)
    return {
        "start_alone": _waits(quiet[:1]),
        "start_few": _waits(few),
        "start_many": _waits(many),
        "seconds": end - begin,
        "per_second": (len(many) + len(few)) / (end - begin),
        "few_done_at": (last_of_few - begin) / (end - begin),
        "many_done_before_few": sum(one < last_of_few for one in ends) / len(ends),
    }


def _waits(found: Sequence[Moments]) -> dict[str, float]:
    p50, p95 = np.percentile([one.first_step - one.accepted for one in found], (50, 95)).tolist()
    return {"p50": p50, "p95": p95}


def rows_of(result: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Figure, value, and what it is beside something else of the same run."""
    found = result["burst"]
    accept, alone = found["accept"], found["accept_alone"]
    return [
        (
            "accepted in, p50 / p95 ms",
            f"{accept['p50']:.0f} / {accept['p95']:.0f}",
            f"{accept['p50'] / alone['p50']:.1f} times one that comes alone",
        ),
        (
            "accepted until the first step, p50 / p95 s",
            f"{found['start_many']['p50']:.1f} / {found['start_many']['p95']:.1f}",
            f"{found['start_many']['p95'] / found['seconds']:.2f} of the whole",
        ),
        (
            f"the same of the {found['few']}",
            f"{found['start_few']['p50']:.1f} / {found['start_few']['p95']:.1f}",
            f"{found['start_few']['p50'] / max(found['start_many']['p50'], 1e-3):.2f} of the others' median",
        ),
        (
            "searches a second",
            f"{found['per_second']:.1f}",
            f"{found['per_second'] / found['ideal_per_second']:.2f} of what the model's time allows",
        ),
        (
            f"all {found['few']} ended after",
            f"{100 * found['few_done_at']:.0f} % of the time",
            f"{100 * found['many_done_before_few']:.0f} % of the {found['many']} had ended",
        ),
        (
            "memory of all processes, MB",
            f"{found['memory_most']:.0f}",
            f"{found['memory_most'] / found['memory_idle']:.2f} times before",
        ),
    ]


def lines(result: dict[str, Any]) -> Iterator[str]:
    """What the bench prints."""
    yield f"{result['load_mode']}, {result['store']}: {result['machine']}"
    for what, value, beside in rows_of(result):
        yield f"{what:44} {value:>16}   {beside}"
    for row in result["queue"]:
        both = f"{row['short']:8.2f} ms with 10 queued, {row['long']:8.2f} ms with {result['queued']:,}"
        yield f"{row['what']:10} {both}: {row['ratio']:.2f}"


def load_section(others: Sequence[dict[str, Any]], table: Table) -> list[str]:
    """The sections in Markdown, one for each mode that was measured."""
    found = sorted((one for one in others if "load_mode" in one), key=lambda one: one["load_mode"])
    return [part for one in found for part in _parts(one, table)]


def _parts(result: dict[str, Any], table: Table) -> list[str]:
    found = result["burst"]
    about = ABOUT.format(
        total=found["many"] + found["few"],
        mode=result["load_mode"],
        machine=result["machine"],
        node=NODES[result["load_mode"]],
        store=result["store"],
        seconds=result["model_seconds"],
        replies=result["replies"],
        many=found["many"],
        few=found["few"],
        slots=found["slots"],
        limit=found["limit"],
    )
    queue = (
        (row["what"], f"{row['short']:.2f} ms", f"{row['long']:.2f} ms", f"{row['ratio']:.2f}")
        for row in result["queue"]
    )
    return [
        about,
        table(("what", "", "beside"), iter(rows_of(result))),
        QUEUE.format(queued=result["queued"]),
        table(("verb of the queue", "10 queued", f"{result['queued']:,} queued", "ratio"), queue),
    ]
