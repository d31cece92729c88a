"""The shape of the house: lengths of functions and files, names, tests that can fail, and an import law that really bites."""

import ast
import re
import shutil
import subprocess
import sys
from collections import Counter
from os import environ
from pathlib import Path
from statistics import quantiles

import pytest
from support.house.assertions import Expectations, hollow
from support.house.tree import ROOT, contracts, functions, length, modules, rooms, tree_of

FORBIDDEN_NAMES = {"utils", "helpers", "common", "manager", "models", "misc"}


def lines_of(path: Path) -> int:
    return len((ROOT / path).read_text(encoding="utf-8").splitlines())


# --- lengths and names -----------------------------------------------------------------------------------------------


def test_functions_are_short() -> None:
    lengths = {f"{path}:{name}": length(node) for path in modules("hopnode") for name, node in functions(tree_of(path))}
    p90 = quantiles(lengths.values(), n=10)[-1]
    longest = sorted(lengths.items(), key=lambda pair: -pair[1])[:5]
    print(f"\n{len(lengths)} functions, p90 {p90:.0f} lines, longest {longest}")
    assert p90 <= 30
    assert [pair for pair in longest if pair[1] > 50] == []


def test_the_length_of_a_function_counts_signature_and_decorators_and_not_its_docstring() -> None:
    written = '@one\n@two(\n    3\n)\ndef f(\n    a,\n) -> None:\n    """Told.\n\n    More.\n    """\n    return a\n'
    ((name, node),) = functions(ast.parse(written))
    assert (name, length(node)) == ("f", 8)


def test_files_are_short() -> None:
    lengths = {str(path): lines_of(path) for path in modules("hopnode")}
    longest = sorted(lengths.items(), key=lambda pair: -pair[1])[:5]
    print(f"\n{len(lengths)} files, longest {longest}")
    assert [pair for pair in longest if pair[1] > 350] == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [path for path in (*modules("hopnode"), *modules("tests")) if path.stem in FORBIDDEN_NAMES] == []


# --- tests -----------------------------------------------------------------------------------------------------------


def test_every_test_expects_something() -> None:
    expectations = Expectations({path: tree_of(path) for path in modules("tests")})
    assert len(expectations.trees) > 100
    assert expectations.without_any() == []


def test_no_assertion_holds_whatever_the_code_does() -> None:
    assert [f"{path}: {told}" for path in modules("tests") for told in hollow(tree_of(path))] == []


@pytest.mark.parametrize(
    "empty",
    [
        *("assert True", "assert 1", "assert 'text'", "assert x == x", "assert (f(), 'told')", "assert 1 == 1"),
        *("assert isinstance(x, int) or True", "assert not None", "assert f'{x}'"),
    ],
)
def test_an_assertion_that_cannot_fail_is_noticed(empty: str) -> None:
    assert list(hollow(ast.parse(empty))) == [ast.unparse(ast.parse(empty))]


@pytest.mark.parametrize("real", ["assert x", "assert f() == f()", "assert x == 1", "assert False", "assert x or y"])
def test_an_assertion_that_can_fail_is_let_be(real: str) -> None:
    assert list(hollow(ast.parse(real))) == []


def test_a_test_without_an_expectation_is_noticed_and_one_that_calls_a_function_with_one_is_not() -> None:
    written = (
        "import pytest\n"
        "def test_nothing():\n    print(1)\n"
        "def test_hollow():\n    assert True\n"
        "def test_own():\n    assert f()\n"
        "def test_error():\n    with pytest.raises(ValueError):\n        f()\n"
        "def seen():\n    assert f()\n"
        "def test_called():\n    seen()\n"
    )
    found = Expectations({Path("tests/test_made.py"): ast.parse(written)}).without_any()
    assert found == ["tests/test_made.py:test_nothing", "tests/test_made.py:test_hollow"]


def test_the_rooms_of_the_unit_tests_are_those_of_the_house() -> None:
    strange = [room for room, inside in rooms("tests/unit").items() if inside and not (ROOT / mirrored(room)).is_dir()]
    assert strange == []


def mirrored(room: Path) -> Path:
    return Path("hopnode", *room.parts[2:])


def test_how_many_lines_of_tests_there_are_for_a_line_of_source() -> None:
    source, tests = Counter[str](), Counter[str]()
    for path in modules("hopnode"):
        source["/".join(path.parent.parts[:3])] += lines_of(path)
    for path in modules("tests/unit"):
        tests["/".join(mirrored(path.parent).parts[:3])] += lines_of(path)
    for room in sorted(source):
        print(f"{room}: {tests[room]} / {source[room]} = {tests[room] / source[room]:.2f}")
    whole = sum(map(lines_of, modules("tests")))
    print(f"all tests: {whole} / {source.total()} = {whole / source.total():.2f}")
    assert whole >= LEAST_RATIO * source.total()


LEAST_RATIO = 1.0

# --- the import law --------------------------------------------------------------------------------------------------

