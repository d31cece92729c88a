"""The database door on both engines: schema, transactions, concurrency and translated errors."""

import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from support.servers.postgres import free_port

import hopnode.worker.store.migrations
from hopnode.worker.errors import ConfigurationError, InvalidRequest, StoreUnavailable
from hopnode.worker.store.database import Database
from hopnode.worker.store.tables import collections, leases, metadata, workspaces


def _names(database: Database) -> list[str]:
    with database.read() as connection:
        return sorted(connection.scalars(sa.select(leases.c.name)))


def _insert(connection: sa.Connection, name: str) -> None:
    connection.execute(leases.insert().values(name=name, token="t", until=0.0))


def test_the_migrated_schema_equals_the_declared_tables(database: Database) -> None:
    with database.read() as connection:
        context = MigrationContext.configure(
            connection, opts={"compare_type": True, "compare_server_default": True, "target_metadata": metadata}
        )
        assert compare_metadata(context, metadata) == []
        assert set(sa.inspect(connection).get_table_names()) == {*metadata.tables, "alembic_version"}


def test_an_empty_database_is_not_at_head_until_it_is_migrated(empty_url: str) -> None:
    database = Database(empty_url)
    assert not database.at_head()
    database.migrate()
    assert database.at_head()
    database.migrate()
    assert database.at_head()
    database.close()


def test_a_database_of_a_newer_version_is_refused_with_advice(database: Database) -> None:
    with database.write() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    assert not database.at_head()
    with pytest.raises(ConfigurationError, match="newer"):
        database.migrate()


def test_a_write_commits_at_its_end(database: Database) -> None:
    with database.write() as connection:
        _insert(connection, "kept")
    assert _names(database) == ["kept"]


def test_a_write_that_raises_leaves_nothing_behind(database: Database) -> None:
    with pytest.raises(ZeroDivisionError), database.write() as connection:
        _insert(connection, "lost")
        raise ZeroDivisionError
    assert _names(database) == []


def test_a_write_inside_a_write_is_a_mistake_that_shows_at_once(database: Database) -> None:
    with pytest.raises(RuntimeError, match="inside"), database.write() as connection:
        _insert(connection, "outer")
        with database.write():
            pass
    with database.write() as connection:
        _insert(connection, "next")
    assert _names(database) == ["next"]


def test_a_read_cannot_write(database: Database) -> None:
    with pytest.raises((StoreUnavailable, sa.exc.InternalError)), database.read() as connection:
        _insert(connection, "sly")
    with database.write() as connection:
        _insert(connection, "open")
    assert _names(database) == ["open"]


def test_a_read_keeps_its_snapshot_and_does_not_hold_up_a_writer(database: Database) -> None:
    with database.write() as connection:
        _insert(connection, "before")
    with database.read() as reader:
        count = sa.select(sa.func.count()).select_from(leases)
        assert reader.execute(count).scalar_one() == 1
        with database.write() as connection:
            _insert(connection, "after")
        assert reader.execute(count).scalar_one() == 1
    assert _names(database) == ["after", "before"]


def test_a_write_does_not_hold_up_a_reader(database: Database) -> None:
    with database.write() as connection:
        _insert(connection, "pending")
        assert _names(database) == []


def test_a_broken_constraint_reaches_the_caller_as_it_is(database: Database) -> None:
    with pytest.raises(sa.exc.IntegrityError), database.write() as connection:
        connection.execute(
            collections.insert().values(id="c", workspace_id="none", name="x", metadata={}, created_at=0)
        )


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_json_lacks_is_refused_on_both_engines(database: Database, value: float) -> None:
    with database.write() as connection:
        connection.execute(workspaces.insert().values(id="w", name="w", created_at=0))
    row = {"id": "c", "workspace_id": "w", "name": "c", "metadata": {"score": value}, "created_at": 0}
    with pytest.raises(InvalidRequest), database.write() as connection:
        connection.execute(collections.insert().values(row))


def test_half_a_surrogate_is_refused_on_both_engines(database: Database) -> None:
    with pytest.raises(InvalidRequest), database.write() as connection:
        _insert(connection, "\ud800")


def test_a_text_that_postgresql_cannot_keep_is_refused(postgres_database: Database) -> None:
    for name in ("a\0b", "x" * 65):
        with pytest.raises(InvalidRequest), postgres_database.write() as connection:
            _insert(connection, name)


def test_the_clock_moves_within_a_transaction_and_agrees_with_this_machine(database: Database) -> None:
    with database.write() as connection:
        first = database.now(connection)
        second = database.now(connection)
    assert isinstance(first, float)
    assert first < second or database.dialect == "sqlite"
    assert abs(first - time.time()) < 5


