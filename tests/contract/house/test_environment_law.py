"""The environment is read in the two settings files and nowhere else; every value goes from there to where it is needed.

Two things are no reading: handing the whole environment on to a child process, and setting a variable for a library that
knows no other way. The files that do so are named here.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SETTINGS = ("hopnode/node_service/settings.py", "hopnode/worker/settings.py")
HANDS_ON = {"hopnode/worker/queue/supervise.py", "hopnode/node_service/commands/model_server/vllm_process.py"}
"""Start children that need what this process was given: a worker, which reads its settings again, and vLLM."""
SETS = {
    "hopnode/worker/queue/celery_app.py": "REMAP_SIGTERM",
    "hopnode/worker/inference/harmony/rendering.py": "TIKTOKEN_ENCODINGS_BASE",
}
"""Celery and openai-harmony read these variables, and offer no argument in their place."""
DOORS = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}
MODULES = {"os", "posix", "nt"}


def trespasses(source: str, file: str) -> list[str]:
    """Every look at the environment that `file` may not take, as `line: what`."""
    if file in SETTINGS:
        return []
    tree = ast.parse(source)
    allowed = {id(node) for node in _allowed(tree, file)}
    named = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name in MODULES
    }
    found = [(node.lineno, what) for node, what in _looks(tree, named) if id(node) not in allowed]
    return [f"{line}: {what}" for line, what in sorted(found)]


def _allowed(tree: ast.AST, file: str) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if file in HANDS_ON and isinstance(node, ast.keyword) and node.arg == "env":
            yield from _handed_on(node.value)
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Subscript) and ast.unparse(target.slice) == repr(SETS.get(file)):
                yield target.value


def _handed_on(value: ast.expr) -> Iterator[ast.AST]:
    """The parts of `os.environ | {…}`, and of nothing that looks into them."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr):
        yield from _handed_on(value.left)
        yield from _handed_on(value.right)
    elif isinstance(value, ast.Attribute):
        yield value


def _looks(tree: ast.AST, modules: set[str]) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=door) if module in modules and door in DOORS:
                yield node, f"{module}.{door}"
            case ast.Attribute(attr="expandvars"):
                yield node, "expandvars"
            case ast.ImportFrom(module=module, names=names) if module in MODULES:
                yield from ((node, alias.name) for alias in names if alias.name in DOORS | {"*"})
            case ast.Call(func=ast.Name(id="getattr"), args=[ast.Name(id=module), ast.Constant(value=str(door)), *_]):
                if module in modules and door in DOORS:
                    yield node, f"getattr {door}"
            case ast.Call(keywords=keywords):
                yield from (
                    (node, "envvar=") for keyword in keywords if keyword.arg in ("envvar", "auto_envvar_prefix")
                )
            case ast.ClassDef(bases=bases):
                yield from ((node, "BaseSettings") for base in bases if ast.unparse(base).endswith("BaseSettings"))
            case _:
                pass


def test_the_environment_is_read_in_the_two_settings_files_only() -> None:
    files = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "hopnode").rglob("*.py"))
    assert len(files) > 100
    found = {file: trespasses((ROOT / file).read_text(), file) for file in files}
    assert {file: looks for file, looks in found.items() if looks} == {}


@pytest.mark.parametrize("file", sorted([*SETTINGS, *HANDS_ON, *SETS]))
def test_every_file_that_the_law_names_needs_to_be_named(file: str) -> None:
    assert trespasses((ROOT / file).read_text(), "hopnode/elsewhere.py") != []


@pytest.mark.parametrize(
    "planted",
    [
        "import os\nkey = os.environ['KEY']",
        "import os as system\nkey = system.getenv('KEY')",
        "from os import environ",
        "from os import getenv as ask",
        "from os import *",
        "import os\nkey = getattr(os, 'environ').get('KEY')",
        "import os\nos.environ['KEY'] = 'value'",
        "import os\nrun(command, env=os.environ)",
        "import os.path\nimport os\npath = os.path.expandvars('$HOME')",
        "import typer\nkey = typer.Option(envvar='KEY')",
        "class More(BaseSettings):\n    key: str",
        "def late():\n    import os\n    return os.environb",
    ],
)
def test_a_planted_look_at_the_environment_is_found(planted: str) -> None:
    assert len(trespasses(planted, "hopnode/elsewhere.py")) == 1


def test_handing_on_and_setting_give_no_leave_to_read() -> None:
    hands_on = sorted(HANDS_ON)[0]
    assert trespasses("import os\nrun(c, env=os.environ | {'A': '1'})", hands_on) == []
    assert trespasses("import os\nrun(c, env={'A': os.environ['B']})", hands_on) == ["2: os.environ"]
    assert trespasses("import os\nkey = os.environ.get('KEY')", hands_on) == ["2: os.environ"]
    file, name = next(iter(SETS.items()))
    assert trespasses(f"import os\nos.environ['{name}'] = 'x'", file) == []
    assert trespasses(f"import os\nos.environ['{name}2'] = 'x'", file) == ["2: os.environ"]
    assert trespasses(f"import os\nkey = os.environ['{name}']", file) == ["2: os.environ"]
