"""Workspaces, their keys and the first key of an embedded node, on both engines."""

import hashlib
import re
import threading
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from hopnode.worker.errors import ConfigurationError, Conflict, InvalidRequest, NotFound, Unauthorized
from hopnode.worker.store import workspaces as store
from hopnode.worker.store.database import Database
from hopnode.worker.store.tables import keys, workspaces
from hopnode.worker.store.workspaces import SCOPES, Workspace


@pytest.fixture
def acme(database: Database) -> Workspace:
    return store.create_workspace(database, "acme")


@pytest.fixture
def other(database: Database) -> Workspace:
    return store.create_workspace(database, "other")


def _all_text(database: Database) -> str:
    """Everything the database holds, as bytes of the file where there is one and as rows where not."""
    if database.dialect == "sqlite":
        with database.read() as connection:
            path = Path(str(connection.engine.url.database))
        return b"".join(part.read_bytes() for part in path.parent.glob(f"{path.name}*")).decode("latin-1")
    with database.read() as connection:
        return str(connection.execute(sa.text("SELECT string_agg(k::text, '|') FROM keys k")).scalar_one())


def test_a_workspace_is_found_by_id_and_by_name(database: Database, acme: Workspace, other: Workspace) -> None:
    assert store.get_workspace(database, acme.id) == acme
    assert store.find_workspace(database, "acme") == acme
    assert store.find_workspace(database, "nobody") is None
    assert store.list_workspaces(database) == [acme, other]
    assert abs(acme.created_at - time.time()) < 5


def test_an_unknown_workspace_is_not_found(database: Database) -> None:
    with pytest.raises(NotFound):
        store.get_workspace(database, "none")
    with pytest.raises(NotFound):
        store.list_keys(database, "none")
    with pytest.raises(NotFound):
        store.create_key(database, "none", "k", {"admin"})


def test_a_workspace_name_is_taken_only_once(database: Database, acme: Workspace) -> None:
    with pytest.raises(Conflict):
        store.create_workspace(database, "acme")
    assert store.list_workspaces(database) == [acme]


@pytest.mark.parametrize("name", ["", "Acme", "a b", "-a", "a/b", "a" * 64, "ä", "a\n"])
def test_a_workspace_name_follows_the_rule(sqlite_database: Database, name: str) -> None:
    with pytest.raises(InvalidRequest, match="63"):
        store.create_workspace(sqlite_database, name)


def test_a_key_opens_its_workspace_with_its_scopes(database: Database, acme: Workspace) -> None:
    key, token = store.create_key(database, acme.id, "n8n", ["search:read", "search:write"])
    assert re.fullmatch(r"hn_[0-9a-f]{8}_[A-Za-z0-9_-]{43}", token)
    assert token[3:11] == key.id
    found, workspace = store.authenticate(database, token)
    assert workspace == acme
    assert found.scopes == {"search:read", "search:write"}
    assert (found.id, found.name, found.expires_at) == (key.id, "n8n", None)


def test_the_plain_text_of_a_key_is_kept_nowhere(database: Database, acme: Workspace) -> None:
    key, token = store.create_key(database, acme.id, "n8n", SCOPES)
    secret = token[12:]
    text = _all_text(database)
    assert key.id in text
    assert hashlib.sha256(secret.encode()).hexdigest() in text
    assert secret not in text
    assert secret not in repr(key)


def test_every_wrong_key_gets_the_same_answer(database: Database, acme: Workspace) -> None:
    key, token = store.create_key(database, acme.id, "n8n", SCOPES)
    revoked, revoked_token = store.create_key(database, acme.id, "old", SCOPES)
    store.revoke_key(database, acme.id, revoked.id)
    other_id = "00000000" if key.id != "00000000" else "11111111"
    wrong = [
        "",
        "hn_",
        "Bearer " + token,
        token + "\n",
        token[:-1],
        token[:12] + "A" * 43,
        f"hn_{other_id}_{token[12:]}",
        revoked_token,
        "hn_" + "a" * 100_000,
        token.upper(),
    ]
    answers = set()
    for candidate in wrong:
        with pytest.raises(Unauthorized) as caught:
            store.authenticate(database, candidate)
        answers.add(str(caught.value))
    assert len(answers) == 1
    store.authenticate(database, token)


