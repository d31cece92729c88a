"""Signatures, held against the library of Standard Webhooks."""

import base64
import json
import time

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from hopnode.worker.webhooks.signing import new_secret, signature

BODY = json.dumps({"type": "search.succeeded", "data": {"text": "Zürich"}}, ensure_ascii=False).encode()


def _headers(*secrets: str, body: bytes = BODY) -> dict[str, str]:
    now = int(time.time())
    return {
        "webhook-id": "d1",
        "webhook-timestamp": str(now),
        "webhook-signature": signature(secrets, "d1", now, body),
    }


def test_the_library_verifies_what_we_sign() -> None:
    secret = new_secret()
    assert Webhook(secret).verify(BODY, _headers(secret)) == json.loads(BODY)


def test_during_a_rotation_both_secrets_verify() -> None:
    old, new = new_secret(), new_secret()
    for secret in (old, new):
        assert Webhook(secret).verify(BODY, _headers(new, old))


@pytest.mark.parametrize("change", ["webhook-id", "webhook-timestamp", "body", "secret"])
def test_whatever_is_changed_breaks_the_signature(change: str) -> None:
    secret = new_secret()
    headers, body = _headers(secret), BODY
    if change == "body":
        body += b" "
    elif change == "secret":
        secret = new_secret()
    else:
        headers[change] = str(int(time.time()) - 60) if change == "webhook-timestamp" else "d2"
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(body, headers)


def test_a_signature_is_the_same_for_ever() -> None:
    secret = "whsec_" + base64.b64encode(bytes(range(32))).decode()
    made = signature([secret], "msg_1", 1_700_000_000, b'{"a":1}')
    assert made == "v1,AMaOha7DUT/0J0JMycRuYOBSvbx3WtwLd2khXXbaVj4="


def test_a_new_secret_has_the_form_of_the_specification() -> None:
    secret = new_secret()
    assert 24 <= len(base64.b64decode(secret.removeprefix("whsec_"))) <= 64
    assert new_secret() != secret


@pytest.mark.parametrize("secret", ["plain", "whsec_not base64"])
def test_what_is_no_secret_is_refused(secret: str) -> None:
    with pytest.raises(ValueError, match="signing secret"):
        signature([secret], "d1", 1, b"")
