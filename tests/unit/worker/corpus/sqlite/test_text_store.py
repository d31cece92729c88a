import os
import sqlite3
import sys
import threading
from pathlib import Path

import pytest

from hopnode.worker.corpus.sqlite.text_store import MIGRATIONS, TextStore
from hopnode.worker.corpus.sqlite.writing import ensure_collection
from hopnode.worker.errors import ConfigurationError, StoreUnavailable


def test_a_new_file_has_the_newest_schema_and_the_write_ahead_log(tmp_path: Path) -> None:
    store = TextStore(tmp_path / "w" / "corpus.db")
    with store.read() as connection:
        assert connection.execute("PRAGMA user_version").fetchone()[0] == len(MIGRATIONS)
        assert connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert connection.execute("PRAGMA synchronous").fetchone()[0] == 1
    store.close()


def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    TextStore(tmp_path / "corpus.db").close()
    raw = sqlite3.connect(tmp_path / "corpus.db")
    raw.execute("PRAGMA user_version = 999")
    raw.close()
    with pytest.raises(ConfigurationError, match="newer version"):
        TextStore(tmp_path / "corpus.db")


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "corpus.db").write_bytes(b"not a database, " * 100)
    with pytest.raises(StoreUnavailable, match="damaged or not ours"):
        TextStore(tmp_path / "corpus.db")


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    store = TextStore(tmp_path / "corpus.db")
    with pytest.raises(RuntimeError), store.write() as connection:
        ensure_collection(connection, "c1")
        raise RuntimeError
    with store.read() as connection:
        assert connection.execute("SELECT count(*) FROM collection").fetchone()[0] == 0
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        assert "fts_1" not in tables
    store.close()


def test_a_reader_sees_one_state_while_a_writer_commits(tmp_path: Path) -> None:
    store = TextStore(tmp_path / "corpus.db")
    with store.read() as reading:
        assert reading.execute("SELECT count(*) FROM collection").fetchone()[0] == 0
        with store.write() as writing:
            ensure_collection(writing, "c1")
        assert reading.execute("SELECT count(*) FROM collection").fetchone()[0] == 0
    with store.read() as reading:
        assert reading.execute("SELECT count(*) FROM collection").fetchone()[0] == 1
    store.close()


def test_all_reads_of_a_thread_within_a_snapshot_are_of_one_moment(tmp_path: Path) -> None:
    store = TextStore(tmp_path / "corpus.db")
    with store.write() as connection:
        ensure_collection(connection, "before")

    def collections() -> int:
        with store.read() as connection:
            return int(connection.execute("SELECT count(*) FROM collection").fetchone()[0])

    def write_meanwhile() -> None:
        with store.write() as connection:
            ensure_collection(connection, "meanwhile")
        seen_outside.append(collections())

    seen_outside: list[int] = []
    with store.snapshot():
        assert collections() == 1
        writer = threading.Thread(target=write_meanwhile)
        writer.start()
        writer.join()
        with store.snapshot():
            assert collections() == 1
        assert collections() == 1
    assert seen_outside == [2]
    assert collections() == 2
    store.close()


def test_many_threads_write_one_after_the_other(tmp_path: Path) -> None:
    store = TextStore(tmp_path / "corpus.db")

    def write(name: str) -> None:
        for index in range(10):
            with store.write() as connection:
                ensure_collection(connection, f"{name}{index}")

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with store.read() as connection:
        assert connection.execute("SELECT count(*) FROM collection").fetchone()[0] == 40
    store.close()


def test_two_processes_may_make_the_file_at_once(tmp_path: Path) -> None:
    children: list[int] = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            try:
                TextStore(tmp_path / "corpus.db").close()
            finally:
                os._exit(1 if sys.exc_info()[0] else 0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0, 0]
