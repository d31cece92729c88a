"""One SQLite file per workspace: its schema, its migrations, its connections and transactions.

Knows how the file is opened and shared by threads and processes; what is written into it is said elsewhere.
"""

import os
import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from hopnode.worker.errors import ConfigurationError, StoreUnavailable

Connection: TypeAlias = sqlite3.Connection
Row: TypeAlias = sqlite3.Row
Snapshot: TypeAlias = Connection
"""One state of the file, as other rooms hold it: they hand it to the functions of this one, and never ask it themselves."""

BUSY_SECONDS = 15
_MOST_IDLE = 8
# Measured at 142,000 chunks: what a search reads lies all over the file, and mapped it takes 2 ms of CPU less than read.
_SETTINGS = (
    "journal_mode = WAL",
    "synchronous = NORMAL",
    "foreign_keys = ON",
    "cache_size = -8000",
    "mmap_size = 1073741824",
)

_FIRST_SCHEMA = """
CREATE TABLE collection (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    embedder TEXT,
    dimension INTEGER,
    index_version INTEGER NOT NULL DEFAULT 0,
    chunks INTEGER NOT NULL DEFAULT 0,
    analyzer INTEGER NOT NULL,
    grep_row INTEGER NOT NULL DEFAULT 0,
    generation INTEGER NOT NULL DEFAULT 1,
    applied_seq INTEGER NOT NULL DEFAULT 0,
    drain_token TEXT,
    drain_until REAL NOT NULL DEFAULT 0
);
CREATE TABLE document (
    id TEXT PRIMARY KEY,
    collection INTEGER NOT NULL REFERENCES collection (number),
    key TEXT NOT NULL,
    title TEXT NOT NULL,
    url TEXT,
    media_type TEXT NOT NULL,
    metadata TEXT NOT NULL,
    characters INTEGER NOT NULL,
    chunks INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    source_sha BLOB NOT NULL,
    version INTEGER NOT NULL,
    next_n INTEGER NOT NULL,
    warnings TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    UNIQUE (collection, key)
) WITHOUT ROWID;
CREATE TABLE document_text (
    document_id TEXT PRIMARY KEY REFERENCES document (id) ON DELETE CASCADE,
    text TEXT NOT NULL
);
CREATE TABLE chunk (
    row INTEGER PRIMARY KEY AUTOINCREMENT,
    document_id TEXT NOT NULL REFERENCES document (id),
    collection INTEGER NOT NULL,
    n INTEGER NOT NULL,
    position INTEGER NOT NULL,
    start INTEGER NOT NULL,
    "end" INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    page INTEGER,
    embed_sha BLOB NOT NULL,
    heading TEXT NOT NULL,
    text TEXT NOT NULL,
    UNIQUE (document_id, n)
);
CREATE INDEX chunk_of_collection ON chunk (collection, row, embed_sha, tokens);
CREATE TABLE vector (
    id INTEGER PRIMARY KEY,
    embedder TEXT NOT NULL,
    sha BLOB NOT NULL,
    vector BLOB NOT NULL,
    created_at REAL NOT NULL,
    UNIQUE (embedder, sha)
);
CREATE TABLE outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    collection INTEGER NOT NULL,
    op TEXT NOT NULL CHECK (op IN ('upsert', 'delete')),
    row INTEGER NOT NULL
);
CREATE INDEX outbox_of_collection ON outbox (collection, seq);
CREATE TABLE name (
    collection INTEGER NOT NULL,
    lead TEXT NOT NULL,
    phrase TEXT NOT NULL,
    document_id TEXT NOT NULL REFERENCES document (id) ON DELETE CASCADE,
    quality REAL NOT NULL,
    PRIMARY KEY (collection, lead, phrase, document_id)
) WITHOUT ROWID;
CREATE INDEX name_of_document ON name (document_id);
CREATE TABLE orphan (name TEXT PRIMARY KEY);
CREATE TABLE dropped (at REAL NOT NULL);
"""

_DEAD_VECTORS = "ALTER TABLE collection ADD COLUMN dead INTEGER NOT NULL DEFAULT 0"

