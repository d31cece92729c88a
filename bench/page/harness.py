"""The part of the benchmarks' page on what a search with a model takes beside the model; written from `harness_overhead.py`."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

Table = Callable[[Sequence[str], Iterator[Sequence[object]]], str]

ABOUT = """## Beside the model, {chunks:,} chunks

{machine}. Searches go through the job queue of an embedded node; model and reranker are scripted, behind an HTTP server on
loopback, and a turn's time is what that server sees: from its answer to the next request. Shares are of that time; what ran side by
side counts once, and the rest is rendering, HTTP and waiting for threads. Text and vectors as above.
"""
COUNTING = (
    "Counting goes on from turn to turn. In the last one {lines}. In token ids what is new is counted when it comes, again when "
    "its turn is complete, and then encoded once. No profile goes back to earlier turns, unless one was pruned."
)
AT_ONCE = """With a model that takes {seconds:g} s for each of {replies} replies, and the defaults `HOPNODE_AGENT_SLOTS` {slots} and
`HOPNODE_WORKSPACE_JOB_LIMIT` {limit}:
"""


def harness_section(others: Sequence[dict[str, Any]], table: Table) -> list[str]:
    """The sections in Markdown, one for each size that was measured."""
    found = sorted(
        (one for one in others if "chunks_below_harness" in one), key=lambda one: one["chunks_below_harness"]
    )
    return [part for one in found for part in _parts(one, table)]


def _parts(found: dict[str, Any], table: Table) -> list[str]:
    columns = (
        "profile",
        "turn, p50 / p95 ms",
        "search",
        "rerank",
        "counting",
        "storing",
        "to the first turn",
        "to the end",
    )
    sums = found["at_once"]
    lines = ". ".join(
        f"`{row['profile']}` tokenised {row['last_turn']['tokenised']:,} characters; {row['last_turn']['new']:,} were new "
        f"and {row['last_turn']['sent']:,} were sent"
        for row in found["rows"]
    )
    return [
        ABOUT.format(chunks=found["chunks_below_harness"], machine=found["machine"]),
        table(columns, (_row(row) for row in found["rows"])),
        COUNTING.format(lines=lines) + "\n",
        AT_ONCE.format(
            seconds=sums["model_seconds"],
            replies=sums["replies"],
            slots=sums["agent_slots"],
            limit=sums["workspace_job_limit"],
        ),
        table(
            ("searches at once", "seconds until all have ended", "times one", "seconds of CPU"), map(_sum, sums["rows"])
        ),
    ]


def _row(row: dict[str, Any]) -> Sequence[object]:
    shares = (f"{100 * row['shares'][name]:.0f} %" for name in ("search", "rerank", "counting", "storing"))
    edges = (f"{found['p50']:.0f} ms" for found in row["edges"].values())
    return (row["profile"], f"{row['p50']:.1f} / {row['p95']:.1f}", *shares, *edges)


def _sum(row: dict[str, Any]) -> Sequence[object]:
    return (row["at_once"], f"{row['seconds']:.2f}", f"{row['ratio']:.2f}", f"{row['cpu_seconds']:.1f}")
