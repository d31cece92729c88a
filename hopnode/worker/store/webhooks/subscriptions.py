"""Webhooks of a workspace: which URL is told of which events, with which signing secrets. It sends nothing."""

import hashlib
import secrets
from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any

import sqlalchemy as sa

from hopnode.worker.errors import InvalidRequest, NotFound
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs.deliveries import EVENTS
from hopnode.worker.store.secrets.vault import Owner, Vault
from hopnode.worker.store.tables import webhooks
from hopnode.worker.store.workspaces import workspace_in

CURRENT, PREVIOUS = "current", "previous"


@dataclass(frozen=True)
class Webhook:
    """A URL that is told of events (all of them when `events` is empty).

    `disabled_reason` is a slug, None while it is told. `failing_since`: the first failure after the last success, in seconds
    since the epoch.
    """

    id: str
    workspace_id: str
    url: str
    events: list[str]
    disabled_reason: str | None
    failing_since: float | None
    created_at: float
    updated_at: float


def put_webhook(
    db: Database, vault: Vault, workspace_id: str, url: str, events: Collection[str], *, new_secret: str | None
) -> tuple[Webhook, bool]:
    """Adds the webhook of this URL, or changes the one that there is and enables it again; says whether it is new.

    `new_secret` signs from now on; the secret before it signs beside it until the next one comes. Raises InvalidRequest for an
    event that does not exist, and for a webhook that is new without a secret.
    """
    if unknown := set(events) - set(EVENTS):
        raise InvalidRequest(f"There are no such events: {', '.join(sorted(unknown))}.")
    before = find_by_url(db, workspace_id, url)
    held = vault.open(owner_of(before)) if before and new_secret else {}
    with db.write() as connection:
        workspace_in(connection, workspace_id)
        now = db.now(connection)
        values = {"events": sorted(events), "disabled_reason": None, "failing_since": None, "updated_at": now}
        update = webhooks.update().where(_by_url(workspace_id, url)).values(**values).returning(*webhooks.c)
        row = connection.execute(update).mappings().one_or_none()
        is_new = row is None
        if row is None:
            fixed = {"id": secrets.token_hex(12), "workspace_id": workspace_id, "url": url, "url_sha256": _hash(url)}
            insert = webhooks.insert().values(**fixed, **values, created_at=now).returning(*webhooks.c)
            row = connection.execute(insert).mappings().one()
        webhook = _to_webhook(row)
        if new_secret is not None:
            rotate_in(connection, vault, owner_of(webhook), held, new_secret)
        elif is_new:
            raise InvalidRequest("A new webhook needs a secret.")
        return webhook, is_new


def list_webhooks(db: Database, workspace_id: str) -> list[Webhook]:
    """The webhooks of the workspace, oldest first."""
    statement = sa.select(webhooks).where(webhooks.c.workspace_id == workspace_id)
    with db.read() as connection:
        rows = connection.execute(statement.order_by(webhooks.c.created_at, webhooks.c.id)).mappings()
        return [_to_webhook(row) for row in rows]


def find_by_url(db: Database, workspace_id: str, url: str) -> Webhook | None:
    """The webhook of this URL, if there is one."""
    with db.read() as connection:
        row = connection.execute(sa.select(webhooks).where(_by_url(workspace_id, url))).mappings().one_or_none()
    return None if row is None else _to_webhook(row)


def delete_webhook(db: Database, workspace_id: str, url: str) -> None:
    """Forgets the webhook with its secrets and deliveries; raises NotFound."""
    with db.write() as connection:
        if connection.execute(webhooks.delete().where(_by_url(workspace_id, url))).rowcount == 0:
            raise NotFound("There is no webhook with this URL in this workspace.")


def callback_secrets(db: Database, vault: Vault, workspace_id: str, fresh: str) -> dict[str, str]:
    """The secrets that sign the callbacks of the workspace; `fresh` becomes the first one where there is none."""
    owner = callbacks_of(workspace_id)
    if held := vault.open(owner):
        return held
    with db.write() as connection:
        if not vault.has_in(connection, owner):
            vault.replace_in(connection, owner, {CURRENT: fresh})
    return vault.open(owner)


def rotate_callback_secret(db: Database, vault: Vault, workspace_id: str, new_secret: str) -> None:
    """Signs the callbacks of the workspace with `new_secret` and, until the next one comes, with the one before it too."""
    owner = callbacks_of(workspace_id)
    held = vault.open(owner)
    with db.write() as connection:
        workspace_in(connection, workspace_id)
        rotate_in(connection, vault, owner, held, new_secret)


def rotate_in(connection: sa.Connection, vault: Vault, owner: Owner, held: dict[str, str], new_secret: str) -> None:
    """Writes the two secrets that sign from now on."""
    previous = {PREVIOUS: held[CURRENT]} if CURRENT in held else {}
    vault.replace_in(connection, owner, {CURRENT: new_secret, **previous})


def owner_of(webhook: Webhook) -> Owner:
    """The name under which the vault keeps the secrets of the webhook."""
    return Owner(webhook.workspace_id, "webhook", webhook.id)


def callbacks_of(workspace_id: str) -> Owner:
    """The name under which the vault keeps what signs the callbacks of the workspace."""
    return Owner(workspace_id, "workspace", workspace_id)


def _hash(url: str) -> str:
    """An index over whole URLs would break PostgreSQL's limit for an entry."""
    return hashlib.sha256(url.encode()).hexdigest()


def _by_url(workspace_id: str, url: str) -> sa.ColumnElement[bool]:
    return sa.and_(webhooks.c.workspace_id == workspace_id, webhooks.c.url_sha256 == _hash(url))


def _to_webhook(row: sa.RowMapping) -> Webhook:
    values: dict[str, Any] = {field.name: row[field.name] for field in fields(Webhook)}
    return Webhook(**values)
