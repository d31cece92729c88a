"""Signatures of Standard Webhooks 1.0.0; knows no delivery and no network."""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Iterable

PREFIX = "whsec_"
_KEY_BYTES = 32


def new_secret() -> str:
    """A fresh signing secret: `whsec_` and 32 random bytes in base64 (the specification allows 24 to 64)."""
    return PREFIX + base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()


def signature(signing_secrets: Iterable[str], message_id: str, timestamp: int, body: bytes) -> str:
    """The header `webhook-signature`: one `v1,…` for each secret, with a space between, over id, timestamp and body.

    `timestamp` is in whole seconds since the epoch. Raises ValueError for a secret of another form.
    """
    signed = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
    return " ".join(f"v1,{_digest(secret, signed)}" for secret in signing_secrets)


def _digest(secret: str, signed: bytes) -> str:
    if not secret.startswith(PREFIX):
        raise ValueError(f"a signing secret begins with {PREFIX}")
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError("a signing secret is base64 behind its prefix") from error
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
