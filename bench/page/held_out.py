"""The part of the benchmarks' page on questions that the weights have not seen; written from `train_offline.py --held-out`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from page.text import percent, points, table

ABOUT = """## Held out

The figures to quote. Each set was left out in turn: weights were fitted on the others alone, and with them its questions were
ranked as a search ranks them. One shot is the order of one query, without links. The agent's is the order of all rounds, before it
brings the passages into view. Intervals are of R@5.

```
{command}
```
"""
WEIGHTS = """`ranking.json` says of every number what it weighs, and of itself what it was fitted on. The command in its head gives
weights much like those that ship: line by line they correlate with 0.91 to 1.00. They are not the same, since those that ship were
fitted on earlier vectors and candidates. In round 2 of the file, `words` equals `order`: `words` was fitted for the
rounds whose order counts, the first and the last.
"""


def held_out_section(others: Sequence[dict[str, Any]]) -> list[str]:
    """The section in Markdown; nothing when no set was held out."""
    return [part for one in others if "held_out" in one for part in _parts(one)]


def _parts(found: dict[str, Any]) -> Iterator[str]:
    rows: list[dict[str, Any]] = found["held_out"]
    yield ABOUT.format(command=found["command"])
    columns = ("set", "mode", "questions", "R@1", "R@2", "R@5", "95 %", "R@10")
    yield table(columns, (_row(row, mode) for row in rows for mode in ("one_shot", "agent")))
    yield "\n".join(_together(rows)) + "\n"
    yield WEIGHTS


def _row(row: dict[str, Any], mode: str) -> Sequence[object]:
    figures: Mapping[str, float] = row["figures"][mode]
    name = row["set"] if row["titled"] else f"{row['set']}, title-blind"
    between = f"{percent(figures['low'])} to {percent(figures['high'])}"
    recall = {cut: percent(figures[f"recall@{cut}"]) for cut in (1, 2, 5, 10)}
    return name, mode, row["questions"], recall[1], recall[2], recall[5], between, recall[10]


def _together(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """One line for each layout over the questions of all sets."""
    for titled in dict.fromkeys(row["titled"] for row in rows):
        chosen = [row for row in rows if row["titled"] == titled]
        asked = sum(row["questions"] for row in chosen)
        one_shot, agent = (
            sum(row["questions"] * row["figures"][mode]["recall@5"] for row in chosen) / asked
            for mode in ("one_shot", "agent")
        )
        told = f"R@5 {percent(one_shot)} with one shot, {percent(agent)} with the agent: {points(agent - one_shot)} points."
        yield f"* All {asked:,} questions, {'titled' if titled else 'title-blind'}: {told}"
