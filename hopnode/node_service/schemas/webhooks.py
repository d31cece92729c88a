"""The JSON of webhooks: who wants to be told of what, and what became of every telling."""

from datetime import datetime
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, ConfigDict, Field, JsonValue, StringConstraints
from pydantic_core import PydanticCustomError

from hopnode.node_service.schemas.base import STORABLE, Incoming, JsonObject, Outgoing
from hopnode.worker.store.jobs.deliveries import Delivery
from hopnode.worker.store.webhooks.outbox import Attempt
from hopnode.worker.store.webhooks.subscriptions import Webhook

HEADERS_MOST = 20
_OURS = frozenset(
    {"host", "content-length", "content-type", "transfer-encoding", "connection", "te", "upgrade", "expect"}
)

SearchEvent = Literal["search.succeeded", "search.failed", "search.cancelled"]
Event = Literal[
    SearchEvent,
    "sync.finished",
    "sync.needs_confirmation",
    "sync.failed",
    "sync.cancelled",
    "evaluation.succeeded",
    "evaluation.failed",
    "evaluation.cancelled",
]
DeliveryStatus = Literal["pending", "delivered", "dead"]


def _plain_url(text: str) -> str:
    """What a request can be sent to; where it leads is checked when it is sent."""
    try:
        parts = urlsplit(text)
        well_formed = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        well_formed = False
        parts = urlsplit("")
    if not well_formed or parts.username is not None or parts.password is not None:
        raise PydanticCustomError("webhook_url", "Give an http(s) URL with a host, without user name and password")
    return text


def _own_headers(headers: dict[str, str]) -> dict[str, str]:
    for name in headers:
        if name.lower() in _OURS or name.lower().startswith("webhook-"):
            raise PydanticCustomError("reserved_header", "The node itself sets the header {name}", {"name": name})
    if len({name.lower() for name in headers}) < len(headers):
        raise PydanticCustomError("repeated_header", "Name each header once")
    return headers


WebhookUrl = Annotated[
    str, StringConstraints(min_length=1, max_length=2048, pattern=r"^[\x21-\x7e]+$"), AfterValidator(_plain_url)
]
_HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$", max_length=100)]
_HeaderValue = Annotated[str, StringConstraints(pattern=r"^[\x20-\x7e]*$", max_length=4096), STORABLE]


class CallbackCreate(Incoming):
    """Who is told when one search ends."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"url": "https://n8n.example.com/webhook-waiting/231", "metadata": {"run": 7}}}
    )

    url: WebhookUrl
    events: list[SearchEvent] = Field(
        default_factory=list[SearchEvent], description="Empty: all of them.", max_length=3
    )
    headers: Annotated[dict[_HeaderName, _HeaderValue], AfterValidator(_own_headers)] = Field(
        default_factory=dict[_HeaderName, _HeaderValue],
        max_length=HEADERS_MOST,
        description="Sent with the call; stored sealed and never shown.",
    )
    metadata: JsonObject = Field(
        default_factory=dict[str, JsonValue], description="Comes back in `data.metadata` of the call."
    )


class WebhookPut(Incoming):
    """A URL that is to be told of events of the workspace."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"url": "https://example.com/hopnode", "events": ["search.succeeded"]}}
    )

    url: WebhookUrl
    events: list[Event] = Field(default_factory=list[Event], description="Empty: all of them.", max_length=20)
    rotate_secret: bool = Field(
        default=False,
        description="Sign with a new secret; the one before it signs beside it until the next rotation.",
    )


class WebhookRead(Outgoing):
    """A webhook of the workspace."""

    id: str
    url: str
    events: list[str] = Field(description="Empty: all of them.")
    disabled_reason: str | None = Field(
        description="`gone`: it answered 410; `failing`: nothing but failures for five days. PUT it to enable it."
    )
    created_at: datetime
    updated_at: datetime
    secret: str | None = Field(default=None, description="Only when it was made just now: it is shown this one time.")

    @classmethod
    def of(cls, webhook: Webhook, secret: str | None = None) -> Self:
        """The webhook, with its secret if that was made just now."""
        return cls.model_validate(vars(webhook) | {"secret": secret})


class SecretRead(Outgoing):
    """A signing secret that was made just now; it is shown this one time."""

    secret: str = Field(examples=["whsec_…"])


class AttemptRead(Outgoing):
    """One try of a delivery."""

    number: int
    started_at: datetime
    seconds: float = Field(description="How long it took.")
    status: int | None = Field(description="The HTTP status, if there was an answer.")
    error: str | None


class DeliveryRead(Outgoing):
    """One event that is owed to one URL."""

    id: str = Field(description="The `webhook-id` of every attempt.")
    event: str
    url: str
    webhook_id: str | None = Field(description="Null for the callback of a search.")
    job_id: str
    status: DeliveryStatus
    created_at: datetime
    next_attempt_at: datetime | None = Field(description="While it is pending.")
    delivered_at: datetime | None
    error: str | None = Field(description="What was wrong with the last attempt.")
    attempts: list[AttemptRead] = Field(description="Oldest first.")

    @classmethod
    def of(cls, delivery: Delivery, attempts: list[Attempt]) -> Self:
        """The delivery with its attempts."""
        due = delivery.next_at if delivery.status == "pending" else None
        told = {"next_attempt_at": due, "error": delivery.last_error, "attempts": [vars(one) for one in attempts]}
        return cls.model_validate(vars(delivery) | told)