def test_a_key_stops_working_at_its_end(database: Database, acme: Workspace) -> None:
    key, token = store.create_key(database, acme.id, "short", {"admin"}, expires_at=time.time() + 3600)
    store.authenticate(database, token)
    with database.write() as connection:
        connection.execute(keys.update().values(expires_at=database.now(connection) - 1))
    with pytest.raises(Unauthorized):
        store.authenticate(database, token)
    assert [(listed.id, listed.valid_at(time.time())) for listed in store.list_keys(database, acme.id)] == [
        (key.id, False)
    ]


@pytest.mark.parametrize("end", [1.0, float("inf"), float("nan")])
def test_a_key_must_end_in_the_future(database: Database, acme: Workspace, end: float) -> None:
    with pytest.raises(InvalidRequest, match="future"):
        store.create_key(database, acme.id, "k", {"admin"}, expires_at=end)
    assert store.list_keys(database, acme.id) == []


@pytest.mark.parametrize(("name", "scopes"), [("k", []), ("k", ["all"]), ("", ["admin"]), ("k\x00", ["admin"])])
def test_a_key_needs_a_name_and_known_scopes(sqlite_database: Database, name: str, scopes: list[str]) -> None:
    workspace = store.create_workspace(sqlite_database, "acme")
    with pytest.raises(InvalidRequest):
        store.create_key(sqlite_database, workspace.id, name, scopes)


def test_the_use_of_a_key_is_noted_at_most_once_a_minute(database: Database, acme: Workspace) -> None:
    _, token = store.create_key(database, acme.id, "n8n", SCOPES)
    assert store.list_keys(database, acme.id)[0].last_used_at is None
    first, _ = store.authenticate(database, token)
    again, _ = store.authenticate(database, token)
    assert first.last_used_at is not None
    assert again.last_used_at == first.last_used_at
    with database.write() as connection:
        connection.execute(keys.update().values(last_used_at=first.last_used_at - 61))
    later, _ = store.authenticate(database, token)
    assert later.last_used_at is not None
    assert later.last_used_at >= first.last_used_at
    assert store.list_keys(database, acme.id)[0].last_used_at == later.last_used_at


def test_a_key_cannot_be_seen_or_revoked_from_another_workspace(
    database: Database, acme: Workspace, other: Workspace
) -> None:
    key, token = store.create_key(database, acme.id, "n8n", SCOPES)
    assert store.list_keys(database, other.id) == []
    with pytest.raises(NotFound):
        store.revoke_key(database, other.id, key.id)
    store.authenticate(database, token)


def test_revoking_again_keeps_the_first_time(database: Database, acme: Workspace) -> None:
    key, _ = store.create_key(database, acme.id, "n8n", SCOPES)
    first = store.revoke_key(database, acme.id, key.id, even_last=True)
    assert first.revoked_at is not None
    assert store.revoke_key(database, acme.id, key.id) == first
    with pytest.raises(NotFound):
        store.revoke_key(database, acme.id, "ffffffff")


def test_the_first_start_makes_a_default_workspace_and_a_key_that_only_the_owner_can_read(
    database: Database, tmp_path: Path
) -> None:
    file = tmp_path / "data" / "key"
    token = store.ensure_default(database, file)
    key, workspace = store.authenticate(database, token)
    assert workspace.name == "default"
    assert key.scopes == set(SCOPES)
    assert file.read_text() == token + "\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert list(file.parent.iterdir()) == [file]


def test_later_starts_return_the_stored_key(database: Database, tmp_path: Path) -> None:
    file = tmp_path / "key"
    token = store.ensure_default(database, file)
    file.chmod(0o644)
    assert store.ensure_default(database, file) == token
    assert file.stat().st_mode & 0o777 == 0o600
    assert len(store.list_keys(database, store.authenticate(database, token)[1].id)) == 1


