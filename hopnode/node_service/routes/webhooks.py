"""Webhooks and deliveries over HTTP: who is told of events, and what became of every telling. Nothing is sent here."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from hopnode.node_service.http.dependencies import (
    LIMIT_DEFAULT,
    CurrentNode,
    Cursor,
    Db,
    Limit,
    NodeRoute,
    WorkspaceAdmin,
)
from hopnode.node_service.http.paging import decode_cursor, encode_cursor
from hopnode.node_service.http.problems import refusals
from hopnode.node_service.schemas.base import Page
from hopnode.node_service.schemas.webhooks import (
    DeliveryRead,
    DeliveryStatus,
    SecretRead,
    WebhookPut,
    WebhookRead,
    WebhookUrl,
)
from hopnode.worker.store.webhooks import outbox, subscriptions
from hopnode.worker.webhooks import signing

router = APIRouter(route_class=NodeRoute, tags=["webhooks"])


@router.put(
    "/v1/webhooks",
    summary="Put a webhook",
    responses={201: {"model": WebhookRead, "description": "It is new."}} | refusals("too-large"),
)
def put_webhook(
    identity: WorkspaceAdmin, body: WebhookPut, node: CurrentNode, db: Db, response: Response
) -> WebhookRead:
    """Adds the webhook of this URL, or changes the one that there is and enables it; a new secret is shown this one time."""
    workspace_id = identity.workspace.id
    known = subscriptions.find_by_url(db, workspace_id, body.url)
    secret = signing.new_secret() if known is None or body.rotate_secret else None
    webhook, is_new = subscriptions.put_webhook(
        db, node.runtime.vault, workspace_id, body.url, body.events, new_secret=secret
    )
    response.status_code = 201 if is_new else 200
    return WebhookRead.of(webhook, secret)


@router.get("/v1/webhooks", summary="List webhooks")
def list_webhooks(identity: WorkspaceAdmin, db: Db) -> Page[WebhookRead]:
    """The webhooks of the workspace, oldest first."""
    found = subscriptions.list_webhooks(db, identity.workspace.id)
    return Page[WebhookRead](items=[WebhookRead.of(webhook) for webhook in found])


@router.delete(
    "/v1/webhooks",
    status_code=204,
    response_class=Response,
    summary="Delete a webhook",
    responses=refusals("not-found"),
)
def delete_webhook(
    identity: WorkspaceAdmin, db: Db, url: Annotated[WebhookUrl, Query(description="The URL of the webhook.")]
) -> None:
    """Forgets a webhook, its secrets and its deliveries."""
    subscriptions.delete_webhook(db, identity.workspace.id, url)


@router.post("/v1/webhooks/callback-secret", summary="Make the secret of callbacks")
def make_callback_secret(identity: WorkspaceAdmin, node: CurrentNode, db: Db) -> SecretRead:
    """A new secret for calls to URLs that are no webhook of the workspace. The one before signs beside it until the next one."""
    secret = signing.new_secret()
    subscriptions.rotate_callback_secret(db, node.runtime.vault, identity.workspace.id, secret)
    return SecretRead(secret=secret)


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
