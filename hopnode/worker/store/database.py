"""The one door to the node's SQL database: connections, transactions, the clock and the schema; knows no table's meaning."""

import json
import sqlite3
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import event, exc

from hopnode.worker.errors import ConfigurationError, InvalidRequest, StoreUnavailable
from hopnode.worker.logs import get_logger

WAIT_SECONDS = 15.0
"""How long a transaction waits for its turn to write, or for a pooled connection, before `StoreUnavailable`."""

_CONNECT_SECONDS = 5
_MIGRATION_LOCK = 0x686E_6F64  # any number does, as long as every Hopnode process takes the same
_MODE = "hopnode_mode"  # execution option that tells the begin hook which transaction to open

_log = get_logger(__name__)


class Database:
    """SQLite (one file, WAL) or PostgreSQL behind one face; safe to share between threads, not to carry over a fork.

    Every transaction is short by contract: nothing slow may happen inside `write()`. Errors of driver and server leave
    as `StoreUnavailable`, a value that cannot be stored as `InvalidRequest`; a broken constraint
    (`sqlalchemy.exc.IntegrityError`) goes to the caller, who knows its meaning.
    """

    _scripts: ClassVar[str] = "hopnode.worker.store:migrations"

    def __init__(self, url: str) -> None:
        """Opens nothing yet. Raises `ConfigurationError` for a URL that names no supported database."""
        self._url = _parse(url)
        self.dialect: str = self._url.get_backend_name()
        self._here = threading.local()
        self._turn = threading.Lock() if self.dialect == "sqlite" else None
        self._engine = _sqlite_engine(self._url) if self.dialect == "sqlite" else _postgres_engine(self._url)
        options: dict[str, Any] = {_MODE: "read"}
        if self.dialect == "postgresql":
            options |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        self._reader = self._engine.execution_options(**options)
        self._writer = self._engine.execution_options(**{_MODE: "write"})

    @contextmanager
    def write(self) -> Generator[sa.Connection]:
        """A transaction that may write; commits at the end, rolls back on an exception. Not to be nested."""
        with self._translated(), self._in_turn(), self._writer.begin() as connection:
            yield connection

    @contextmanager
    def read(self) -> Generator[sa.Connection]:
        """A read-only transaction over one snapshot; neither waits for a writer nor holds one up."""
        with self._translated(), self._reader.begin() as connection:
            yield connection

    def now(self, connection: sa.Connection) -> float:
        """Seconds since the epoch: on PostgreSQL the server's clock, which all workers share, else this machine's."""
        if self.dialect == "sqlite":
            return time.time()
        epoch = sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)
        return connection.execute(sa.select(epoch)).scalar_one()

    def migrate(self) -> None:
        """Brings the schema to the newest version; processes that start together wait for one another."""
        with self._migrating() as connection:
            before = MigrationContext.configure(connection).get_current_revision()
            config = self._alembic()
            config.attributes["connection"] = connection
            try:
                command.upgrade(config, "head")
            except CommandError as error:
                raise ConfigurationError(
                    f"The database is at schema {before}, which this version of Hopnode does not know; "
                    "it was used by a newer one. Install that version, or restore a backup."
                ) from error
            after = MigrationContext.configure(connection).get_current_revision()
        if before != after:
            _log.info("database_migrated", before=before, after=after)

    def at_head(self) -> bool:
        """Whether the schema is the newest that this version of Hopnode knows."""
        with self.read() as connection:
            found = MigrationContext.configure(connection).get_current_revision()
        return found == self._head

    def drop_traces(self) -> None:
        """Empties SQLite's journal of earlier pages, once their content was erased from the file itself.

        PostgreSQL keeps replaced rows until its own vacuum has passed.
        """
        if self.dialect == "sqlite":
            with self._translated(), self._in_turn(), self._engine.connect() as connection:
                raw = connection.connection.dbapi_connection
                assert raw is not None
                raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def ping(self) -> None:
        """Asks the database for one row; raises `StoreUnavailable`."""
        with self.read() as connection:
            connection.execute(sa.select(1))

    def close(self) -> None:
        """Closes the pooled connections; the object may be used again and then opens new ones."""
        self._engine.dispose()

    @cached_property
    def _head(self) -> str | None:
        return ScriptDirectory.from_config(self._alembic()).get_current_head()

    def _alembic(self) -> Config:
        config = Config()
        config.set_main_option("script_location", self._scripts.replace("%", "%%"))
        return config

    @contextmanager
    def _migrating(self) -> Generator[sa.Connection]:
        """One transaction for all schema changes, entered by one process at a time."""
        with self._translated(), self._in_turn(), self._engine.connect() as plain:
            connection = plain.execution_options(**{_MODE: "migrate"})
            connection.detach()  # its foreign_keys pragma is off, so it must not go back to the pool
            with connection.begin():
                if self.dialect == "postgresql":
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
                yield connection
                if self.dialect == "sqlite" and connection.exec_driver_sql("PRAGMA foreign_key_check").first():
                    raise RuntimeError("The migration would have left rows without their parent; nothing was changed.")

    @contextmanager
    def _in_turn(self) -> Generator[None]:
        """Lines up this process's writers before they take a connection: SQLite's own waiting polls and is unfair."""
        if getattr(self._here, "writing", False):
            raise RuntimeError("A write was begun inside a write: it would wait for itself.")
        if self._turn is not None and not self._turn.acquire(timeout=WAIT_SECONDS):
            raise StoreUnavailable(f"The database was busy writing for {WAIT_SECONDS:.0f} s; try again.")
        self._here.writing = True
        try:
            yield
        finally:
            self._here.writing = False
            if self._turn is not None:
                self._turn.release()

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except (exc.StatementError, exc.TimeoutError, UnicodeEncodeError) as error:
            if _means_unavailable(error):
                reason = str(error.orig if isinstance(error, exc.StatementError) else error).split()
                place = self._url.render_as_string(hide_password=True)
                raise StoreUnavailable(f"The database {place} cannot be used: {' '.join(reason)}") from error
            if _means_unfit_value(error):
                raise InvalidRequest(
                    "A value holds something that the database cannot keep, or is too long."
                ) from error
            raise


