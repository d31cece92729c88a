"""What can go wrong with an HTTP endpoint, in our words: one table for the transport, one for statuses. Knows no call."""

from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from hopnode.worker.errors import ModelRefused, ModelUnavailable, NodeError


@dataclass(frozen=True)
class Translation:
    """What a foreign failure is in our tree: the class, a stable reason, and the words after "The … endpoint …".
    `{settings}` in the words stands for the prefix of the endpoint's settings."""

    error: type[NodeError]
    reason: str
    words: str


_UNAVAILABLE, _REFUSED = ModelUnavailable, ModelRefused

TRANSPORT_TABLE: Mapping[type[Exception], Translation] = {
    httpx.ConnectTimeout: Translation(_UNAVAILABLE, "connect", "did not accept a connection in time"),
    httpx.ConnectError: Translation(_UNAVAILABLE, "connect", "cannot be reached"),
    httpx.ReadTimeout: Translation(_UNAVAILABLE, "timeout", "did not answer in time"),
    httpx.WriteTimeout: Translation(_UNAVAILABLE, "timeout", "did not take the request in time"),
    httpx.PoolTimeout: Translation(_UNAVAILABLE, "timeout", "could not be asked in time"),
    httpx.ReadError: Translation(_UNAVAILABLE, "disconnect", "broke off the connection"),
    httpx.WriteError: Translation(_UNAVAILABLE, "disconnect", "broke off the connection"),
    httpx.CloseError: Translation(_UNAVAILABLE, "disconnect", "broke off the connection"),
    httpx.RemoteProtocolError: Translation(_UNAVAILABLE, "disconnect", "broke off the connection or spoke no HTTP"),
    httpx.LocalProtocolError: Translation(_REFUSED, "configuration", "cannot be asked with these settings"),
    httpx.ProxyError: Translation(_UNAVAILABLE, "connect", "cannot be reached through the proxy"),
    httpx.UnsupportedProtocol: Translation(_REFUSED, "configuration", "must be an http or https URL"),
    httpx.DecodingError: Translation(_UNAVAILABLE, "garbage", "sent a body that cannot be decoded"),
    httpx.TooManyRedirects: Translation(_REFUSED, "redirect", "redirects"),
    httpx.InvalidURL: Translation(_REFUSED, "configuration", "has an address that is no URL"),
    UnicodeEncodeError: Translation(
        _REFUSED, "configuration", "cannot be asked: the key or address is not plain ASCII"
    ),
}

STATUS_TABLE: tuple[tuple[range, Translation], ...] = (
    (range(100, 200), Translation(_UNAVAILABLE, "garbage", "gave no final answer")),
    (range(201, 300), Translation(_UNAVAILABLE, "garbage", "gave a success without a completion")),
    (range(300, 400), Translation(_REFUSED, "redirect", "redirects; set {settings}_URL to the final address")),
    (range(400, 401), Translation(_REFUSED, "bad-request", "refused the request")),
    (range(401, 402), Translation(_REFUSED, "unauthorized", "did not accept the key; check {settings}_API_KEY")),
    (range(402, 403), Translation(_REFUSED, "payment", "wants payment")),
    (range(403, 404), Translation(_REFUSED, "unauthorized", "forbids the request; check {settings}_API_KEY")),
    (range(404, 405), Translation(_REFUSED, "unknown-model", "knows no such model or path; check {settings}_MODEL")),
    (range(405, 408), Translation(_REFUSED, "bad-request", "refused the request")),
    (range(408, 410), Translation(_UNAVAILABLE, "busy", "asks to try again")),
    (range(410, 413), Translation(_REFUSED, "bad-request", "refused the request")),
    (range(413, 414), Translation(_REFUSED, "prompt-too-long", "finds the request too large")),
    (range(414, 425), Translation(_REFUSED, "bad-request", "refused the request")),
    (range(425, 426), Translation(_UNAVAILABLE, "busy", "asks to try again")),
    (range(426, 429), Translation(_REFUSED, "bad-request", "refused the request")),
    (range(429, 430), Translation(_UNAVAILABLE, "rate-limit", "limits the rate of requests")),
    (range(430, 500), Translation(_REFUSED, "bad-request", "refused the request")),
    (range(500, 600), Translation(_UNAVAILABLE, "server-error", "had an error of its own")),
)