FIRST, SECOND = (f"hopnode.connectors.{name}" for name in ("website", "s3"))
LAYERS = [contract for contract in contracts() if contract["type"] == "layers"]


@pytest.fixture
def copy_of_the_house(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "hopnode", tmp_path / "hopnode", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def law_in(folder: Path) -> subprocess.CompletedProcess[str]:
    script = Path(sys.executable).parent / "lint-imports"
    environment = {**environ, "PYTHONPATH": str(folder), "COLUMNS": "400"}
    return subprocess.run(
        [script, "--no-cache"], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=240
    )


def kept_in(folder: Path) -> set[str]:
    """The contracts that the law finds kept."""
    told = law_in(folder).stdout
    verdicts = {one["name"]: verdict_on(one["name"], told) for one in contracts()}
    assert set(verdicts.values()) <= {"KEPT", "BROKEN"}, told
    return {name for name, verdict in verdicts.items() if verdict == "KEPT"}


def verdict_on(contract: str, told: str) -> str:
    """What the law says of a contract; lines are broken wherever they are full."""
    found = re.search(rf"^{re.escape(contract)} (KEPT|BROKEN)".replace(r"\ ", r"\s+"), told, re.MULTILINE)
    return found[1] if found else "nothing"


def plant(folder: Path, module: str, line: str) -> None:
    path = folder.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    path.write_text(f"{path.read_text()}\n{line}  # planted\n")


def layer(contract: dict[str, list[str]], place: int) -> str:
    """The first module of a layer, by its full name."""
    return f"{contract['containers'][0]}.{re.split(r' *[|:] *', contract['layers'][place])[0]}"


def test_every_contract_on_layers_is_exhaustive_and_of_one_container() -> None:
    assert [one["name"] for one in LAYERS if not one.get("exhaustive") or one.get("exhaustive_ignores")] == []
    assert [one["name"] for one in LAYERS if len(one["containers"]) != 1] == []


def test_every_connector_has_its_place_among_those_that_do_not_know_one_another() -> None:
    (law,) = [one for one in LAYERS if one["containers"] == ["hopnode.connectors"]]
    (beside,) = [row.split(" | ") for row in law["layers"] if "website" in row.split(" | ")]
    packages = {path.name for path in (ROOT / "hopnode" / "connectors").iterdir() if (path / "__init__.py").exists()}
    assert set(beside) == packages, "connectors stand side by side on one floor, with `|` between them"


@pytest.mark.slow
def test_the_import_law_holds(copy_of_the_house: Path) -> None:
    outcome = law_in(copy_of_the_house)
    assert outcome.returncode == 0, outcome.stdout


@pytest.mark.slow
def test_every_contract_catches_what_breaks_it(copy_of_the_house: Path) -> None:
    """In one copy of the house each stack of floors looks up from its ground, and each forbidden package is imported. One
    route knows another. A second connector stands on the floor of the first and knows it."""
    for contract in contracts():
        if contract["type"] == "layers" and len(contract["layers"]) > 1:
            plant(copy_of_the_house, layer(contract, -1), f"import {layer(contract, 0)}")
        for source in contract.get("source_modules", []):
            for forbidden in contract["forbidden_modules"]:
                plant(copy_of_the_house, source, f"import {forbidden}")
    plant(copy_of_the_house, "hopnode.node_service.routes.searches", "import hopnode.node_service.routes.syncs")
    siblings = [one for one in LAYERS if len(one["layers"]) == 1]
    for contract in siblings:
        first, second = contract["layers"][0].split(" | ")[:2]
        plant(copy_of_the_house, f"{contract['containers'][0]}.{first}", f"import {contract['containers'][0]}.{second}")
    assert kept_in(copy_of_the_house) == set()


@pytest.mark.slow
def test_a_second_connector_may_not_know_the_first(copy_of_the_house: Path) -> None:
    connectors, project = copy_of_the_house / "hopnode" / "connectors", copy_of_the_house / "pyproject.toml"
    shutil.copytree(connectors / "website", connectors / "s3")
    for path in (connectors / "s3").glob("*.py"):
        path.write_text(path.read_text().replace(FIRST, SECOND))
    project.write_text(project.read_text().replace('\n    "website",\n', '\n    "website | s3",\n', 1))
    (law,) = [one["name"] for one in LAYERS if one["containers"] == ["hopnode.connectors"]]
    assert law in kept_in(copy_of_the_house)
    plant(copy_of_the_house, f"{SECOND}.urls", f"import {FIRST}.urls")
    assert {one["name"] for one in contracts()} - kept_in(copy_of_the_house) == {law}


@pytest.mark.slow
def test_a_module_without_a_floor_breaks_the_contract_of_its_room(copy_of_the_house: Path) -> None:
    for contract in LAYERS:
        path = copy_of_the_house.joinpath(*contract["containers"][0].split("."), "planted.py")
        path.write_text('"""Nobody gave this module a floor."""\n')
    broken = {one["name"] for one in contracts()} - kept_in(copy_of_the_house)
    assert broken == {one["name"] for one in LAYERS}
