"""The shape of the house: lengths of functions and files, names, packages, and an import law that really bites."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import quantiles

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "hopnode").rglob("*.py"))
FORBIDDEN_NAMES = {"utils", "helpers", "common", "manager", "models", "misc"}


def function_lengths() -> dict[str, int]:
    lengths: dict[str, int] = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
                lines = (node.end_lineno or node.lineno) - body[0].lineno + 2
                lengths[f"{path.relative_to(ROOT)}:{node.name}"] = lines
    return lengths


def test_functions_are_short() -> None:
    lengths = function_lengths()
    p90 = quantiles(lengths.values(), n=10)[-1]
    longest = sorted(lengths.items(), key=lambda pair: -pair[1])[:5]
    print(f"\n{len(lengths)} functions, p90 {p90:.0f} lines, longest {longest}")
    assert p90 <= 30
    assert longest[0][1] <= 50, longest[0]


def test_files_are_short() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in MODULES}
    longest = sorted(lengths.items(), key=lambda pair: -pair[1])[:5]
    print(f"\n{len(lengths)} files, longest {longest}")
    assert longest[0][1] <= 350, longest[0]


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert not [path for path in MODULES if path.stem in FORBIDDEN_NAMES]


def test_every_module_opens_by_saying_what_it_is_for() -> None:
    silent = [
        str(path) for path in MODULES if path.read_text().strip() and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent


def law_in(folder: Path) -> subprocess.CompletedProcess[str]:
    script = Path(sys.executable).parent / "lint-imports"
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [script, "--no-cache"], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.fixture
def copy_of_the_house(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "hopnode", tmp_path / "hopnode", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


PLANTED = {
    "worker looks up at the face": ("hopnode/worker/tokens.py", "import hopnode.node_service.settings"),
    "connectors look up at the worker": ("hopnode/connectors/base.py", "import hopnode.worker.errors"),
    "the harness talks to the network": ("hopnode/worker/harness/agent.py", "import httpx"),
    "the worker imports a web framework": ("hopnode/worker/logs.py", "import fastapi"),
    "celery strays": ("hopnode/worker/runtime.py", "import celery"),
    "chroma strays": ("hopnode/worker/corpus/finding/fusion.py", "import chromadb"),
    "SQL strays": ("hopnode/worker/searches/job.py", "import sqlalchemy"),
    "ground looks up at the stories": ("hopnode/worker/errors.py", "import hopnode.worker.runtime"),
}


@pytest.mark.slow
def test_the_import_law_holds(copy_of_the_house: Path) -> None:
    outcome = law_in(copy_of_the_house)
    assert outcome.returncode == 0, outcome.stdout


@pytest.mark.slow
@pytest.mark.parametrize("crime", PLANTED, ids=lambda crime: crime.replace(" ", "-"))
def test_the_import_law_catches_a_planted_violation(copy_of_the_house: Path, crime: str) -> None:
    module, line = PLANTED[crime]
    path = copy_of_the_house / module
    path.write_text(f"{path.read_text()}\n{line}  # planted\n")
    outcome = law_in(copy_of_the_house)
    assert outcome.returncode == 1, outcome.stdout
    assert "BROKEN" in outcome.stdout
