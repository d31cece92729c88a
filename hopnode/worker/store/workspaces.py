"""Workspaces and their keys: who may come in. Knows what a key opens by name only; routes decide what a scope means."""

import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError

from hopnode.worker.errors import Conflict, InvalidField, InvalidRequest, NotFound, Unauthorized
from hopnode.worker.logs import get_logger
from hopnode.worker.store.checked_text import check_label, check_slug
from hopnode.worker.store.database import Database
from hopnode.worker.store.private_file import read_private, write_private
from hopnode.worker.store.tables import keys, workspaces

SCOPES = (
    "search:read",
    "search:write",
    "collections:read",
    "collections:write",
    "sources:read",
    "sources:write",
    "admin",
    "node:admin",
)
"""What keys can be allowed. `admin` manages the keys of the key's own workspace, `node:admin` makes and lists workspaces."""

DEFAULT_WORKSPACE = "default"

_TOKEN = re.compile(r"hn_([0-9a-f]{8})_([A-Za-z0-9_-]{43})")
_NOBODY = "0" * 64  # compared with when the key id is unknown, so that the answer takes as long
_USE_NOTED_EVERY_SECONDS = 60.0

_log = get_logger(__name__)


@dataclass(frozen=True)
class Workspace:
    """A tenant; nothing crosses from one workspace to another. `created_at` is in seconds since the epoch."""

    id: str
    name: str
    created_at: float


@dataclass(frozen=True)
class Key:
    """What is known of a key without its secret; times are seconds since the epoch.

    `last_used_at` is exact to a minute. A key with `revoked_at`, or past its `expires_at`, opens nothing.
    """

    id: str
    workspace_id: str
    name: str
    scopes: frozenset[str]
    created_at: float
    expires_at: float | None
    last_used_at: float | None
    revoked_at: float | None

    def valid_at(self, now: float) -> bool:
        """Whether the key opens its workspace at this time (seconds since the epoch)."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now)


def create_workspace(db: Database, name: str) -> Workspace:
    """Raises `InvalidRequest` for a name that breaks the rule, `Conflict` when it is taken."""
    check_slug(name, "workspace")
    try:
        with db.write() as connection:
            workspace = Workspace(secrets.token_hex(12), name, db.now(connection))
            connection.execute(workspaces.insert().values(id=workspace.id, name=name, created_at=workspace.created_at))
    except IntegrityError as error:
        raise Conflict(f"There is a workspace called `{name}` already.") from error
    return workspace


def get_workspace(db: Database, workspace_id: str) -> Workspace:
    """Raises `NotFound`."""
    with db.read() as connection:
        return workspace_in(connection, workspace_id)


def find_workspace(db: Database, name: str) -> Workspace | None:
    """The workspace of this name, or None."""
    with db.read() as connection:
        row = connection.execute(sa.select(workspaces).where(workspaces.c.name == name)).mappings().one_or_none()
    return None if row is None else Workspace(**row)


def list_workspaces(db: Database) -> list[Workspace]:
    """All workspaces by name."""
    with db.read() as connection:
        return [
            Workspace(**row) for row in connection.execute(sa.select(workspaces).order_by(workspaces.c.name)).mappings()
        ]


def workspace_in(connection: sa.Connection, workspace_id: str) -> Workspace:
    """The workspace as the caller's transaction sees it; raises `NotFound`."""
    row = connection.execute(sa.select(workspaces).where(workspaces.c.id == workspace_id)).mappings().one_or_none()
    if row is None:
        raise NotFound("There is no such workspace.")
    return Workspace(**row)


def create_key(
    db: Database, workspace_id: str, name: str, scopes: Iterable[str], expires_at: float | None = None
) -> tuple[Key, str]:
    """A new key and its plain text `hn_<8 hex>_<43 characters>`, which is not kept and cannot be shown again.

    Raises `NotFound`, and `InvalidRequest` for no or unknown scopes or an end that has passed.
    """
    check_label(name, "name of a key", 128)
    granted = frozenset(scopes)
    if not granted or not granted <= set(SCOPES):
        raise InvalidRequest(f"A key has one or more of these scopes: {', '.join(SCOPES)}.")
    while True:  # ends at the first turn unless the eight digits are taken, and then at the second
        token = _new_token()
        try:
            with db.write() as connection:
                now = db.now(connection)
                if expires_at is not None and not now < expires_at < math.inf:
                    raise InvalidField("expires_at", "not_in_future", "The end of a key lies in the future.")
                workspace_in(connection, workspace_id)
                return _insert_key(connection, workspace_id, token, name, granted, now, expires_at), token
        except IntegrityError:
            continue


