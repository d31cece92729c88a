"""Writes the parts of `docs/architecture.md` that the code tells by itself: the tree of modules, and the floors.

    PYTHONPATH=tests python -m support.house.architecture_page

A line of the tree is the first sentence of a module. A floor is a layer of an import contract.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.house.tree import ROOT, contracts, opening, rooms

PAGE = ROOT / "docs" / "architecture.md"
REWRITE = "run `make architecture`, or `PYTHONPATH=tests .venv/bin/python -m support.house.architecture_page`"


def tree() -> str:
    """Every room with what it is, and every module in it with its line."""
    parts: list[str] = []
    for room, inside in sorted(rooms("hopnode").items()):
        lines = [f"- `{path.name}`: {opening(path)}" for path in inside]
        parts.append("\n".join([f"**`{room}/`** {opening(room / '__init__.py')}", *([""] if lines else []), *lines]))
    return "\n\n".join(parts)


def floors() -> str:
    """The layers of every container from top to bottom, and the other contracts by name."""
    parts = [_floors_of(contract) for contract in contracts() if contract["type"] == "layers"]
    others = [f"- {contract['name']}." for contract in contracts() if contract["type"] != "layers"]
    return "\n\n".join([*parts, "Besides the floors:", "\n".join(others)])


def _floors_of(contract: Mapping[str, Any]) -> str:
    layers = [f"{layer}" for layer in contract["layers"]]
    within = ", ".join(f"`{container}`" for container in contract["containers"])
    return "\n".join([f"{contract['name']} ({within}):", "", "```", *layers, "```"])


def rewritten(page: str) -> str:
    """The page with both parts as they are now."""
    for name, text in {"tree": tree(), "floors": floors()}.items():
        start, end = f"<!-- {name}: written by `make architecture` -->", f"<!-- end of {name} -->"
        between = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
        if len(between.findall(page)) != 1:
            raise ValueError(f"The page needs the line {start} and, below it, the line {end}, once each.")
        page = between.sub(lambda _, text=text, start=start, end=end: f"{start}\n\n{text}\n\n{end}", page)
    return page


def main(page: Path = PAGE) -> None:
    """Rewrites the page in place."""
    page.write_text(rewritten(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