def test_many_threads_write_and_no_write_is_lost(database: Database) -> None:
    with database.write() as connection:
        connection.execute(leases.insert().values(name="counter", token="t", until=0.0))
    errors: list[Exception] = []

    def count_up() -> None:
        try:
            for _ in range(20):
                with database.write() as connection:
                    until = sa.select(leases.c.until).where(leases.c.name == "counter").with_for_update()
                    value = connection.execute(until).scalar_one()
                    connection.execute(leases.update().values(until=value + 1))
        except Exception as error:  # noqa: BLE001  a thread hands its error to the test
            errors.append(error)

    threads = [threading.Thread(target=count_up) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert errors == []
    with database.read() as connection:
        assert connection.execute(sa.select(leases.c.until)).scalar_one() == 160


_PROCESS = """
import sys
from hopnode.worker.store.database import Database
from hopnode.worker.store.tables import leases
database = Database(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
database.migrate()
for number in range(25):
    with database.write() as connection:
        connection.execute(leases.insert().values(name=f"{sys.argv[2]}-{number}", token="t", until=0.0))
database.close()
"""


@pytest.mark.slow
def test_processes_that_start_together_migrate_once_and_then_write_side_by_side(empty_url: str, tmp_path: Path) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", _PROCESS, empty_url, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,  # the steps are found by their package, not by the working folder
        )
        for number in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    outcomes = [(*process.communicate(timeout=60), process.returncode) for process in processes]
    assert [(stderr, code) for _, stderr, code in outcomes] == [("", 0)] * 4
    database = Database(empty_url)
    assert database.at_head()
    assert len(_names(database)) == 100
    database.close()


def test_every_sqlite_connection_is_set_up_for_side_by_side_use(sqlite_database: Database) -> None:
    with sqlite_database.write() as connection:
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert found == {"journal_mode": "wal", "synchronous": 1, "foreign_keys": 1, "busy_timeout": 15000}


_NEXT_STEP = """
import sqlalchemy as sa
from alembic import op

revision, down_revision, branch_labels, depends_on = "9000", "0007", None, None

def upgrade() -> None:
    with op.batch_alter_table("workspaces") as batch:  # SQLite builds the table anew, PostgreSQL alters it
        batch.alter_column("name", type_=sa.String(100), existing_nullable=False)
"""


def test_rebuilding_a_parent_table_keeps_its_children(database: Database, database_url: str, tmp_path: Path) -> None:
    with database.write() as connection:
        connection.execute(workspaces.insert().values(id="w", name="w", created_at=0))
        connection.execute(collections.insert().values(id="c", workspace_id="w", name="c", metadata={}, created_at=0))
    steps = tmp_path / "steps"
    shutil.copytree(Path(hopnode.worker.store.migrations.__file__).parent, steps)
    (steps / "versions" / "9000_longer_names.py").write_text(_NEXT_STEP)

    class NextDatabase(Database):
        _scripts = str(steps)

    later = NextDatabase(database_url)
    later.migrate()
    assert later.at_head()
    assert not database.at_head()
    with later.write() as connection:
        assert connection.execute(sa.select(collections.c.id)).scalars().all() == ["c"]
        connection.execute(workspaces.delete())
        assert connection.execute(sa.select(collections.c.id)).scalars().all() == []
    later.close()


def test_the_folder_of_a_new_sqlite_file_is_made_private(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "data"
    database = Database(f"sqlite:///{folder / 'hopnode.db'}")
    database.ping()
    database.close()
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_server_that_does_not_answer_is_unavailable_and_its_password_stays_secret() -> None:
    unused_port = free_port()
    database = Database(f"postgresql://someone:hunter2@127.0.0.1:{unused_port}/hopnode")
    with pytest.raises(StoreUnavailable) as caught:
        database.ping()
    database.close()
    assert caught.value.retryable
    assert "hunter2" not in str(caught.value)
    assert f"127.0.0.1:{unused_port}" in str(caught.value)


def test_a_file_that_is_no_database_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "letter.db"
    path.write_text("Dear reader, this is not a database at all. " * 100)
    database = Database(f"sqlite:///{path}")
    with pytest.raises(StoreUnavailable, match=r"letter\.db"):
        database.ping()
    database.close()


def _drop_other_connections(database: Database) -> None:
    statement = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE datname = current_database() AND pid <> pg_backend_pid()"""
    with database.write() as connection:
        assert connection.execute(sa.text(statement)).scalars().all() == [True]


def test_a_connection_that_the_server_drops_is_unavailable_and_then_replaced(postgres_url: str) -> None:
    database, administrator = Database(postgres_url), Database(postgres_url)
    with pytest.raises(StoreUnavailable), database.write() as connection:
        _insert(connection, "lost")
        _drop_other_connections(administrator)
        _insert(connection, "too late")
    database.ping()
    _drop_other_connections(administrator)  # this time while it rests in the pool
    assert _names(database) == []
    database.close()
    administrator.close()


@pytest.mark.parametrize(
    "url",
    ["mysql://root:hunter2@localhost/x", "sqlite://", "sqlite:///:memory:", "not a url", "postgresql+asyncpg://h/x"],
)
def test_a_url_that_cannot_work_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigurationError, match="HOPNODE_DATABASE_URL") as caught:
        Database(url)
    assert "hunter2" not in str(caught.value)