def authenticate(db: Database, token: str) -> tuple[Key, Workspace]:
    """Whose key this is. Raises `Unauthorized`, the same for every reason, for all that is not a valid key."""
    with db.read() as connection:
        now = db.now(connection)
        key = _valid_key(connection, token, now)
        if key is None:
            raise Unauthorized("The key is missing, wrong, revoked or past its end.")
        workspace = workspace_in(connection, key.workspace_id)
    return _note_use(db, key, now), workspace


def list_keys(db: Database, workspace_id: str) -> list[Key]:
    """All keys of the workspace, the oldest first, with those that open nothing any more; raises `NotFound`."""
    mine = sa.select(keys).where(keys.c.workspace_id == workspace_id).order_by(keys.c.created_at, keys.c.id)
    with db.read() as connection:
        workspace_in(connection, workspace_id)
        return [_to_key(row) for row in connection.execute(mine).mappings()]


def revoke_key(db: Database, workspace_id: str, key_id: str, *, even_last: bool = False) -> Key:
    """Closes the key from now on; again does nothing. Raises `NotFound`.

    Raises `Conflict` for the last valid key with the scope `admin`, unless `even_last`: nobody could make another.
    """
    with db.write() as connection:
        now = db.now(connection)
        key = _key_in(connection, workspace_id, key_id)
        if not even_last and key.valid_at(now) and _admins(connection, workspace_id, now) == [key.id]:
            raise Conflict(
                f"The key {key_id} is the last one of its workspace with the scope `admin`: without it nobody can make keys. "
                "Make another first, or say that you mean it (`?force=true`, `hopnode keys revoke --force`)."
            )
        if key.revoked_at is not None:
            return key
        connection.execute(keys.update().where(keys.c.id == key_id).values(revoked_at=now))
        return replace(key, revoked_at=now)


def get_key(db: Database, workspace_id: str, key_id: str) -> Key:
    """Raises `NotFound`, also for a key of another workspace."""
    found = [key for key in list_keys(db, workspace_id) if key.id == key_id]
    if not found:
        raise NotFound(f"There is no key {key_id} in this workspace.")
    return found[0]


def rotate_key(db: Database, workspace_id: str, key_id: str, *, grace_seconds: float) -> tuple[Key, str]:
    """A new key with the name, the scopes and the end of this one, and its plain text; this one ends after the grace.

    Raises `NotFound`, and `Conflict` for a key that opens nothing any more.
    """
    token = _new_token()
    with db.write() as connection:
        now = db.now(connection)
        old = _key_in(connection, workspace_id, key_id)
        if not old.valid_at(now):
            raise Conflict(f"The key {key_id} is revoked or past its end; make a new one instead.")
        until = min(now + grace_seconds, old.expires_at or math.inf)
        connection.execute(keys.update().where(keys.c.id == key_id).values(expires_at=until))
        return _insert_key(connection, workspace_id, token, old.name, old.scopes, now, old.expires_at), token


def ensure_default(db: Database, key_file: Path) -> str:
    """The plain text of a valid key for the workspace `default`, made at the first start and kept in `key_file`.

    The file (mode 0600) is the only place of the plain text. It is written before the key's row is committed. A token in
    it that no row knows is taken up again. So neither a crash in between nor a lost database leaves a key behind that
    nobody can name. A lost file, or one whose key was revoked, gets a new key. Where the workspace has other keys with the
    scope `admin`, a warning in the log names them: one more is not made in silence.
    """
    stored = _stored_token(key_file)
    if stored is not None:
        with db.read() as connection:
            if _is_default_key(connection, stored, db.now(connection)):
                return stored
    with db.write() as connection:
        now = db.now(connection)
        workspace = _default_workspace(connection, now)
        stored = _stored_token(key_file)  # again: another process may have been faster
        if stored is not None and _is_default_key(connection, stored, now):
            return stored
        token = stored if stored is not None and not _knows_id(connection, stored) else _new_token()
        if token != stored:
            write_private(key_file, token)
        others = _admins(connection, workspace.id, now)
        _insert_key(connection, workspace.id, token, "first key", SCOPES, now)
        _log.info("default_key_made", file=str(key_file), workspace=workspace.id)
    if others:
        _log.warning(
            "another_admin_key_made",
            file=str(key_file),
            why="the file held no valid key",
            still_valid=others,
            mend="keep the data folder, and revoke keys that nobody uses with `hopnode keys revoke`",
        )
    return token


