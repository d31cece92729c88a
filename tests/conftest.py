"""Fixtures that every tier shares: a migrated database on SQLite and on a real PostgreSQL server."""

import shutil
from collections.abc import Generator
from pathlib import Path

import pytest
from support.servers.postgres import PostgresServer

from hopnode.worker.store.database import Database

ENGINES = ("sqlite", pytest.param("postgresql", marks=pytest.mark.slow))
"""`make test` runs each test of a database on both; the fast round has SQLite."""


@pytest.fixture(scope="session")
def postgres_server() -> Generator[PostgresServer]:
    """One server a test run, started when the first test asks; fails with what to install where there is none."""
    server = PostgresServer()
    yield server
    server.stop()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Generator[str]:
    """URL of a migrated PostgreSQL database of this test's own."""
    url = postgres_server.new_database()
    yield url
    postgres_server.give_back(url)


@pytest.fixture(scope="session")
def _migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "hopnode.db"
    database = Database(f"sqlite:///{path}")
    database.migrate()
    database.close()
    return path


@pytest.fixture
def sqlite_url(tmp_path: Path, _migrated_file: Path) -> str:
    """URL of a migrated SQLite file of this test's own."""
    path = tmp_path / "hopnode.db"
    shutil.copyfile(_migrated_file, path)
    return f"sqlite:///{path}"


@pytest.fixture(params=ENGINES)
def database_url(request: pytest.FixtureRequest) -> str:
    """URL of a migrated database, once on each engine; for tests that open it from several processes."""
    name = "sqlite_url" if request.param == "sqlite" else "postgres_url"
    return request.getfixturevalue(name)


@pytest.fixture(params=ENGINES)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    """URL of a database without any table, once on each engine."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'empty.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.new_empty_database()
    yield url
    server.give_back(url)


@pytest.fixture
def database(database_url: str) -> Generator[Database]:
    """A migrated database of this test's own, once on SQLite and once on PostgreSQL."""
    opened = Database(database_url)
    yield opened
    opened.close()


@pytest.fixture
def sqlite_database(sqlite_url: str) -> Generator[Database]:
    """A migrated SQLite database of this test's own."""
    opened = Database(sqlite_url)
    yield opened
    opened.close()


@pytest.fixture
def postgres_database(postgres_url: str) -> Generator[Database]:
    """A migrated PostgreSQL database of this test's own."""
    opened = Database(postgres_url)
    yield opened
    opened.close()
