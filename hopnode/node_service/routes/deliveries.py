"""Deliveries over HTTP: what was owed to whom, what became of it, and owing it anew."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from hopnode.node_service.http.dependencies import LIMIT_DEFAULT, Cursor, Db, Limit, NodeRoute, WorkspaceAdmin
from hopnode.node_service.http.paging import decode_cursor, encode_cursor
from hopnode.node_service.http.problems import refusals
from hopnode.node_service.schemas.base import Page
from hopnode.node_service.schemas.webhooks import DeliveryRead, DeliveryStatus
from hopnode.worker.store.webhooks import outbox

router = APIRouter(route_class=NodeRoute, tags=["webhooks"])


@router.get("/v1/deliveries", summary="List deliveries", responses=refusals("invalid-request"))
def list_deliveries(
    identity: WorkspaceAdmin,
    db: Db,
    status: Annotated[DeliveryStatus | None, Query(description="Only these.")] = None,
    limit: Limit = LIMIT_DEFAULT,
    cursor: Cursor = None,
) -> Page[DeliveryRead]:
    """The deliveries of the workspace with every attempt, newest first."""
    found = outbox.list_deliveries(
        db, identity.workspace.id, status=status, limit=limit + 1, before=decode_cursor(cursor)
    )
    page = found[:limit]
    attempts = outbox.attempts_of(db, [delivery.id for delivery in page])
    return Page[DeliveryRead](
        items=[DeliveryRead.of(delivery, attempts.get(delivery.id, [])) for delivery in page],
        next_cursor=encode_cursor(outbox.position(page[-1])) if len(found) > limit else None,
    )


@router.post(
    "/v1/deliveries/{delivery_id}/replay",
    status_code=202,
    summary="Replay a delivery",
    responses=refusals("not-found", "conflict"),
)
def replay_delivery(
    identity: WorkspaceAdmin,
    db: Db,
    delivery_id: Annotated[str, Path(max_length=64, description="Id of the delivery.")],
) -> DeliveryRead:
    """Sends a delivery again, with all its tries and under the same id; its receiver may know it already."""
    delivery = outbox.replay(db, identity.workspace.id, delivery_id)
    return DeliveryRead.of(delivery, outbox.attempts_of(db, [delivery.id]).get(delivery.id, []))