def _key_in(connection: sa.Connection, workspace_id: str, key_id: str) -> Key:
    statement = sa.select(keys).where(keys.c.id == key_id, keys.c.workspace_id == workspace_id).with_for_update()
    row = connection.execute(statement).mappings().one_or_none()
    if row is None:
        raise NotFound(f"There is no key {key_id} in this workspace.")
    return _to_key(row)


def _admins(connection: sa.Connection, workspace_id: str, now: float) -> list[str]:
    """Ids of the valid keys that can make keys, the oldest first."""
    mine = sa.select(keys).where(keys.c.workspace_id == workspace_id).order_by(keys.c.created_at, keys.c.id)
    found = [_to_key(row) for row in connection.execute(mine).mappings()]
    return [key.id for key in found if "admin" in key.scopes and key.valid_at(now)]


def _default_workspace(connection: sa.Connection, now: float) -> Workspace:
    """The workspace `default`, made if need be, locked until the transaction ends so that only one makes its key."""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    values = {"id": secrets.token_hex(12), "name": DEFAULT_WORKSPACE, "created_at": now}
    connection.execute(insert(workspaces).values(values).on_conflict_do_nothing())
    statement = sa.select(workspaces).where(workspaces.c.name == DEFAULT_WORKSPACE).with_for_update()
    return Workspace(**connection.execute(statement).mappings().one())


def _is_default_key(connection: sa.Connection, token: str, now: float) -> bool:
    key = _valid_key(connection, token, now)
    return key is not None and workspace_in(connection, key.workspace_id).name == DEFAULT_WORKSPACE


def _knows_id(connection: sa.Connection, token: str) -> bool:
    return connection.execute(sa.select(keys.c.id).where(keys.c.id == _split(token)[0])).first() is not None


def _stored_token(key_file: Path) -> str | None:
    text = read_private(key_file)
    return text if text is not None and _TOKEN.fullmatch(text) else None


def _valid_key(connection: sa.Connection, token: str, now: float) -> Key | None:
    """The key that this plain text opens at `now`, or None; the time it takes tells nothing about the secret."""
    if not _TOKEN.fullmatch(token):
        return None
    key_id, secret_sha256 = _split(token)
    row = connection.execute(sa.select(keys).where(keys.c.id == key_id)).mappings().one_or_none()
    known = _NOBODY if row is None else str(row["secret_sha256"])
    if not hmac.compare_digest(known, secret_sha256) or row is None:
        return None
    key = _to_key(row)
    return key if key.valid_at(now) else None


def _insert_key(
    connection: sa.Connection,
    workspace_id: str,
    token: str,
    name: str,
    scopes: Iterable[str],
    now: float,
    expires_at: float | None = None,
) -> Key:
    key_id, secret_sha256 = _split(token)
    key = Key(key_id, workspace_id, name, frozenset(scopes), now, expires_at, None, None)
    row = {**asdict(key), "scopes": sorted(key.scopes), "secret_sha256": secret_sha256}
    connection.execute(keys.insert().values(row))
    return key


def _new_token() -> str:
    """A random id to find the key by, and 256 random bits to prove it."""
    return f"hn_{secrets.token_hex(4)}_{secrets.token_urlsafe(32)}"


def _split(token: str) -> tuple[str, str]:
    """Id and SHA-256 of the secret; a fast hash is enough, since 256 random bits leave nothing to guess."""
    return token[3:11], hashlib.sha256(token[12:].encode()).hexdigest()


def _note_use(db: Database, key: Key, now: float) -> Key:
    """Writes at most once a minute, so that reading stays reading."""
    if key.last_used_at is not None and now - key.last_used_at < _USE_NOTED_EVERY_SECONDS:
        return key
    with db.write() as connection:
        connection.execute(keys.update().where(keys.c.id == key.id).values(last_used_at=now))
    return replace(key, last_used_at=now)


def _to_key(row: sa.RowMapping) -> Key:
    values: dict[str, Any] = {name: row[name] for name in Key.__dataclass_fields__}
    values["scopes"] = frozenset(row["scopes"])
    return Key(**values)
