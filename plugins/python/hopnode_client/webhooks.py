"""Webhooks of a node, checked and read: Standard Webhooks 1.0.0, symmetric signatures (`v1`). Knows no web framework.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from pydantic import Field, JsonValue, ValidationError

from hopnode_client.errors import Misuse, WebhookRejected
from hopnode_client.records import Record

TOLERANCE_SECONDS = 300
_PREFIX = "whsec_"


class WebhookData(Record):
    """The job that an event is about: fetch its result by `id`. `metadata` is what the request gave to the callback."""

    id: str
    kind: str = ""
    status: str = ""
    metadata: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])


class WebhookEvent(Record):
    """An event such as `search.succeeded`, `sync.failed` or `evaluation.cancelled`.

    `id` stays the same when the node sends it again: remember it, and do nothing the second time.
    """

    id: str = ""
    type: str
    timestamp: datetime
    data: WebhookData


def verify_webhook(headers: Mapping[str, str], body: bytes | str, secret: str | Sequence[str]) -> WebhookEvent:
    """The event in a webhook that really comes from the node, signed at most five minutes ago.

    `body` is the raw body as it came. While a secret is being changed, give both, the old and the new one. Raises
    WebhookRejected for what must not be trusted, and Misuse for a secret that is none.
    """
    raw = body.encode() if isinstance(body, str) else body
    keys = [_key(one) for one in ([secret] if isinstance(secret, str) else secret)]
    if not keys:
        raise Misuse("There is no secret to check with.", "Give the one that the node showed (`whsec_…`).")
    sent = {name.lower(): value for name, value in headers.items()}
    event_id, timestamp, signatures = (_header(sent, f"webhook-{name}") for name in ("id", "timestamp", "signature"))
    _check_age(timestamp)
    signed = b".".join((event_id.encode(), timestamp.encode(), raw))
    if not _any_equal((_sign(key, signed) for key in keys), _signatures(signatures)):
        raise WebhookRejected("No signature fits.", "Is this the secret of this node, and the raw body as it came?")
    try:
        return WebhookEvent.model_validate_json(raw).model_copy(update={"id": event_id})
    except ValidationError as error:
        raise WebhookRejected("The signature is right, but the body is no event of Hopnode.") from error


def _key(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.strip().removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError) as error:
        raise Misuse("The secret is not base64.", "It looks like whsec_…, as the node showed it.") from error
    if not key:
        raise Misuse("The secret is empty.", "It looks like whsec_…, as the node showed it.")
    return key


def _header(sent: Mapping[str, str], name: str) -> str:
    if not (value := sent.get(name, "")):
        raise WebhookRejected(f"The header {name} is missing.")
    return value


def _check_age(timestamp: str) -> None:
    if not (timestamp.isascii() and timestamp.isdigit()) or len(timestamp) > 12:
        raise WebhookRejected("The header webhook-timestamp is no time.")
    if abs(time.time() - int(timestamp)) > TOLERANCE_SECONDS:
        raise WebhookRejected(
            "The webhook is more than five minutes old, or from the future.", "Are both clocks right?"
        )


def _sign(key: bytes, signed: bytes) -> bytes:
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest())


def _signatures(header: str) -> list[bytes]:
    """The signatures of version 1 in the header; others, such as `v1a`, are for receivers with public keys."""
    return [part.removeprefix("v1,").encode() for part in header.split() if part.startswith("v1,")]


def _any_equal(expected: Iterable[bytes], found: Sequence[bytes]) -> bool:
    """Whether one is right, in a time that does not tell which or how nearly."""
    equal = False
    for one in expected:
        for other in found:
            equal |= hmac.compare_digest(one, other)
    return equal
