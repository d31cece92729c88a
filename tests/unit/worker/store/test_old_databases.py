"""Databases of every earlier schema still open: their rows stay, and secrets that they hold in clear are moved and erased."""

import json
import shutil
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory
from support.data.vault_source import KIND, registered

import hopnode.worker.store.migrations
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs.jobs import get_job, list_steps
from hopnode.worker.store.secrets.keyring import Keyring
from hopnode.worker.store.secrets.vault import Vault
from hopnode.worker.store.sources.secret_config import hide_clear_secrets, whole_config
from hopnode.worker.store.sources.sources import Source, get_source, list_syncs

_FOLDER = Path(hopnode.worker.store.migrations.__file__).parent
_REVISIONS = [step.revision for step in reversed(list(ScriptDirectory(_FOLDER).walk_revisions())) if step.nextrev]
_CONFIG = {"place": "mill", "token": "planted-in-clear", "login": {"user": "ann", "password": "planted-too"}}
_ROWS = [
    "INSERT INTO workspaces (id, name, created_at) VALUES ('w', 'acme', 1)",
    "INSERT INTO collections (id, workspace_id, name, metadata, created_at) VALUES ('c', 'w', 'docs', '{}', 1)",
    "INSERT INTO jobs (id, workspace_id, kind, role, status, max_attempts, request, next_at, created_at)"
    " VALUES ('j', 'w', 'sync', 'sync', 'queued', 3, '{\"n\": 1}', 1, 1)",
    "INSERT INTO job_steps (job_id, seq, kind, data, created_at) VALUES ('j', 1, 'progress', '{}', 1)",
]


def _old_database(url: str, revision: str, steps: Path) -> None:
    """A database as the version with this schema left it, with a source whose secrets lie in clear."""
    shutil.copytree(_FOLDER, steps)
    for later in (steps / "versions").glob("[0-9]*.py"):
        if later.name[:4] > revision:
            later.unlink()

    class OldDatabase(Database):
        _scripts = str(steps)

    old = OldDatabase(url)
    old.migrate()
    assert old.at_head()
    with old.write() as connection:
        for statement in _ROWS:
            connection.exec_driver_sql(statement)
        connection.execute(
            sa.text(
                "INSERT INTO sources (id, workspace_id, collection_id, kind, name, config, state, created_at, updated_at)"
                " VALUES ('s', 'w', 'c', :kind, 'vault', :config, '{}', 1, 1)"
            ),
            {"kind": KIND, "config": json.dumps(_CONFIG)},
        )
        connection.exec_driver_sql(
            "INSERT INTO syncs (id, workspace_id, source_id, job_id, counts, created_at) VALUES ('y', 'w', 's', 'j', '{}', 1)"
        )
    old.close()


def _open(url: str, tmp_path: Path) -> tuple[Database, Vault]:
    database = Database(url)
    database.migrate()
    return database, Vault(database, Keyring(tmp_path / "secret_key"))


def _check_rows(database: Database) -> Source:
    assert get_job(database, "w", "j").request == {"n": 1}
    assert [step.attempt for step in list_steps(database, "j")] == [1]
    assert [sync.id for sync in list_syncs(database, "w", "s")] == ["y"]
    return get_source(database, "w", "s")


@pytest.mark.parametrize("revision", _REVISIONS)
def test_a_database_of_an_earlier_schema_opens_and_its_clear_secrets_are_sealed(
    empty_url: str, revision: str, tmp_path: Path
) -> None:
    _old_database(empty_url, revision, tmp_path / "steps")
    with registered():
        database, vault = _open(empty_url, tmp_path)
        assert hide_clear_secrets(database, vault) == 1
        source = _check_rows(database)
        assert source.config == {"place": "mill", "token": "***", "login": {"user": "ann", "password": "***"}}
        assert whole_config(vault, source) == _CONFIG
        assert hide_clear_secrets(database, vault) == 0
        assert whole_config(vault, source) == _CONFIG
        if database.dialect == "sqlite":
            found = [path for path in tmp_path.rglob("empty.db*") if b"planted" in path.read_bytes()]
            assert found == []
        database.close()


def test_a_kind_that_this_version_does_not_know_is_left_alone(empty_url: str, tmp_path: Path) -> None:
    _old_database(empty_url, _REVISIONS[0], tmp_path / "steps")
    database, vault = _open(empty_url, tmp_path)
    assert hide_clear_secrets(database, vault) == 0
    assert get_source(database, "w", "s").config == _CONFIG
    database.close()
