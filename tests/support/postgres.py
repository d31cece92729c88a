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

from worker.store.database import Database

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


class PostgresServer:
    """Runs from construction to `stop()`; every `new_database()` is a fresh copy of one migrated template."""

    def __init__(self) -> None:
        programs = _find_programs()
        self._folder = Path(tempfile.mkdtemp(prefix="hopnode-pg-"))
        self._port = free_port()
        self._numbers = itertools.count(1)
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._start(programs)
            self._make_template()
        except BaseException:
            self.stop()
            raise

    def new_database(self, *, migrated: bool = True) -> str:
        """SQLAlchemy URL of a database that nobody used before."""
        name = f"test_{next(self._numbers)}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {'migrated' if migrated else 'template0'}")
        return self._url(name)

    def drop_database(self, url: str) -> None:
        """Removes a database of `new_database`, closing whatever is still connected to it."""
        self._execute(f"DROP DATABASE {url.rsplit('/', 1)[1].split('?')[0]} WITH (FORCE)")

    def stop(self) -> None:
        """Ends the server by its process id and removes its folder."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # PostgreSQL's fast shutdown
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.send_signal(signal.SIGQUIT)
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
                [programs / "postgres", "-D", data, "-k", self._folder, "-p", str(self._port), *settings],
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
        self._execute("CREATE DATABASE migrated TEMPLATE template0")
        with contextlib.closing(Database(self._url("migrated"))) as database:
            database.migrate()

    def _execute(self, statement: str) -> None:
        with psycopg.connect(
            host=str(self._folder), port=self._port, user="hopnode", dbname="postgres", autocommit=True
        ) as connection:
            connection.execute(statement.encode())

    def _url(self, name: str) -> str:
        return f"postgresql+psycopg://hopnode@127.0.0.1:{self._port}/{name}"


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
