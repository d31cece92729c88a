"""Webhooks: what the node signs is taken, what anybody else sends is not. The reference library signs for the node."""

import base64
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks import Webhook

from hopnode_client import HopnodeError, Misuse, WebhookRejected, verify_webhook

SECRET = "whsec_" + base64.b64encode(b"a secret of twenty-four bytes").decode()
OTHER = "whsec_" + base64.b64encode(b"another secret of many bytes").decode()
BODY = json.dumps(
    {
        "type": "search.succeeded",
        "timestamp": "2026-12-01T03:00:00+00:00",
        "data": {"id": "9b2f", "kind": "search", "status": "succeeded", "metadata": {"flow": "é"}, "new": 1},
    },
    ensure_ascii=False,
)


def signed(secret: str = SECRET, age: float = 0, body: str = BODY) -> dict[str, str]:
    at = datetime.fromtimestamp(int(time.time() - age), UTC)
    signature = Webhook(secret).sign("msg_1", at, body)
    stamp = str(int(at.timestamp()))
    return {"Webhook-Id": "msg_1", "webhook-timestamp": stamp, "WEBHOOK-SIGNATURE": signature}


@pytest.mark.parametrize("body", [BODY, BODY.encode()])
def test_what_the_node_signs_is_an_event(body: str | bytes) -> None:
    event = verify_webhook(signed(), body, SECRET)
    assert (event.id, event.type, event.timestamp) == (
        "msg_1",
        "search.succeeded",
        datetime(2026, 12, 1, 3, tzinfo=UTC),
    )
    assert (event.data.id, event.data.kind, event.data.status) == ("9b2f", "search", "succeeded")
    assert event.data.metadata == {"flow": "é"} and event.data.model_extra == {"new": 1}


def test_one_good_signature_among_several_will_do() -> None:
    mine, other = signed(), signed(OTHER)
    both = mine | {"WEBHOOK-SIGNATURE": f"v1a,abc {other['WEBHOOK-SIGNATURE']} {mine['WEBHOOK-SIGNATURE']}"}
    assert verify_webhook(both, BODY, SECRET).id == "msg_1"


def test_while_a_secret_changes_both_are_good() -> None:
    assert verify_webhook(signed(SECRET), BODY, [OTHER, SECRET]).id == "msg_1"
    assert verify_webhook(signed(OTHER), BODY, [OTHER, SECRET]).id == "msg_1"


@pytest.mark.parametrize("age", [-299, 299])
def test_five_minutes_are_allowed_between_the_clocks(age: float) -> None:
    assert verify_webhook(signed(age=age), BODY, SECRET)


@pytest.mark.parametrize(
    ("forge", "body", "said"),
    [
        (lambda: signed(OTHER), BODY, "No signature fits"),
        (lambda: signed(), BODY + " ", "No signature fits"),
        (lambda: signed() | {"Webhook-Id": "msg_2"}, BODY, "No signature fits"),
        (lambda: signed() | {"WEBHOOK-SIGNATURE": "v1,"}, BODY, "No signature fits"),
        (
            lambda: signed() | {"WEBHOOK-SIGNATURE": "v1a," + signed()["WEBHOOK-SIGNATURE"][3:]},
            BODY,
            "No signature fits",
        ),
        (lambda: signed() | {"webhook-timestamp": str(int(time.time()) - 1)}, BODY, "No signature fits"),
        (lambda: signed() | {"webhook-timestamp": "²"}, BODY, "no time"),
        (lambda: signed() | {"webhook-timestamp": "9" * 400}, BODY, "no time"),
        (lambda: signed(age=400), BODY, "five minutes"),
        (lambda: signed(age=-400), BODY, "five minutes"),
        (dict, BODY, "webhook-id is missing"),
        (lambda: signed() | {"WEBHOOK-SIGNATURE": ""}, BODY, "webhook-signature is missing"),
        (lambda: signed(body="[]"), "[]", "no event"),
        (lambda: signed(body="{"), "{", "no event"),
    ],
)
def test_whatever_is_not_the_nodes_is_refused(forge: Callable[[], dict[str, str]], body: str, said: str) -> None:
    with pytest.raises(WebhookRejected, match=said) as caught:
        verify_webhook(forge(), body, SECRET)
    assert isinstance(caught.value, HopnodeError)


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_not base64!", [], ["whsec_"]])
def test_a_secret_that_is_none_is_a_mistake_of_the_receiver(secret: Any) -> None:
    with pytest.raises(Misuse):
        verify_webhook(signed(), BODY, secret)