@pytest.mark.parametrize("content", [None, "", "hn_torn", "\xff\xfe" * 40])
def test_a_lost_or_torn_key_file_gets_a_new_key(database: Database, tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "key"
    first = store.ensure_default(database, file)
    if content is None:
        file.unlink()
    else:
        file.write_text(content, encoding="latin-1")
    second = store.ensure_default(database, file)
    assert second != first
    assert file.read_text().strip() == second
    assert store.authenticate(database, second)[1] == store.authenticate(database, first)[1]


def test_a_revoked_default_key_is_replaced_at_the_next_start(database: Database, tmp_path: Path) -> None:
    file = tmp_path / "key"
    first = store.ensure_default(database, file)
    key, workspace = store.authenticate(database, first)
    store.revoke_key(database, workspace.id, key.id, even_last=True)
    second = store.ensure_default(database, file)
    assert second != first
    store.authenticate(database, second)


def test_a_key_of_another_workspace_in_the_file_is_not_taken_for_the_default_one(
    database: Database, acme: Workspace, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    _, foreign = store.create_key(database, acme.id, "n8n", SCOPES)
    file.write_text(foreign)
    token = store.ensure_default(database, file)
    assert store.authenticate(database, token)[1].name == "default"
    assert store.authenticate(database, foreign)[1] == acme


class _Crash(BaseException):
    pass


def test_a_crash_between_file_and_database_leaves_one_key_and_the_file_names_it(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    file = tmp_path / "key"

    class DiesBeforeCommit(Database):
        def now(self, connection: sa.Connection) -> float:
            sa.event.listen(connection, "commit", _crash)
            return super().now(connection)

    dying = DiesBeforeCommit(database_url)
    with pytest.raises(_Crash):
        store.ensure_default(dying, file)
    dying.close()
    written = file.read_text().strip()
    with pytest.raises(Unauthorized):
        store.authenticate(database, written)
    token = store.ensure_default(database, file)
    assert token == written
    with database.read() as connection:
        assert connection.execute(sa.select(keys.c.id)).scalars().all() == [token[3:11]]
        assert connection.execute(sa.select(workspaces.c.name)).scalars().all() == ["default"]


def _crash(_connection: sa.Connection) -> None:
    raise _Crash


def test_several_first_starts_at_once_agree_on_one_key(database: Database, database_url: str, tmp_path: Path) -> None:
    file = tmp_path / "key"
    together = threading.Barrier(4)
    tokens: list[str] = []

    def start() -> None:
        own = Database(database_url)
        own.ping()
        together.wait(10)
        tokens.append(store.ensure_default(own, file))
        own.close()

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(tokens) == 4
    assert set(tokens) == {file.read_text().strip()}
    with database.read() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(keys)).scalar_one() == 1


def test_a_key_file_that_cannot_be_written_is_a_matter_of_configuration(
    sqlite_database: Database, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="key"):
        store.ensure_default(sqlite_database, tmp_path / "file" / "key")
    assert store.list_workspaces(sqlite_database) == []


def test_another_admin_key_beside_valid_ones_is_not_made_in_silence(database: Database, tmp_path: Path) -> None:
    file = tmp_path / "key"
    with capture_logs() as quiet:
        first = store.ensure_default(database, file)
    assert [line["event"] for line in quiet if line["log_level"] == "warning"] == []
    file.unlink()
    with capture_logs() as told:
        second = store.ensure_default(database, file)
    warned = [line for line in told if line["log_level"] == "warning"]
    assert [(line["event"], line["still_valid"]) for line in warned] == [("another_admin_key_made", [first[3:11]])]
    assert not any(token[12:] in str(told) for token in (first, second))


def test_the_last_key_that_can_make_keys_is_revoked_only_by_who_means_it(database: Database, acme: Workspace) -> None:
    boss, _ = store.create_key(database, acme.id, "boss", ["admin"])
    store.create_key(database, acme.id, "n8n", ["search:read"])
    with pytest.raises(Conflict, match="last one"):
        store.revoke_key(database, acme.id, boss.id)
    other, _ = store.create_key(database, acme.id, "deputy", ["admin"])
    assert store.revoke_key(database, acme.id, boss.id).revoked_at is not None
    with pytest.raises(Conflict):
        store.revoke_key(database, acme.id, other.id)
    assert store.revoke_key(database, acme.id, other.id, even_last=True).revoked_at is not None


def test_a_rotated_key_is_valid_beside_the_new_one_until_the_grace_ends(database: Database, acme: Workspace) -> None:
    old, old_token = store.create_key(database, acme.id, "n8n", ["search:read"])
    new, token = store.rotate_key(database, acme.id, old.id, grace_seconds=60)
    assert (new.name, new.scopes, new.expires_at) == (old.name, old.scopes, None)
    assert store.authenticate(database, token)[0].id == new.id != old.id
    kept = store.authenticate(database, old_token)[0]
    assert kept.expires_at is not None
    assert 50 < kept.expires_at - new.created_at <= 60
    newest, _ = store.rotate_key(database, acme.id, new.id, grace_seconds=0)
    with pytest.raises(Unauthorized):
        store.authenticate(database, token)
    with pytest.raises(Conflict, match="past its end"):
        store.rotate_key(database, acme.id, new.id, grace_seconds=60)
    with pytest.raises(NotFound):
        store.rotate_key(database, store.create_workspace(database, "other").id, newest.id, grace_seconds=60)
