"""Rows that owe somebody a webhook, written in the transaction that ends a job; sending them is not known here."""

import secrets
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from pydantic import JsonValue

from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs.record import Job, JsonObject
from hopnode.worker.store.tables import deliveries, webhooks


@dataclass(frozen=True)
class Delivery:
    """One event owed to one URL; `payload` is the body of the Standard Webhooks form `{type, timestamp, data}`.

    `webhook_id` is None for the callback of a job. `attempts` counts all tries, `round_start` those before the last replay.
    """

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
    webhook_id: str | None
    round_start: int
    last_status: int | None
    last_error: str | None
    delivered_at: float | None


EVENTS = (
    *("search.succeeded", "search.failed", "search.cancelled"),
    *("sync.finished", "sync.needs_confirmation", "sync.failed", "sync.cancelled"),
    *("evaluation.succeeded", "evaluation.failed", "evaluation.cancelled"),
)
"""All that a node tells of; `docs/webhooks.md` has a line for each."""


def event_of(job: Job) -> str:
    """What the end of a job is called. A sync that held back deletes succeeded as a job, and still needs somebody."""
    if job.kind != "sync" or job.status != "succeeded":
        return f"{job.kind}.{job.status}"
    note = job.result.get("note") if isinstance(job.result, dict) else None
    return "sync.needs_confirmation" if note == "needs-confirmation" else "sync.finished"


def add_deliveries_in(connection: sa.Connection, job: Job, *, now: float) -> int:
    """Owes the end of `job` to its callback and to the webhooks of its workspace that want it; returns to how many.

    In the caller's transaction, which ends the job. The payload is thin: the result is added when it is sent.
    """
    event = event_of(job)
    rows: list[dict[str, object]] = []
    if job.callback is not None and _wanted(job.callback.get("events"), event):
        rows.append(_owed(job, event, now, job.callback["url"], job.callback.get("metadata") or {}))
    enabled = sa.select(webhooks.c.id, webhooks.c.url, webhooks.c.events).where(
        webhooks.c.workspace_id == job.workspace_id, webhooks.c.disabled_reason.is_(None)
    )
    for webhook_id, url, events in connection.execute(enabled):
        if _wanted(events, event):
            rows.append(_owed(job, event, now, url, {}) | {"webhook_id": webhook_id})
    for row in rows:
        connection.execute(deliveries.insert().values(**row))
    return len(rows)


def pending(db: Database, *, limit: int = 100) -> list[Delivery]:
    """Deliveries whose next attempt is due, oldest first."""
    with db.read() as connection:
        statement = (
            select_deliveries()
            .where(deliveries.c.status == "pending", deliveries.c.next_at <= db.now(connection))
            .order_by(deliveries.c.next_at, deliveries.c.id)
            .limit(limit)
        )
        return [to_delivery(row) for row in connection.execute(statement).mappings()]


def deliveries_of(db: Database, job_id: str) -> list[Delivery]:
    """All deliveries of one job, oldest first."""
    with db.read() as connection:
        statement = (
            select_deliveries().where(deliveries.c.job_id == job_id).order_by(deliveries.c.created_at, deliveries.c.id)
        )
        return [to_delivery(row) for row in connection.execute(statement).mappings()]


def _owed(job: Job, event: str, now: float, url: JsonValue, metadata: JsonValue) -> dict[str, object]:
    data = {"id": job.id, "kind": job.kind, "status": str(job.status), "metadata": metadata}
    return {
        "id": secrets.token_hex(12),
        "workspace_id": job.workspace_id,
        "job_id": job.id,
        "url": url,
        "event": event,
        "payload": {"type": event, "timestamp": datetime.fromtimestamp(now, UTC).isoformat(), "data": data},
        "status": "pending",
        "next_at": now,
        "created_at": now,
    }


def _wanted(events: JsonValue, event: str) -> bool:
    """No list of events, or an empty one, asks for all of them."""
    return not events or (isinstance(events, list) and event in events)


def select_deliveries() -> sa.Select[tuple[object, ...]]:
    """The columns that `to_delivery` reads."""
    return sa.select(*(deliveries.c[field.name] for field in fields(Delivery)))


def to_delivery(row: sa.RowMapping) -> Delivery:
    """The record of a row that holds at least these columns."""
    values: dict[str, Any] = {field.name: row[field.name] for field in fields(Delivery)}
    return Delivery(**values)
