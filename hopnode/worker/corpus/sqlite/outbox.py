"""What the vector index still has to learn, the lease of the one who tells it, and which generation of it is current.

Statements on the workspace's file only; the vector index itself is told by `draining.py`.
"""

import hashlib
import os
import re
import secrets
import socket
import time
from dataclasses import dataclass

from hopnode.worker.corpus.folder_lock import process_lives
from hopnode.worker.corpus.sqlite.reading import CollectionRow
from hopnode.worker.corpus.sqlite.text_store import Connection

_PLAIN_ID = re.compile(r"[A-Za-z0-9]{1,64}")


@dataclass(frozen=True)
class Change:
    """One entry of the outbox: chunk `row` is new or changed (`upsert`) or gone (`delete`)."""

    seq: int
    op: str
    row: int


def vector_name(workspace_id: str, collection_id: str, generation: int) -> str:
    """Name of a collection's vector index; from ids only, so that nothing a user typed gets there."""
    ids = [one if _PLAIN_ID.fullmatch(one) else _digest(one) for one in (workspace_id, collection_id)]
    return f"hn-{ids[0]}-{ids[1]}-g{generation}"


def _digest(text: str) -> str:
    return "x" + hashlib.sha256(text.encode()).hexdigest()[:32]


def pending(connection: Connection, number: int, limit: int) -> list[Change]:
    """The oldest changes that were not applied, in order."""
    statement = "SELECT seq, op, row FROM outbox WHERE collection = ? ORDER BY seq LIMIT ?"
    return [Change(*row) for row in connection.execute(statement, (number, limit))]


def vector_lag(connection: Connection, number: int) -> int:
    """How many changes the vector index does not know yet."""
    return int(connection.execute("SELECT count(*) FROM outbox WHERE collection = ?", (number,)).fetchone()[0])


def last_seq(connection: Connection, number: int) -> int:
    """The newest entry of the outbox, 0 when it is empty."""
    found = connection.execute("SELECT max(seq) FROM outbox WHERE collection = ?", (number,)).fetchone()[0]
    return int(found or 0)


def lagging_collections(connection: Connection) -> list[int]:
    """Numbers of the collections with something in the outbox."""
    return [row[0] for row in connection.execute("SELECT DISTINCT collection FROM outbox ORDER BY collection")]


def take_lease(connection: Connection, number: int, token: str, seconds: float) -> bool:
    """Takes or renews the right to change the collection's vector index. Returns False while another one holds it.

    A holder on this machine that has died holds nothing.
    """
    found = connection.execute("SELECT drain_token, drain_until FROM collection WHERE number = ?", (number,)).fetchone()
    if found is None:
        return False
    holder, until = found
    now = time.time()
    if holder not in (None, token) and until >= now and not _has_died(holder):
        return False
    update = "UPDATE collection SET drain_token = ?, drain_until = ? WHERE number = ?"
    connection.execute(update, (token, now + seconds, number))
    return True


def new_token() -> str:
    """Names a holder of a lease: machine, process, and one run of it."""
    return f"{socket.gethostname()} {os.getpid()} {secrets.token_hex(8)}"


def _has_died(holder: str) -> bool:
    host, _, process = holder.rpartition(" ")[0].rpartition(" ")
    return host == socket.gethostname() and process.isdigit() and not process_lives(int(process))


def drop_lease(connection: Connection, number: int, token: str) -> None:
    """Gives the right back."""
    connection.execute(
        "UPDATE collection SET drain_token = NULL, drain_until = 0 WHERE number = ? AND drain_token = ?",
        (number, token),
    )


def mark_applied(connection: Connection, number: int, token: str, seq: int, removed: int) -> bool:
    """Notes that the vector index knows everything up to `seq`, for which it removed some. Returns False when the lease was lost.

    What a vector index removes stays in its graph and its files until the index is built again.
    """
    updated = connection.execute(
        "UPDATE collection SET applied_seq = max(applied_seq, ?), dead = dead + ? WHERE number = ? AND drain_token = ?",
        (seq, removed, number, token),
    )
    if updated.rowcount:
        connection.execute("DELETE FROM outbox WHERE collection = ? AND seq <= ?", (number, seq))
    return bool(updated.rowcount)


def switch_generation(connection: Connection, collection: CollectionRow, token: str, seq: int, old_name: str) -> bool:
    """Makes the next generation the current one, built from the state at `seq`; the old index becomes an orphan."""
    updated = connection.execute(
        "UPDATE collection SET generation = ?, applied_seq = max(applied_seq, ?), dead = 0 "
        "WHERE number = ? AND drain_token = ?",
        (collection.generation + 1, seq, collection.number, token),
    )
    if updated.rowcount:
        connection.execute("DELETE FROM outbox WHERE collection = ? AND seq <= ?", (collection.number, seq))
        connection.execute("INSERT OR IGNORE INTO orphan (name) VALUES (?)", (old_name,))
    return bool(updated.rowcount)


def orphans(connection: Connection) -> list[str]:
    """Names of vector indexes that must go."""
    return [row[0] for row in connection.execute("SELECT name FROM orphan ORDER BY name")]


def forget_orphan(connection: Connection, name: str) -> None:
    """The vector index of that name is gone."""
    connection.execute("DELETE FROM orphan WHERE name = ?", (name,))


def mark_dropped(connection: Connection) -> None:
    """Notes that the whole workspace is to be removed once its vector indexes are."""
    connection.execute("INSERT INTO dropped (at) VALUES (?)", (time.time(),))


def is_dropped(connection: Connection) -> bool:
    """Whether the workspace is to be removed."""
    return connection.execute("SELECT 1 FROM dropped").fetchone() is not None
