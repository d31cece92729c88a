"""The configuration of a source, taken apart: what may be read stays with the source, its secrets go to the vault.

Which fields are secret, the form of the connector says; what a field is for is not known here.
"""

from collections.abc import Mapping

import sqlalchemy as sa
from pydantic import JsonValue

from hopnode.connectors import registry, secret_fields
from hopnode.connectors.errors import InvalidConfig
from hopnode.worker.errors import SecretUnreadable
from hopnode.worker.logs import get_logger
from hopnode.worker.store.database import Database
from hopnode.worker.store.secrets.vault import HiddenFields, Owner, Vault
from hopnode.worker.store.sources.sources import Source, owner_of
from hopnode.worker.store.tables import sources

_log = get_logger(__name__)


def whole_config(vault: Vault, source: Source) -> dict[str, JsonValue]:
    """The configuration with its secrets, for a connector. Raises SecretUnreadable, which says what to do."""
    try:
        return secret_fields.reveal(registry.config_schema(source.kind), source.config, vault.open(owner_of(source)))
    except InvalidConfig as error:
        raise SecretUnreadable(str(error)) from error


def given_config(kind: str, config: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The configuration of a source to be; raises InvalidConfig for a mask in place of a secret, and an unknown kind."""
    return secret_fields.reveal(registry.config_schema(kind), config, {})


def changed_config(vault: Vault, source: Source, change: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The whole configuration after a change: a secret field that is left out or masked stays, and null takes it away.

    Raises InvalidConfig, and SecretUnreadable when a secret that stays does not open.
    """
    schema = registry.config_schema(source.kind)
    carried, needs_old = secret_fields.carry(schema, source.config, change)
    return secret_fields.reveal(schema, carried, vault.open(owner_of(source)) if needs_old else {})


def take_apart(vault: Vault, kind: str, config: Mapping[str, JsonValue]) -> tuple[dict[str, JsonValue], HiddenFields]:
    """A whole configuration as it is stored: masked, and the secrets that go to the vault."""
    masked, values = secret_fields.hide(registry.config_schema(kind), config)
    return masked, HiddenFields(vault, values)


def hide_clear_secrets(db: Database, vault: Vault) -> int:
    """Moves the secrets that older versions kept in clear into the vault; returns how many sources had some.

    Runs at every start, since a kind may get its first secret field in a later version; does nothing when all is well.
    A source that is changed meanwhile keeps what the change gave it.
    """
    with db.read() as connection:
        rows = connection.execute(sa.select(sources)).mappings().all()
    moved = sum(_hide_one(db, vault, row) for row in rows)
    if moved:
        db.drop_traces()
        _log.info("clear_secrets_sealed", sources=moved)
    return moved


def _hide_one(db: Database, vault: Vault, row: sa.RowMapping) -> bool:
    if row["kind"] not in registry.CONNECTORS:
        return False
    masked, hidden = take_apart(vault, row["kind"], row["config"])
    if not hidden.values:
        return False
    unchanged = sa.and_(sources.c.id == row["id"], sources.c.updated_at == row["updated_at"])
    with db.write() as connection:
        if connection.execute(sources.update().where(unchanged).values(config=masked)).rowcount == 0:
            return False
        hidden.write_in(connection, Owner(row["workspace_id"], "source", row["id"]))
    return True
