"""How the demo looks: two modes side by side, the agent's hops, what it pruned, its tokens, and the totals.

Knows the demo's records and rich; readable in 100 columns, with and without colour.
"""

import shlex
from collections.abc import Sequence

from rich.console import Console, Group
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from hopnode.node_service.commands.demo.records import MODES, Comparison, LoadedSample, ModeOutcome, totals
from hopnode.node_service.commands.terminal import display
from hopnode.node_service.commands.terminal.step_lines import LookupStep, count, hops, pruned
from hopnode.worker.settings import WorkerSettings

WIDEST = 120
SHOWN_PRUNED = 8
GOLD, OTHER = "✓", "·"


def opening(console: Console, loaded: int, settings: WorkerSettings) -> None:
    """What was loaded and who decides for the agent."""
    policy = f"the model {settings.chat_model}" if settings.chat_url else "the offline policy (no model)"
    console.print(f"{loaded:,} paragraphs of 2WikiMultiHopQA are loaded; {policy} drives the agent.")
    console.print(f"{GOLD} marks a gold paragraph: one of those that together answer the question.\n", style="dim")


def comparison(console: Console, one: Comparison, library: LoadedSample, number: int) -> None:
    """One question with both answers and the way of the agent."""
    width = min(console.width, WIDEST)
    console.print(Rule(Text(f"Question {number}", "bold"), align="left", characters="─"), width=width)
    console.print(Text(one.question, "bold"))
    if one.gold:
        console.print(Text("gold: " + " · ".join(library.titles[key] for key in one.gold), "dim"))
    console.print()
    columns = Table.grid(expand=True, padding=(0, 2, 0, 0))
    for _ in one.answers:
        columns.add_column(ratio=1)
    columns.add_row(*(_answer(answer, one, library) for answer in one.answers))
    console.print(columns, width=width)
    console.print()
    agent = one.answers[-1]
    console.print(Text(f"how the {agent.mode} got there ({agent.result['stop_reason']})", "bold"))
    console.print(_way(agent, one, library), width=width)
    console.print()


def closing(console: Console, comparisons: Sequence[Comparison], settings: WorkerSettings, url: str) -> None:
    """The totals, and how to go on; `url` is where a node started by hand would listen."""
    width = min(console.width, WIDEST)
    if any(one.gold for one in comparisons):
        sums = totals(comparisons)
        console.print(
            Rule(Text(f"Totals over {count(len(comparisons), 'question')}", "bold"), align="left"), width=width
        )
        rows = [
            (mode, f"{sums['found'][mode]} / {sums['gold']}", f"{sums['complete'][mode]} / {len(comparisons)}")
            for mode in MODES
        ]
        console.print(display.table(("mode", "gold found#", "questions with all gold#"), rows))
        console.print()
    console.print(Text("Keep this node running and open its API docs:", "bold"))
    program = display.program()
    command = f"  HOPNODE_DATA_DIR={shlex.quote(str(settings.root))} {program} serve"
    console.print(command, markup=False, soft_wrap=True)  # a command that is cut in two cannot be copied
    console.print(f"  {url}/docs", markup=False)
    console.print(Text("With your own text:", "bold"))
    console.print(f"  {program} add README.md docs/", markup=False, soft_wrap=True)
    console.print(f'  {program} search "…"', markup=False, soft_wrap=True)


def _answer(answer: ModeOutcome, one: Comparison, library: LoadedSample) -> Group:
    lines = [Text.assemble((answer.mode, "bold"), (f"  {display.duration(answer.finished.seconds)}", "dim"))]
    for passage in answer.result["passages"]:
        is_gold = library.key_of(passage["document_id"]) in one.gold
        line = Text(no_wrap=True, overflow="ellipsis")
        line.append(f"{GOLD if is_gold else OTHER} ", "bold green" if is_gold else "dim")
        line.append(f"{passage['rank']} {display.citation(passage)}", "green" if is_gold else "")
        lines.append(line)
    if one.gold:
        whole = len(answer.found) == len(one.gold)
        lines.append(
            Text(f"found {len(answer.found)} of {len(one.gold)} gold", "bold green" if whole else "bold yellow")
        )
    return Group(*lines)


def _way(answer: ModeOutcome, one: Comparison, library: LoadedSample) -> Table:
    """Turn, what was done, and what came of it, one row each; long cells wrap under themselves."""
    rows = Table.grid(padding=(0, 1, 0, 0))
    rows.add_column(justify="right", min_width=4)
    rows.add_column(min_width=7)
    seen = set[str]()
    for hop in hops(answer.finished.steps):
        found = [library.key_of(chunk_id.rpartition("_")[0]) for chunk_id in hop.shown]
        new = [library.titles[key] for key in dict.fromkeys(found) if key in one.gold and key not in seen]
        seen.update(found)
        rows.add_row(Text(str(hop.turn), "dim"), Text(hop.verb, "cyan"), _hop(hop, new))
    if dropped := pruned(answer.finished.steps):
        titles = list(dict.fromkeys(library.title_of(chunk_id) for chunk_id in dropped))
        more = f" and {len(titles) - SHOWN_PRUNED} more" if len(titles) > SHOWN_PRUNED else ""
        line = f"{count(len(dropped), 'passage')}: {', '.join(titles[:SHOWN_PRUNED])}{more}"
        rows.add_row("", Text("pruned", "cyan"), Text(line, "dim"))
    usage = answer.result["usage"]
    if usage.get("token_budget"):
        gauge = display.gauge(usage["context_tokens_final"], usage["token_budget"])
        rows.add_row(
            "", Text("context", "cyan"), gauge.append(f", {usage['context_tokens_peak']:,} at the peak", "dim")
        )
    for name in answer.result["degraded"]:
        rows.add_row("", Text("degraded", "yellow"), name)
    return rows


def _hop(hop: LookupStep, new_gold: Sequence[str]) -> Text:
    brought = "nothing" if hop.failed or not hop.shown else count(len(hop.shown), "passage")
    line = Text.assemble(hop.subject, (f" → {brought}", "dim"))
    if new_gold:
        line.append(f", {GOLD} {f' {GOLD} '.join(new_gold)}", "green")
    return line