def _means_unavailable(error: Exception) -> bool:
    """The server or the file failed us, as against: the statement was wrong or a constraint said no."""
    if isinstance(error, exc.OperationalError | exc.InterfaceError | exc.TimeoutError):
        return True
    if isinstance(error, exc.DBAPIError) and error.connection_invalidated:
        return True
    return type(error) is exc.DatabaseError  # SQLite: malformed, or not a database at all


def _means_unfit_value(error: Exception) -> bool:
    """A NUL, half a surrogate, a number that is none: no caller can make use of these, whatever the table."""
    if isinstance(error, exc.DataError | UnicodeEncodeError):
        return True
    return isinstance(error, exc.StatementError) and isinstance(error.orig, InvalidRequest)  # of `_to_json`, wrapped


def _to_json(value: object) -> str:
    """Standard JSON only, on both engines: PostgreSQL refuses the NaN that Python would write."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError as error:
        raise InvalidRequest("A number is not finite, so it cannot be stored as JSON.") from error


def _parse(url: str) -> sa.URL:
    try:
        parsed = sa.make_url(url)
    except exc.ArgumentError as error:
        raise ConfigurationError("HOPNODE_DATABASE_URL is not a database URL; see docs/configuration.md.") from error
    if parsed.drivername in ("postgres", "postgresql"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite", "postgresql+psycopg"):
        raise ConfigurationError(
            f"HOPNODE_DATABASE_URL names the driver `{parsed.drivername}`; use sqlite:///… or postgresql+psycopg://…"
        )
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise ConfigurationError("HOPNODE_DATABASE_URL needs a file: sqlite:////absolute/path/hopnode.db")
    return parsed


def _postgres_engine(url: sa.URL) -> sa.Engine:
    try:
        return sa.create_engine(
            url,
            connect_args={} if "connect_timeout" in url.query else {"connect_timeout": _CONNECT_SECONDS},
            pool_size=8,
            max_overflow=24,
            pool_timeout=WAIT_SECONDS,
            pool_pre_ping=True,
            hide_parameters=True,
            json_serializer=_to_json,
        )
    except ModuleNotFoundError as error:
        raise ConfigurationError("PostgreSQL needs its driver: pip install 'hopnode[postgres]'") from error


def _sqlite_engine(url: sa.URL) -> sa.Engine:
    try:
        Path(str(url.database)).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"The folder of the database {url.database} cannot be made: {error}") from error
    engine = sa.create_engine(
        url,
        connect_args={"timeout": WAIT_SECONDS, "isolation_level": None},  # None: BEGIN is ours
        pool_size=8,
        max_overflow=56,
        pool_timeout=WAIT_SECONDS,
        hide_parameters=True,
        json_serializer=_to_json,
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(dbapi_connection: sqlite3.Connection, _record: object) -> None:
    dbapi_connection.execute(f"PRAGMA busy_timeout={WAIT_SECONDS * 1000:.0f}")
    dbapi_connection.execute("PRAGMA foreign_keys=ON")
    dbapi_connection.execute("PRAGMA synchronous=NORMAL")
    dbapi_connection.execute("PRAGMA secure_delete=ON")  # what is deleted or replaced is overwritten with zeros
    _turn_on_wal(dbapi_connection)


def _turn_on_wal(connection: sqlite3.Connection) -> None:
    """Kept by the file, so set once; SQLite does not wait for its lock here, so processes that start together retry."""
    until = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.02)


def _begin_sqlite(connection: sa.Connection) -> None:
    """Deferred for readers, immediate for writers: a lock that is upgraded half-way fails at once instead of waiting."""
    mode = connection.get_execution_options().get(_MODE, "read")
    if mode == "migrate":  # rebuilding a parent table would otherwise cascade into its children
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
    connection.exec_driver_sql(f"PRAGMA query_only={'ON' if mode == 'read' else 'OFF'}")
    connection.exec_driver_sql("BEGIN" if mode == "read" else "BEGIN IMMEDIATE")
