"""The modules of the house, as files and syntax trees. It imports none of them."""

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).parents[3]
MOST_MODULES = 12
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def modules(folder: str) -> list[Path]:
    """The Python files below a folder of the repository, relative to the repository, without the openings of rooms."""
    return [path for path in _files(folder) if path.name != "__init__.py"]


def rooms(folder: str) -> dict[Path, list[Path]]:
    """Every folder below `folder` that is a package or holds modules, with the modules that lie in it directly."""
    found: dict[Path, list[Path]] = {}
    for path in _files(folder):
        found.setdefault(path.parent, []).extend([path] if path.name != "__init__.py" else [])
    return found


def opening(path: Path) -> str:
    """The first sentence of what a module says about itself, on one line; empty when it says nothing."""
    told = " ".join((ast.get_docstring(tree_of(path)) or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[.!?])\s", told, maxsplit=1)[0]


def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file of the repository."""
    return ast.parse((ROOT / path).read_text(encoding="utf-8"))


def functions(tree: ast.AST, within: str = "") -> Iterator[tuple[str, Function]]:
    """Every function and method of a module by its full name (`Class.method`), also those within functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{within}{node.name}"
            if not isinstance(node, ast.ClassDef):
                yield name, node
            yield from functions(node, f"{name}.")
        else:
            yield from functions(node, within)


def length(function: Function) -> int:
    """Lines of a function from its first decorator to its end; those of its docstring do not count."""
    first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
    lines = (function.end_lineno or function.lineno) - first + 1
    told = function.body[0] if ast.get_docstring(function, clean=False) is not None else None
    return lines - ((told.end_lineno or told.lineno) - told.lineno + 1 if told else 0)


def contracts() -> Sequence[Mapping[str, Any]]:
    """The import contracts of `pyproject.toml`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return project["tool"]["importlinter"]["contracts"]


def _files(folder: str) -> list[Path]:
    return [path.relative_to(ROOT) for path in sorted((ROOT / folder).rglob("*.py"))]
