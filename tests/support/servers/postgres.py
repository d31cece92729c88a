"""A real PostgreSQL server of our own in a temporary folder: started on a free port, emptied and ended with the tests."""

import contextlib
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

from hopnode.worker.store.database import Database
from hopnode.worker.store.tables import metadata

_HOW_TO_INSTALL = (
    "No PostgreSQL server programs (initdb, postgres) were found. Install them with `apt-get install postgresql`, "
    "or run `make test`, which installs what the tests need."
)
_START_SECONDS = 30.0
_SETTINGS = (
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "wal_level=minimal",
    "max_wal_senders=0",
    "shared_buffers=32MB",
    "max_connections=200",
    "autovacuum=off",
    "listen_addresses=127.0.0.1",
)
_TABLES = [table.name for table in reversed(metadata.sorted_tables)]  # children before their parents


class PostgresServer:
    """Runs from construction to `stop()`; hands out databases that hold nothing, each to one test at a time."""

    def __init__(self) -> None:
        programs = _find_programs()
        self._folder = Path(tempfile.mkdtemp(prefix="hopnode-pg-"))
        self._port = free_port()
        self._numbers = itertools.count(1)
        self._emptied: list[str] = []
        self._schema: list[tuple[str, ...]] = []
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._start(programs)
            self._make_template()
        except BaseException:
            self.stop()
            raise

    def new_database(self) -> str:
        """SQLAlchemy URL of a migrated database without any row: an emptied one, or else a copy of the template."""
        return self._url(self._emptied.pop() if self._emptied else self._create("migrated"))

    def new_empty_database(self) -> str:
        """SQLAlchemy URL of a database without any table."""
        return self._url(self._create("template0"))

    def give_back(self, url: str) -> None:
        """Cuts off whoever is still connected and empties the database for the next test (ten times faster than a copy).

        One whose schema the test changed, or that was never migrated, is dropped.
        """
        name = url.rsplit("/", 1)[1]
        with self._connect(name) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
                [name],
            )
            reusable = _schema_of(connection) == self._schema
            if reusable:
                connection.execute(";".join(f'DELETE FROM "{table}"' for table in _TABLES).encode())
        if reusable:
            self._emptied.append(name)
        else:
            self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    def stop(self) -> None:
        """Ends the server by its process id and removes its folder."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT)  # PostgreSQL's immediate shutdown: nothing is worth saving
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(20)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, programs: Path) -> None:
        user = _unprivileged_user()
        data = self._folder / "data"
        if user is not None:
            os.chown(self._folder, user.pw_uid, user.pw_gid)
        identity = {} if user is None else {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
        made = subprocess.run(
            [programs / "initdb", "-D", data, "-U", "hopnode", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C"],
            capture_output=True, text=True, cwd=self._folder, env=environment, **identity,
        )  # fmt: skip
        if made.returncode != 0:
            raise RuntimeError(f"initdb failed: {made.stderr}")
        settings = [part for setting in _SETTINGS for part in ("-c", setting)]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [*_ends_with_us(), programs / "postgres", "-D", data, "-k", self._folder, "-p", str(self._port), *settings],
                stdout=log, stderr=log, cwd=self._folder, env=environment, **identity,
            )  # fmt: skip
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        until = time.monotonic() + _START_SECONDS
        while True:
            try:
                self._execute("SELECT 1")
                return
            except psycopg.OperationalError:
                if self._process is None or self._process.poll() is not None or time.monotonic() > until:
                    log = (self._folder / "log").read_text(errors="replace")
                    raise RuntimeError(f"PostgreSQL did not start:\n{log}") from None
                time.sleep(0.05)

    def _make_template(self) -> None:
        self._create("template0", name="migrated")
        with contextlib.closing(Database(self._url("migrated"))) as database:
            database.migrate()
        with self._connect("migrated") as connection:
            self._schema = _schema_of(connection)

    def _create(self, template: str, name: str | None = None) -> str:
        name = name or f"test_{next(self._numbers)}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def _execute(self, statement: str) -> None:
        with self._connect("postgres") as connection:
            connection.execute(statement.encode())

    def _connect(self, name: str) -> psycopg.Connection:
        return psycopg.connect(host=str(self._folder), port=self._port, user="hopnode", dbname=name, autocommit=True)

    def _url(self, name: str) -> str:
        return f"postgresql+psycopg://hopnode@127.0.0.1:{self._port}/{name}"


def _schema_of(connection: psycopg.Connection) -> list[tuple[str, ...]]:
    """All columns and the migration; equal lists mean an untouched schema."""
    statement = """SELECT table_name, column_name, data_type, character_maximum_length::text
                   FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2"""
    columns = connection.execute(statement).fetchall()
    if ("alembic_version",) not in {column[:1] for column in columns}:
        return columns
    return [*columns, *connection.execute("SELECT version_num FROM alembic_version").fetchall()]


def _find_programs() -> Path:
    """The folder with `initdb` and `postgres`, the newest version first."""
    installed = Path("/usr/lib/postgresql").glob("*/bin")
    places = sorted(installed, key=lambda place: float(place.parent.name), reverse=True)
    if pg_config := shutil.which("pg_config"):
        places.append(Path(subprocess.check_output([pg_config, "--bindir"], text=True).strip()))
    if initdb := shutil.which("initdb"):
        places.append(Path(initdb).resolve().parent)
    for place in places:
        if (place / "initdb").exists() and (place / "postgres").exists():
            return place
    raise RuntimeError(_HOW_TO_INSTALL)


def _ends_with_us() -> list[str]:
    """A prefix that ends the server even if the test run is killed with no chance to clean up (Linux only)."""
    setpriv = shutil.which("setpriv")
    return [] if setpriv is None else [setpriv, "--pdeathsig", "QUIT", "--"]


def _unprivileged_user() -> pwd.struct_passwd | None:
    """PostgreSQL refuses to run as root: then as `postgres`, which its package makes, or else `nobody`."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
