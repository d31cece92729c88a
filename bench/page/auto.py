"""The part of the benchmarks' page on `auto`: what the router sends to the agent, what that loses, and what it saves."""

from collections.abc import Mapping, Sequence

from page.text import Modes, between, difference, name, percent, points, table

ABOUT = """## Auto

The router against always taking the agent: how many searches it sends to the agent, and what that loses or gains in R@1 and R@5.
The time is the mean of a search as a share of the agent's. Where the router stays with one shot it returns what the links led to as
well. The two were measured one after the other, on a machine that was busy with other work. So the times are rough.
"""


def auto_section(by_mode: Mapping[tuple[str, bool], Modes]) -> list[str]:
    """The section in Markdown; nothing when `auto` was not measured beside the agent."""
    found = [modes for modes in by_mode.values() if "agent" in modes and "auto" in modes]
    columns = ("set", "to the agent", "R@1", "against the agent", "R@5", "against the agent", "95 %", "time")
    return [ABOUT, table(columns, map(_row, found))] if found else []


def _row(modes: Modes) -> Sequence[object]:
    auto = modes["auto"]
    first, fifth = (difference(modes, "agent", "auto", f"recall@{cut}") for cut in (1, 5))
    time = sum(one.ms for one in auto.per_question) / sum(one.ms for one in modes["agent"].per_question)
    return (
        name(auto),
        f"{percent(auto.modes.get('agent', 0) / auto.questions)} %",
        percent(auto.recall["1"]),
        points(first.difference),
        percent(auto.recall["5"]),
        points(fifth.difference),
        between(fifth),
        f"{percent(time)} %",
    )
