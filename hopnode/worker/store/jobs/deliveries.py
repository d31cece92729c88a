"""Rows that owe somebody a webhook, written in the transaction that ends a job; sending them is not known here."""

import secrets
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import cast

import sqlalchemy as sa

from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs.record import Job, JsonObject
from hopnode.worker.store.tables import deliveries


@dataclass(frozen=True)
class Delivery:
    """One webhook to one URL; `payload` is the body of the Standard Webhooks form `{type, timestamp, data}`."""

    id: str
    workspace_id: str
    job_id: str
    url: str
    event: str
    payload: JsonObject
    status: str
    attempts: int
    next_at: float
    created_at: float


def add_delivery_in(connection: sa.Connection, job: Job, event: str, *, now: float) -> bool:
    """Owes `event` to the callback of `job`, once, in the caller's transaction; False when nobody wants to know.

    The payload is thin (Standard Webhooks asks for less than 20 kB): the receiver fetches the result by the id.
    """
    if job.callback is None or not _wanted(job.callback, event):
        return False
    payload = {
        "type": event,
        "timestamp": datetime.fromtimestamp(now, UTC).isoformat(),
        "data": {
            "id": job.id,
            "kind": job.kind,
            "status": str(job.status),
            "metadata": job.callback.get("metadata") or {},
        },
    }
    connection.execute(
        deliveries.insert().values(
            id=secrets.token_hex(12),
            workspace_id=job.workspace_id,
            job_id=job.id,
            url=job.callback["url"],
            event=event,
            payload=payload,
            status="pending",
            next_at=now,
            created_at=now,
        )
    )
    return True


def pending(db: Database, *, limit: int = 100) -> list[Delivery]:
    """Deliveries whose next attempt is due, oldest first."""
    with db.read() as connection:
        statement = (
            _select()
            .where(deliveries.c.status == "pending", deliveries.c.next_at <= db.now(connection))
            .order_by(deliveries.c.next_at, deliveries.c.id)
            .limit(limit)
        )
        return [_to_delivery(row) for row in connection.execute(statement).mappings()]


def deliveries_of(db: Database, job_id: str) -> list[Delivery]:
    """All deliveries of one job, oldest first."""
    with db.read() as connection:
        statement = _select().where(deliveries.c.job_id == job_id).order_by(deliveries.c.created_at, deliveries.c.id)
        return [_to_delivery(row) for row in connection.execute(statement).mappings()]


def _wanted(callback: JsonObject, event: str) -> bool:
    """No list of events, or an empty one, asks for all of them."""
    events = callback.get("events")
    return not events or event in cast(list[str], events)


def _select() -> sa.Select[tuple[object, ...]]:
    return sa.select(*(deliveries.c[field.name] for field in fields(Delivery)))


def _to_delivery(row: sa.RowMapping) -> Delivery:
    return Delivery(**row)
