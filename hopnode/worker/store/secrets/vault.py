"""Secrets by owner and field, sealed in a table of their own; what a secret is good for is not known here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import sqlalchemy as sa

from hopnode.worker.errors import ConfigurationError, SecretUnreadable
from hopnode.worker.logs import get_logger
from hopnode.worker.store.database import Database
from hopnode.worker.store.secrets.keyring import KEY_SETTING, Keyring, key_id_of, sealed_by
from hopnode.worker.store.tables import sealed_secrets

OwnerKind: TypeAlias = Literal["source", "webhook", "job", "workspace"]

_BATCH = 100

_log = get_logger(__name__)


@dataclass(frozen=True)
class Owner:
    """Whose secrets: a source, a webhook or a job of a workspace, or the workspace itself.

    A sealed value opens for its own owner only.
    """

    workspace_id: str
    kind: OwnerKind
    id: str


@dataclass(frozen=True)
class VaultState:
    """What a look at every secret found: how many there are by key id, and what is wrong with each that does not open."""

    by_key: Mapping[str, int]
    unreadable: Mapping[str, str]


@dataclass(frozen=True)
class HiddenFields:
    """Secrets by field, and the vault that they go to. `repr` shows none of them."""

    vault: "Vault"
    values: Mapping[str, str] = field(repr=False)

    def write_in(self, connection: sa.Connection, owner: Owner) -> None:
        """Makes them the secrets of the owner, in the transaction that writes the rest of it."""
        self.vault.replace_in(connection, owner, self.values)


class Vault:
    """The sealed secrets of a node. Safe to share between threads."""

    def __init__(self, db: Database, keyring: Keyring) -> None:
        self._db = db
        self.keyring = keyring

    def replace_in(self, connection: sa.Connection, owner: Owner, values: Mapping[str, str]) -> None:
        """Makes `values` (secret by field) the secrets of the owner, in the caller's transaction.

        Raises ConfigurationError when the node's secret key is lost.
        """
        connection.execute(sealed_secrets.delete().where(_of(owner)))
        if not values:
            return
        self._have_key(connection)
        now = self._db.now(connection)
        rows = [
            {
                "workspace_id": owner.workspace_id,
                "owner_kind": owner.kind,
                "owner_id": owner.id,
                **_as_parent(owner),
                "field": name,
                "sealed": self.keyring.seal(value, _about(owner, name)),
                "updated_at": now,
            }
            for name, value in values.items()
        ]
        connection.execute(sealed_secrets.insert(), rows)

    def open(self, owner: Owner) -> dict[str, str]:
        """The secrets of the owner by field; raises SecretUnreadable when one of them does not open."""
        with self._db.read() as connection:
            rows = connection.execute(
                sa.select(sealed_secrets.c.field, sealed_secrets.c.sealed).where(_of(owner))
            ).all()
        opened: dict[str, str] = {}
        for name, sealed in rows:
            try:
                opened[name] = self.keyring.unseal(sealed, _about(owner, name))
            except SecretUnreadable as error:
                raise SecretUnreadable(f"The secret {name} of the {owner.kind} {owner.id}: {error}") from error
        return opened

    def has_in(self, connection: sa.Connection, owner: Owner) -> bool:
        """Whether the owner has any secret, in the caller's transaction."""
        return connection.execute(sa.select(sealed_secrets.c.field).where(_of(owner)).limit(1)).first() is not None

    def capability(self, *about: str) -> str | None:
        """A token that proves that this node allowed what the words say; None when the node's secret key is lost."""
        try:
            if not self.keyring.keys():
                with self._db.write() as connection:
                    self._have_key(connection)
            return self.keyring.stamp(about)
        except ConfigurationError as error:
            _log.warning("no_capability", error=str(error))
            return None

    def check(self) -> VaultState:
        """Opens every secret of the node, batch by batch, and keeps none."""
        by_key: dict[str, int] = {}
        unreadable: dict[str, str] = {}
        after: tuple[str, str, str] | None = None
        while rows := self._batch(after):
            for row in rows:
                owner, after = _owner(row), (row["owner_kind"], row["owner_id"], row["field"])
                try:
                    key = key_id_of(row["sealed"])
                    by_key[key] = by_key.get(key, 0) + 1
                    self.keyring.unseal(row["sealed"], _about(owner, row["field"]))
                except SecretUnreadable as error:
                    unreadable[f"{owner.kind} {owner.id} {row['field']}"] = str(error)
        return VaultState(by_key, unreadable)

    def reseal(self) -> int:
        """Seals every secret of an older key under the newest one, batch by batch; returns how many.

        Safe while the node runs and safe to break off: what is done stays done, and a secret that was changed meanwhile is
        left as it is. A secret that does not open is passed over; `check` names it.
        """
        done, after = 0, None
        while rows := self._batch(after):
            after = (rows[-1]["owner_kind"], rows[-1]["owner_id"], rows[-1]["field"])
            newest = sealed_by(self.keyring.newest())
            done += self._reseal([row for row in rows if not row["sealed"].startswith(newest)])
        return done

    def _reseal(self, rows: list[sa.RowMapping]) -> int:
        done = 0
        with self._db.write() as connection:
            for row in rows:
                about = _about(_owner(row), row["field"])
                try:
                    sealed = self.keyring.seal(self.keyring.unseal(row["sealed"], about), about)
                except SecretUnreadable:
                    continue
                same = sa.and_(_of(_owner(row)), sealed_secrets.c.field == row["field"])
                same = sa.and_(same, sealed_secrets.c.sealed == row["sealed"])
                done += connection.execute(sealed_secrets.update().where(same).values(sealed=sealed)).rowcount
        return done

    def _batch(self, after: tuple[str, str, str] | None) -> list[sa.RowMapping]:
        key = (sealed_secrets.c.owner_kind, sealed_secrets.c.owner_id, sealed_secrets.c.field)
        statement = sa.select(sealed_secrets).order_by(*key).limit(_BATCH)
        if after is not None:
            statement = statement.where(sa.tuple_(*key) > sa.tuple_(*after))
        with self._db.read() as connection:
            return list(connection.execute(statement).mappings())

    def _have_key(self, connection: sa.Connection) -> None:
        """Makes the first key at the first need; a key that is lost while secrets need it is not replaced in silence."""
        if self.keyring.keys():
            return
        if connection.execute(sa.select(sealed_secrets.c.field).limit(1)).first() is not None:
            raise ConfigurationError(
                f"The secret key {self.keyring.place} is lost, and stored secrets need it. Restore the file from a backup "
                f"or set {KEY_SETTING}; on another machine than the one that made it, set {KEY_SETTING} on both."
            )
        self.keyring.make_first()


def _of(owner: Owner) -> sa.ColumnElement[bool]:
    return sa.and_(
        sealed_secrets.c.workspace_id == owner.workspace_id,
        sealed_secrets.c.owner_kind == owner.kind,
        sealed_secrets.c.owner_id == owner.id,
    )


def _as_parent(owner: Owner) -> dict[str, str]:
    """The column that makes the secret go with its owner."""
    return {f"{owner.kind}_id": owner.id}


def _owner(row: sa.RowMapping) -> Owner:
    return Owner(row["workspace_id"], row["owner_kind"], row["owner_id"])


def _about(owner: Owner, name: str) -> tuple[str, str, str, str]:
    return owner.workspace_id, owner.kind, owner.id, name
