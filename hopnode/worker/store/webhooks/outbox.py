"""What is owed and what became of it: deliveries are claimed under a lease, recorded attempt by attempt, listed and replayed."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from uuid import uuid4

import sqlalchemy as sa

from hopnode.worker.errors import Conflict, InvalidRequest, NotFound
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs.deliveries import Delivery, select_deliveries, to_delivery
from hopnode.worker.store.tables import deliveries, delivery_attempts, webhooks

PENDING, DELIVERED, DEAD = "pending", "delivered", "dead"
FAILING_SECONDS = 5 * 86_400.0
"""A webhook that only failed for this long is not told any more, as Svix does."""


class Outcome(StrEnum):
    """What an attempt came to. `gone`: the receiver wants nothing any more."""

    DELIVERED = "delivered"
    RETRY = "retry"
    DEAD = "dead"
    GONE = "gone"


@dataclass(frozen=True)
class Claim:
    """The right to make attempt `number` of a delivery (from 1), `round_number` of its round (from 1, anew at each replay)."""

    delivery: Delivery
    number: int
    round_number: int
    token: str


@dataclass(frozen=True)
class Attempt:
    """One try: when, how long, the HTTP status if there was an answer, and what was wrong."""

    number: int
    started_at: float
    seconds: float
    status: int | None
    error: str | None


def claim_due(db: Database, lease_seconds: float) -> Claim | None:
    """Takes the delivery that is due longest, for so long that nobody else tries it meanwhile; None when none is due."""
    with db.read() as connection:
        if (
            connection.execute(sa.select(deliveries.c.id).where(_due(deliveries, db.now(connection))).limit(1)).first()
            is None
        ):
            return None
    token = uuid4().hex
    with db.write() as connection:
        now = db.now(connection)
        candidate = deliveries.alias("candidate")
        turn = (
            sa.select(candidate.c.id)
            .where(_due(candidate, now))
            .order_by(candidate.c.next_at, candidate.c.id)
            .limit(1)
            .with_for_update(skip_locked=True)
            .scalar_subquery()
        )
        take = (
            deliveries.update()
            .where(deliveries.c.id == turn, _due(deliveries, now))
            .values(lease_token=token, lease_until=now + lease_seconds, attempts=deliveries.c.attempts + 1)
            .returning(*deliveries.c)
        )
        row = connection.execute(take).mappings().one_or_none()
    if row is None:
        return None
    delivery = to_delivery(row)
    return Claim(delivery, delivery.attempts, delivery.attempts - delivery.round_start, token)


def record(db: Database, claim: Claim, attempt: Attempt, outcome: Outcome, delay_seconds: float) -> bool:
    """Writes down an attempt and what follows from it; False when the delivery is not ours any more.

    A webhook that is gone, or failed for five days, is disabled, and what it is still owed is dead.
    """
    mine = sa.and_(
        deliveries.c.id == claim.delivery.id, deliveries.c.lease_token == claim.token, deliveries.c.status == PENDING
    )
    with db.write() as connection:
        now = db.now(connection)
        status = {Outcome.DELIVERED: DELIVERED, Outcome.RETRY: PENDING}.get(outcome, DEAD)
        values = {
            "status": status,
            "next_at": now + delay_seconds,
            "lease_token": None,
            "lease_until": None,
            "last_status": attempt.status,
            "last_error": attempt.error,
            "delivered_at": now if status == DELIVERED else None,
        }
        if connection.execute(deliveries.update().where(mine).values(**values)).rowcount == 0:
            return False
        connection.execute(delivery_attempts.insert().values(delivery_id=claim.delivery.id, **vars(attempt)))
        if claim.delivery.webhook_id is not None:
            _judge_webhook(connection, claim.delivery.webhook_id, outcome, now)
    return True


def list_deliveries(
    db: Database, workspace_id: str, *, status: str | None, limit: int, before: str | None = None
) -> list[Delivery]:
    """Newest first, at most `limit`; `before` is the `position` of the last one of the page before."""
    statement = select_deliveries().where(deliveries.c.workspace_id == workspace_id)
    if status is not None:
        statement = statement.where(deliveries.c.status == status)
    if before is not None:
        statement = statement.where(sa.tuple_(deliveries.c.created_at, deliveries.c.id) < sa.tuple_(*_read(before)))
    with db.read() as connection:
        rows = connection.execute(
            statement.order_by(deliveries.c.created_at.desc(), deliveries.c.id.desc()).limit(limit)
        ).mappings()
        return [to_delivery(row) for row in rows]


def position(delivery: Delivery) -> str:
    """What `list_deliveries(before=…)` goes on behind."""
    return f"{delivery.created_at!r} {delivery.id}"


def attempts_of(db: Database, delivery_ids: Collection[str]) -> dict[str, list[Attempt]]:
    """The attempts of these deliveries, in order; a delivery without any is left out."""
    statement = (
        sa.select(delivery_attempts)
        .where(delivery_attempts.c.delivery_id.in_(delivery_ids))
        .order_by(delivery_attempts.c.delivery_id, delivery_attempts.c.number)
    )
    found: dict[str, list[Attempt]] = {}
    with db.read() as connection:
        for row in connection.execute(statement).mappings():
            values = dict(row)
            found.setdefault(values.pop("delivery_id"), []).append(Attempt(**values))
    return found


def replay(db: Database, workspace_id: str, delivery_id: str) -> Delivery:
    """Owes a delivery anew, at once and with all tries; its id stays, so that a receiver knows it again.

    Raises NotFound, and Conflict for one that is pending or whose webhook is disabled.
    """
    mine = sa.and_(deliveries.c.id == delivery_id, deliveries.c.workspace_id == workspace_id)
    with db.write() as connection:
        row = connection.execute(sa.select(deliveries).where(mine)).mappings().one_or_none()
        if row is None:
            raise NotFound(f"There is no delivery {delivery_id} in this workspace.")
        if row["status"] == PENDING:
            raise Conflict("The delivery is pending already: its next attempt comes by itself.")
        disabled = sa.select(webhooks.c.id).where(
            webhooks.c.id == row["webhook_id"], webhooks.c.disabled_reason.is_not(None)
        )
        if connection.execute(disabled).first() is not None:
            raise Conflict("The webhook of this delivery is disabled: PUT it again first.")
        values = {
            "status": PENDING,
            "next_at": db.now(connection),
            "round_start": row["attempts"],
            "delivered_at": None,
            "lease_token": None,
            "lease_until": None,
        }
        update = deliveries.update().where(mine).values(**values).returning(*deliveries.c)
        return to_delivery(connection.execute(update).mappings().one())


def _judge_webhook(connection: sa.Connection, webhook_id: str, outcome: Outcome, now: float) -> None:
    mine = webhooks.c.id == webhook_id
    if outcome is Outcome.DELIVERED:
        connection.execute(
            webhooks.update().where(mine, webhooks.c.failing_since.is_not(None)).values(failing_since=None)
        )
        return
    first = sa.func.coalesce(webhooks.c.failing_since, now)
    since = connection.execute(
        webhooks.update().where(mine).values(failing_since=first).returning(webhooks.c.failing_since)
    ).scalar_one_or_none()
    if since is None:
        return
    reason = "gone" if outcome is Outcome.GONE else "failing" if now - since > FAILING_SECONDS else None
    if reason is not None:
        connection.execute(webhooks.update().where(mine).values(disabled_reason=reason, updated_at=now))
        owed = sa.and_(deliveries.c.webhook_id == webhook_id, deliveries.c.status == PENDING)
        connection.execute(deliveries.update().where(owed).values(status=DEAD, last_error="The webhook was disabled."))


def _due(table: sa.FromClause, now: float) -> sa.ColumnElement[bool]:
    free = sa.or_(table.c.lease_until.is_(None), table.c.lease_until < now)
    return sa.and_(table.c.status == PENDING, table.c.next_at <= now, free)


def _read(place: str) -> tuple[float, str]:
    try:
        created_at, delivery_id = place.split(" ")
        return float(created_at), delivery_id
    except ValueError as error:
        raise InvalidRequest("This is not a cursor of a list of deliveries.") from error
