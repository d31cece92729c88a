"""The Python client as a guest of the house: it knows the HTTP contract alone, and its two faces are one."""

import ast
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PROJECT = Path(__file__).parents[3] / "plugins" / "python"
MODULES = sorted((PROJECT / "hopnode_client").rglob("*.py"))
API: dict[str, Any] = json.loads((PROJECT.parents[1] / "docs" / "openapi.json").read_text(encoding="utf-8"))
OTHERS = {"httpx", "pydantic", "hopnode_client"}
FRAMEWORKS = {"langchain.py": {"langchain_core"}, "llamaindex.py": {"llama_index"}}


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0 and node.module
            yield node.module


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PROJECT)))
def test_the_client_imports_nothing_of_the_node(module: Path) -> None:
    roots = {name.partition(".")[0] for name in imported(module)} - set(sys.stdlib_module_names)
    assert roots <= OTHERS | FRAMEWORKS.get(module.name, set())


def test_the_synchronous_client_is_what_the_asynchronous_one_says() -> None:
    script = loaded(PROJECT / "write_sync.py")
    for target, text in script.written().items():
        assert target.read_text(encoding="utf-8") == text, f"run {script.__file__}"


def test_functions_and_files_of_the_client_are_short() -> None:
    for module in MODULES:
        text = module.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 350, module
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 50, (module, node.name)


def test_every_option_of_a_search_is_an_option_of_the_client() -> None:
    text = (PROJECT / "hopnode_client" / "options.py").read_text(encoding="utf-8")
    classes = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
    for name, schema, elsewhere in (
        ("SearchOptions", "SearchCreate", {"query", "collection", "collections"}),
        ("EvaluationOptions", "EvaluationCreate", {"collection", "questions"}),
        ("CollectionChanges", "CollectionChange", set[str]()),
        ("SourceChanges", "SourceChange", set[str]()),
    ):
        fields = {str(node.target.id) for node in classes[name].body if isinstance(node, ast.AnnAssign)}  # type: ignore[union-attr]
        assert fields == set(API["components"]["schemas"][schema]["properties"]) - elsewhere, name


def test_every_field_that_the_node_answers_is_in_a_record_of_the_client() -> None:
    text = "".join((PROJECT / "hopnode_client" / f"{name}.py").read_text("utf-8") for name in ("records", "results"))
    nodes = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}

    def fields(name: str) -> set[str]:
        inherited = [fields(base.id) for base in nodes[name].bases if isinstance(base, ast.Name) and base.id in nodes]
        own = {str(part.target.id) for part in nodes[name].body if isinstance(part, ast.AnnAssign)}  # type: ignore[union-attr]
        return own.union(*inherited)

    names = {
        "WhoamiRead": "Whoami", "KeyRead": "Key", "CollectionWithStats": "Collection", "StatsRead": "CollectionStats",
        "DocumentWithText": "Document", "OutcomeRead": "Outcome", "PassageRead": "Passage", "NeighbourRead": "Neighbour",
        "CitationRead": "Citation", "AnswerRead": "Answer", "RolloutRead": "Rollout", "ResultRead": "SearchResult",
        "SearchRead": "Search", "StepRead": "Step", "TrajectoryRead": "Trajectory", "SourceRead": "Source",
        "SyncRead": "Sync", "SyncCountsRead": "SyncCounts", "EvaluationRead": "Evaluation", "ProgressRead": "Progress",
        "ErrorRead": "JobError", "Problem": "Problem",
    }  # fmt: skip
    for schema, name in names.items():
        missing = (
            set(API["components"]["schemas"][schema]["properties"]) - fields(name) - {"events_url", "trajectory_url"}
        )
        assert not missing, f"{name} lacks {missing}"
