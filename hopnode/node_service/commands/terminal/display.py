"""How results look on a terminal and in a pipe: consoles, JSON, tables and cited passages. Asks nobody for anything."""

import json
import shlex
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

PIPE_WIDTH = 100
EXCERPT_CHARACTERS = 320
_CONTROLS = {code: "�" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\t\n"}


def output() -> Console:
    """The console for results (stdout); 100 columns wide where there is no terminal and COLUMNS is not set."""
    return _console(stderr=False)


def notices() -> Console:
    """The console for progress and remarks (stderr)."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    width = shutil.get_terminal_size((PIPE_WIDTH, 40)).columns
    return Console(stderr=stderr, width=width, highlight=False, emoji=False)


def program() -> str:
    """How this command line is called from here, for printed commands that can be copied: by its name where that finds it."""
    if shutil.which("hopnode"):
        return "hopnode"
    script = Path(sys.executable).parent / "hopnode"
    here = Path.cwd()
    return shlex.quote(str(script.relative_to(here) if script.is_relative_to(here) else script))


def print_json(value: Any) -> None:
    """One JSON value on stdout, for scripts: there at once, also in a pipe from a command that goes on."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A plain table; columns whose name ends in `#` hold numbers and lose that sign."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_header=any(columns))
    for name in columns:
        grid.add_column(name.rstrip("#"), justify="right" if name.endswith("#") else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text("" if cell is None else plain(str(cell))) for cell in row))
    return grid


def plain(text: str) -> str:
    """Text from outside without control characters, which could move the cursor or repaint the terminal."""
    return text.translate(_CONTROLS)


def citation(passage: dict[str, Any]) -> str:
    """`title [start:end]`, with the page where there is one; offsets count characters of the document's text."""
    page = f" p. {passage['page']}" if passage.get("page") is not None else ""
    return f"{plain(passage['title'] or passage['document_id'])} [{passage['start']}:{passage['end']}]{page}"


def passage(console: Console, found: dict[str, Any]) -> None:
    """One passage: rank, citation and score, where it comes from, an excerpt, and why it is here."""
    head = Text.assemble(
        (f"{found['rank']:>2}  ", "bold"), (citation(found), "bold cyan"), (f"   score {found['score']:.3f}", "dim")
    )
    console.print(head)
    if origin := _origin(found):
        console.print(Padding(Text(origin, "dim"), (0, 0, 0, 4)))
    console.print(Padding(Text(excerpt(found["text"])), (0, 0, 0, 4)))
    if why := found.get("justification"):
        console.print(Padding(Text(plain(f"why: {why}"), "italic"), (0, 0, 0, 4)))
    console.print()


def answer(console: Console, written: dict[str, Any]) -> None:
    """An answer: its text, and under it what each number in it cites."""
    if not written["found"]:
        console.print(Text("The passages do not hold the answer.", "yellow"))
    if written["text"]:
        console.print(Text(plain(written["text"])))
    for one in written["citations"]:
        console.print(
            Text.assemble((f"  [{one['number']}] ", "bold"), (citation(one), "cyan"), ("  " + _origin(one), "dim"))
        )
    console.print()


def _origin(found: dict[str, Any]) -> str:
    return plain(found.get("url") or found.get("key") or "")


def excerpt(text: str, limit: int = EXCERPT_CHARACTERS) -> str:
    """The beginning of `text` on one line, cut at a word."""
    line = plain(" ".join(text.split()))
    return line if len(line) <= limit else line[:limit].rsplit(" ", 1)[0] + " …"


def gauge(used: int, budget: int, width: int = 20) -> Text:
    """A bar for tokens: `used / budget`, full at the budget."""
    filled = min(width, round(width * used / budget)) if budget else 0
    colour = "green" if filled < width // 2 else "yellow" if filled < width * 3 // 4 else "red"
    return Text.assemble(("█" * filled, colour), ("░" * (width - filled), "dim"), f" {used:,} / {budget:,} tokens")


def duration(seconds: float) -> str:
    """Seconds for people."""
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60)} s"
