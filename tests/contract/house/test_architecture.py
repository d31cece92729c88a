"""The page of the architecture: its tree, floors and walks are those of the code, and rooms keep to their size."""

import ast
import re
from pathlib import Path

import pytest
from support.house.architecture_page import PAGE, REWRITE, rewritten
from support.house.tree import MOST_MODULES, ROOT, functions, modules, opening, rooms, tree_of

TEXT = PAGE.read_text(encoding="utf-8")
STEPS = sorted(set(re.findall(r"`(\w[\w/]*/\w+\.py):([\w.]+)`", TEXT)))


def listed() -> list[str]:
    """The modules that the page has a line for, with more than its name on it."""
    found: list[str] = []
    room = ""
    for line in TEXT.partition("## The tree")[2].splitlines():
        if heading := re.match(r"\*\*`([\w/]+)/`\*\* \S", line):
            room = heading[1]
        elif entry := re.match(r"- `(\w+\.py)`: \S", line):
            found.append(f"{room}/{entry[1]}")
    return found


def test_the_page_has_every_module_once_with_a_line_and_none_that_is_gone() -> None:
    assert sorted(listed()) == sorted(map(str, modules("hopnode"))), REWRITE


def test_the_tree_and_the_floors_on_the_page_are_those_of_the_code() -> None:
    assert rewritten(TEXT) == TEXT, f"docs/architecture.md is behind the code: {REWRITE}"


def test_a_page_that_is_behind_the_code_is_noticed_and_mended() -> None:
    stale = TEXT.replace("- `agent.py`:", "- `gone.py`:", 1).replace("worker\nconnectors\n", "connectors\nworker\n", 1)
    assert stale.count("gone.py") == 1 and "connectors\nworker\n" in stale
    assert rewritten(stale) == rewritten(TEXT)


def test_every_room_and_module_opens_by_saying_what_it_is_for() -> None:
    silent = [room for room in rooms("hopnode") if not opening(room / "__init__.py")]
    assert silent + [module for module in modules("hopnode") if not opening(module)] == []


@pytest.mark.parametrize("walk", ["A search", "An upload", "A sync", "An evaluation"])
def test_each_walk_is_a_chain_of_functions(walk: str) -> None:
    text = TEXT.partition(f"### {walk}\n")[2].partition("\n#")[0]
    assert len(re.findall(r"`[\w/]+\.py:[\w.]+`", text)) >= 6


@pytest.mark.parametrize(("file", "name"), STEPS, ids=lambda part: part.rpartition("/")[2])
def test_every_step_of_a_walk_is_there(file: str, name: str) -> None:
    path = ROOT / "hopnode" / file
    assert path.exists(), f"docs/architecture.md walks through {file}, which is gone: name the file that does this now"
    tree = tree_of(path.relative_to(ROOT))
    known = {name for name, _ in functions(tree)} | {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    assert name in known, f"docs/architecture.md walks through {file}:{name}, which is gone: name what does this now"


def test_a_room_holds_twelve_modules_at_most_unless_the_page_gives_a_reason() -> None:
    large = {
        str(room): len(inside)
        for folder in ("hopnode", "tests", "bench")
        for room, inside in rooms(folder).items()
        if len(inside) > MOST_MODULES
    }
    excused = dict(re.findall(r"^\| `([\w/]+)` \| (.+?) \|$", TEXT.partition("\n## What may never")[0], re.MULTILINE))
    assert {room: count for room, count in large.items() if not excused.get(room)} == {}
    assert set(excused) <= set(large), "an exception that no room needs any more"


def house_by_name() -> dict[str, Path]:
    """Every package and module of the house by its dotted name."""
    files = [*modules("hopnode"), *(room / "__init__.py" for room in rooms("hopnode"))]
    return {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in files}


def names_in(text: str) -> set[str]:
    """What a text takes from the house by its dotted name, in programs that stand in strings as well."""
    imported = re.findall(r"^\s*from (hopnode[\w.]*) import (\w+)", text, re.MULTILINE)
    dotted = re.findall(r"\bhopnode\.(?:worker|node_service|connectors)(?:\.[a-zA-Z]\w*)*", text)
    return {*dotted, *(f"{module}.{name}" for module, name in imported)}


def is_there(name: str, known: dict[str, Path]) -> bool:
    module, _, last = name.rpartition(".")
    if name in known:
        return True
    return module in known and re.search(rf"\b{last}\b", (ROOT / known[module]).read_text(encoding="utf-8")) is not None


@pytest.mark.parametrize("folder", ["tests", "bench", "deploy", "docs", ".ci"])
def test_what_tests_and_pages_name_in_the_house_is_there(folder: str) -> None:
    known, unknown = house_by_name(), []
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix in {".py", ".md", ".sh", ".yml", ".yaml", ".service", ""} and path.is_file():
            names = names_in(path.read_text(encoding="utf-8"))
            unknown += [(str(path.relative_to(ROOT)), name) for name in sorted(names) if not is_there(name, known)]
    assert unknown == []
