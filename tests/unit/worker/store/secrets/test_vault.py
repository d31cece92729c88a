"""The table of sealed secrets on both engines: owners, lost keys, rotation while others write, and what the database shows."""

import threading
from pathlib import Path

import pytest
import sqlalchemy as sa

from hopnode.worker.errors import ConfigurationError, Conflict, SecretUnreadable
from hopnode.worker.store.collections import create_collection, delete_collection
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs.leases import try_lease
from hopnode.worker.store.secret_rotation import rotate
from hopnode.worker.store.secrets.keyring import Keyring
from hopnode.worker.store.secrets.vault import HiddenFields, Vault
from hopnode.worker.store.sources import sources
from hopnode.worker.store.sources.sources import Source, owner_of
from hopnode.worker.store.tables import sealed_secrets
from hopnode.worker.store.workspaces import create_workspace


@pytest.fixture
def vault(database: Database, tmp_path: Path) -> Vault:
    return Vault(database, Keyring(tmp_path / "secret_key"))


class _Shelf:
    """A collection that sources are put into."""

    def __init__(self, db: Database, vault: Vault) -> None:
        self.db, self.vault = db, vault
        self.workspace = create_workspace(db, "acme")
        self.collection = create_collection(db, self.workspace.id, "docs")

    def add(self, name: str, **values: str) -> Source:
        return sources.create_source(
            self.db,
            self.workspace.id,
            self.collection.id,
            kind="website",
            name=name,
            config={},
            hidden=HiddenFields(self.vault, values),
        )


@pytest.fixture
def shelf(database: Database, vault: Vault) -> _Shelf:
    return _Shelf(database, vault)


def _count(db: Database) -> int:
    with db.read() as connection:
        return connection.execute(sa.select(sa.func.count()).select_from(sealed_secrets)).scalar_one()


def test_secrets_are_kept_by_owner_and_field(shelf: _Shelf) -> None:
    one, two = shelf.add("one", a="1", b="2"), shelf.add("two", a="3")
    assert shelf.vault.open(owner_of(one)) == {"a": "1", "b": "2"}
    assert shelf.vault.open(owner_of(two)) == {"a": "3"}


def test_no_key_is_made_before_there_is_a_secret(shelf: _Shelf, tmp_path: Path) -> None:
    shelf.add("one")
    assert not (tmp_path / "secret_key").exists()
    shelf.add("two", a="1")
    assert (tmp_path / "secret_key").exists()


def test_new_secrets_take_the_place_of_all_old_ones(shelf: _Shelf) -> None:
    one = shelf.add("one", a="1", b="2")
    new = HiddenFields(shelf.vault, {"b": "3"})
    sources.update_source(shelf.db, one.workspace_id, one.id, config={}, hidden=new)
    assert shelf.vault.open(owner_of(one)) == {"b": "3"}
    sources.update_source(shelf.db, one.workspace_id, one.id, name="other")
    assert shelf.vault.open(owner_of(one)) == {"b": "3"}


def test_no_secret_outlives_its_source(shelf: _Shelf) -> None:
    one = shelf.add("one", a="1")
    shelf.add("two", a="1")
    sources.delete_source(shelf.db, one.workspace_id, one.id)
    assert _count(shelf.db) == 1
    delete_collection(shelf.db, shelf.workspace.id, "docs")
    assert _count(shelf.db) == 0


def test_a_sealed_value_that_is_copied_to_another_source_does_not_open(shelf: _Shelf) -> None:
    one, two = shelf.add("one", a="1"), shelf.add("two", a="2")
    stolen = sa.select(sealed_secrets.c.sealed).where(sealed_secrets.c.owner_id == one.id).scalar_subquery()
    with shelf.db.write() as connection:
        connection.execute(sealed_secrets.update().where(sealed_secrets.c.owner_id == two.id).values(sealed=stolen))
    with pytest.raises(SecretUnreadable, match=two.id):
        shelf.vault.open(owner_of(two))
    assert list(shelf.vault.check().unreadable) == [f"source {two.id} a"]


def test_a_lost_key_is_named_and_not_replaced_in_silence(shelf: _Shelf, tmp_path: Path) -> None:
    one = shelf.add("one", a="1")
    (tmp_path / "secret_key").rename(tmp_path / "backup")
    with pytest.raises(SecretUnreadable, match="Put it back"):
        shelf.vault.open(owner_of(one))
    with pytest.raises(ConfigurationError, match="is lost"):
        shelf.add("two", a="2")
    assert [source.name for source in sources.list_sources(shelf.db, shelf.workspace.id)] == ["one"]
    (tmp_path / "backup").rename(tmp_path / "secret_key")
    assert shelf.vault.open(owner_of(one)) == {"a": "1"}


def test_a_rotation_moves_every_secret_to_a_new_key(shelf: _Shelf) -> None:
    made = [shelf.add(f"s{number}", a=str(number), b="x") for number in range(130)]
    before = shelf.vault.keyring.newest()
    done = rotate(shelf.db, shelf.vault)
    assert (done.made, done.resealed) == (True, 260)
    assert done.key_id != before.id
    state = shelf.vault.check()
    assert (state.by_key, state.unreadable) == ({done.key_id: 260}, {})
    assert [shelf.vault.open(owner_of(source))["a"] for source in made] == [str(number) for number in range(130)]


def test_a_rotation_that_was_broken_off_goes_on_under_the_same_key(shelf: _Shelf) -> None:
    shelf.add("one", a="1")
    newest = shelf.vault.keyring.add_newest()  # as far as a process came that died here
    shelf.add("two", a="2")
    done = rotate(shelf.db, shelf.vault)
    assert (done.key_id, done.made, done.resealed) == (newest.id, False, 1)
    assert rotate(shelf.db, shelf.vault).made


def test_a_rotation_passes_over_what_does_not_open(shelf: _Shelf) -> None:
    one, two = shelf.add("one", a="1"), shelf.add("two", a="2")
    with shelf.db.write() as connection:
        mine = sealed_secrets.c.owner_id == one.id
        connection.execute(sealed_secrets.update().where(mine).values(sealed="v1:gone:" + "A" * 64))
    assert rotate(shelf.db, shelf.vault).resealed == 1
    assert shelf.vault.open(owner_of(two)) == {"a": "2"}
    assert list(shelf.vault.check().unreadable) == [f"source {one.id} a"]


def test_two_rotations_at_once_are_one_too_many(shelf: _Shelf) -> None:
    shelf.add("one", a="1")
    assert try_lease(shelf.db, "secret-rotation", "another", 60)
    with pytest.raises(Conflict, match="rotates"):
        rotate(shelf.db, shelf.vault)


def test_a_secret_that_is_changed_during_a_rotation_keeps_the_change(shelf: _Shelf) -> None:
    made = [shelf.add(f"s{number}", a="old") for number in range(60)]
    started = threading.Event()

    def change() -> None:
        started.set()
        for source in made:
            new = HiddenFields(shelf.vault, {"a": "new"})
            sources.update_source(shelf.db, source.workspace_id, source.id, config={}, hidden=new)

    writer = threading.Thread(target=change)
    writer.start()
    started.wait()
    rotate(shelf.db, shelf.vault)
    writer.join()
    assert {shelf.vault.open(owner_of(source))["a"] for source in made} == {"new"}


def test_the_repr_of_hidden_fields_shows_no_secret(vault: Vault) -> None:
    assert "planted" not in repr(HiddenFields(vault, {"a": "planted"}))
