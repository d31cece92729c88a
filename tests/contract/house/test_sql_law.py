"""SQL is spoken in two rooms only. Read from the syntax tree, since a connection comes under any name and from anywhere."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROOMS = ("hopnode.worker.store", "hopnode.worker.corpus.sqlite")
EXCEPTIONS = {
    "hopnode/worker/corpus/vectors/chroma_files.py": "asks Chroma's own catalogue which of its folders are whole or unused",
}
DRIVERS = {"sqlite3", "_sqlite3", "sqlalchemy", "alembic", "psycopg", "psycopg2", "aiosqlite", "apsw"}
ASKING = {"execute", "executemany", "executescript"}
KEPT_IN_THE_ROOM = {"Connection", "Row", "sqlite3", "*"}
STATEMENT = re.compile(
    r"\bSELECT\b.+\bFROM\b|\bINSERT\b.+\bINTO\b|\bUPDATE\b.+\bSET\b|\bDELETE\s+FROM\b|\b(CREATE|ALTER|DROP)\s+(\w+\s+)?TABLE\b"
    r"|\bPRAGMA\s+\w|\bBEGIN\s+IMMEDIATE\b",
    re.DOTALL,
)


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def in_a_room(module: str) -> bool:
    return any(module == room or module.startswith(f"{room}.") for room in ROOMS)


def crimes_in(source: str) -> list[str]:
    """What a module outside of the rooms must not do, with the lines where it does."""
    tree = ast.parse(source)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    return [
        f"line {getattr(node, 'lineno', 0)}: {crime}"
        for node in ast.walk(tree)
        if id(node) not in docstrings
        for crime in crimes_of(node)
    ]


def crimes_of(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (f"imports {one.name}" for one in node.names if one.name.split(".")[0] in DRIVERS)
    elif isinstance(node, ast.ImportFrom):
        module, names = node.module or "", {one.name for one in node.names}
        if module.split(".")[0] in DRIVERS:
            yield f"imports from {module}"
        if in_a_room(module) or node.level:
            yield from (f"takes {name} out of {module}" for name in sorted(names & KEPT_IN_THE_ROOM))
    elif isinstance(node, ast.Attribute) and node.attr in ASKING | {"sqlite3"}:
        yield f"uses .{node.attr}"
    elif isinstance(node, ast.Attribute) and node.attr == "Connection" and "text_store" in ast.unparse(node.value):
        yield "takes Connection out of text_store"
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        if node.value in ASKING | DRIVERS:
            yield f"names {node.value!r}, to be looked up when it runs"
        if STATEMENT.search(node.value):
            yield f"holds SQL: {node.value[:60]!r}"
    elif isinstance(node, ast.JoinedStr):
        written = "".join(part.value if isinstance(part, ast.Constant) else "x" for part in node.values)  # type: ignore[misc]
        if STATEMENT.search(written):
            yield f"holds SQL: {written[:60]!r}"


def test_sql_is_spoken_in_the_store_and_in_the_corpus_own_room_only() -> None:
    found: dict[str, list[str]] = {}
    asked = 0
    for path in sorted((ROOT / "hopnode").rglob("*.py")):
        crimes = crimes_in(path.read_text())
        if in_a_room(module_name(path)):
            asked += len(crimes)
        elif crimes:
            found[str(path.relative_to(ROOT))] = crimes
    assert {path: crimes for path, crimes in found.items() if path not in EXCEPTIONS} == {}
    assert set(found) == set(EXCEPTIONS), "an exception that nobody needs any more must go"
    assert asked > 100, "the rooms speak SQL: if none is seen in them, this test sees nothing"


PLANTED = {
    "a driver": "import sqlite3",
    "a driver under another name": "import sqlite3 as files",
    "a name out of a driver": "from sqlite3 import connect as opened",
    "another driver": "from sqlalchemy import text",
    "a driver by a string": "from importlib import import_module\nlite = import_module('sqlite3')",
    "a driver by a dunder": "lite = __import__('sqlite3')",
    "the connection by its alias": "from hopnode.worker.corpus.sqlite.text_store import Connection",
    "the alias under another name": "from hopnode.worker.corpus.sqlite.text_store import Connection as State",
    "the driver out of the room": "from hopnode.worker.corpus.sqlite.text_store import sqlite3 as lite",
    "everything out of the room": "from hopnode.worker.corpus.sqlite.text_store import *",
    "the alias as an attribute": "from hopnode.worker.corpus.sqlite import text_store\nState = text_store.Connection",
    "the driver as an attribute": "from hopnode.worker.corpus.sqlite import text_store\nlite = text_store.sqlite3",
    "the alias by a relative import": "from ..sqlite.text_store import Connection",
    "a question": "def rows(snapshot):\n    return snapshot.execute(STATEMENT).fetchall()",
    "many questions": "def put(snapshot, rows):\n    snapshot.executemany(STATEMENT, rows)",
    "a script": "def make(snapshot):\n    snapshot.executescript(SCRIPT)",
    "a question that is put later": "def ask(snapshot):\n    return snapshot.execute",
    "a question by a string": "def ask(snapshot):\n    return getattr(snapshot, 'execute')(STATEMENT)",
    "a statement": "STATEMENT = 'SELECT row FROM chunk'",
    "a statement in pieces": "STATEMENT = 'SELECT row ' \\\n    'FROM chunk'",
    "a statement with a place for a name": "def of(number):\n    return f'SELECT rowid FROM fts_{number}'",
    "a change": "STATEMENT = 'UPDATE collection SET chunks = 0'",
    "a setting": "STATEMENT = 'PRAGMA user_version'",
}


@pytest.mark.parametrize("crime", PLANTED, ids=lambda crime: crime.replace(" ", "-"))
def test_sql_that_is_planted_in_a_search_is_caught(crime: str) -> None:
    search = (ROOT / "hopnode/worker/corpus/finding/search.py").read_text()
    assert crimes_in(search) == []
    assert crimes_in(f"{search}\n\n{PLANTED[crime]}\n")


@pytest.mark.parametrize(
    "innocent",
    [
        "from hopnode.worker.corpus.sqlite.text_store import Snapshot, TextStore",
        "from hopnode.worker.corpus.sqlite.reading import rows_of_collection",
        "with store.read() as snapshot:\n    rows = rows_of_collection(snapshot, 1)",
        '"""Rows that one would SELECT FROM a table."""',
        "MESSAGE = 'Select a collection from the list, or update the settings.'",
    ],
)
def test_a_snapshot_may_be_handed_on_and_spoken_about(innocent: str) -> None:
    assert crimes_in(innocent) == []