_POSTING_LISTS = """
CREATE TABLE segment (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    collection INTEGER NOT NULL,
    chunks INTEGER NOT NULL,
    rows BLOB NOT NULL,
    lengths BLOB NOT NULL
);
CREATE INDEX segment_of_collection ON segment (collection, chunks);
CREATE TABLE posting (
    segment INTEGER NOT NULL,
    term TEXT NOT NULL,
    chunks INTEGER NOT NULL,
    entries BLOB NOT NULL,
    PRIMARY KEY (segment, term)
) WITHOUT ROWID;
ALTER TABLE collection ADD COLUMN posted_row INTEGER NOT NULL DEFAULT 0
"""

MIGRATIONS: tuple[str, ...] = (_FIRST_SCHEMA, _DEAD_VECTORS, _POSTING_LISTS)
"""Statement scripts in order; the file's `user_version` counts how many were applied."""


class TextStore:
    """The open file of one workspace. Transactions of one thread never wait for readers; writers queue."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._own = threading.local()
        self._process = os.getpid()
        self._closed = False
        self._migrate()

    @contextmanager
    def read(self) -> Generator[Connection]:
        """One consistent snapshot; never blocks a writer and is never blocked by one. Inside of `snapshot` it is that one."""
        shared: Connection | None = getattr(self._own, "snapshot", None)
        if shared is not None:
            yield shared
            return
        with self._transaction("BEGIN", "ROLLBACK") as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Generator[None]:
        """A block in which all that this thread reads is of one moment. It has to be short: what is written meanwhile is
        kept twice until it ends."""
        with self.read() as connection:
            before: Connection | None = getattr(self._own, "snapshot", None)
            self._own.snapshot = connection
            try:
                yield
            finally:
                self._own.snapshot = before

    @contextmanager
    def write(self) -> Generator[Connection]:
        """A write transaction: committed when the block ends, undone when it raises."""
        with self._transaction("BEGIN IMMEDIATE", "COMMIT") as connection:
            yield connection

    def close(self) -> None:
        """Closes the idle connections; the ones in use are closed when they come back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    @contextmanager
    def _transaction(self, begin: str, end: str) -> Generator[Connection]:
        try:
            connection = self._take()
            try:
                connection.execute(begin)
                yield connection
                connection.execute(end)
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                self._give_back(connection)
        except sqlite3.OperationalError as error:
            raise StoreUnavailable(f"The text store of the workspace cannot be used now: {error}.") from error
        except sqlite3.DatabaseError as error:
            if type(error) is not sqlite3.DatabaseError:  # its other subclasses are mistakes of ours
                raise
            raise StoreUnavailable(f"The text store {self.path} is damaged or not ours: {error}.") from error

    def _take(self) -> Connection:
        with self._lock:
            if self._process != os.getpid():  # SQLite connections do not survive a fork
                self._idle, self._process = [], os.getpid()
            if self._idle:
                return self._idle.pop()
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        connection.row_factory = sqlite3.Row
        try:
            for setting in _SETTINGS:
                connection.execute(f"PRAGMA {setting}")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            if not self._closed and len(self._idle) < _MOST_IDLE and self._process == os.getpid():
                self._idle.append(connection)
                return
        connection.close()

    def _migrate(self) -> None:
        try:
            connection = self._take()
        except sqlite3.DatabaseError as error:
            raise StoreUnavailable(f"The text store {self.path} is damaged or not ours: {error}.") from error
        self._give_back(connection)
        with self.read() as connection:
            version = _version(connection)
        if version == len(MIGRATIONS):
            return
        with self.write() as connection:
            version = _version(connection)
            if version > len(MIGRATIONS):
                raise ConfigurationError(
                    f"The text store {self.path} was written by a newer version of Hopnode (schema {version}, this "
                    f"version knows {len(MIGRATIONS)}). Update Hopnode, or restore a backup of the data folder."
                )
            for script in MIGRATIONS[version:]:
                for statement in script.split(";"):  # executescript would commit half-way
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _version(connection: Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])
