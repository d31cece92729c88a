"""The seam to chat models: one call in, one completion out, over any OpenAI-compatible endpoint. Knows no rules of a search.

Foreign errors are translated by the two tables below and nowhere else; there is one retry policy.
"""

import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Protocol, cast

import httpx
from pydantic import JsonValue

from worker.errors import ModelRefused, ModelUnavailable, NodeError
from worker.inference.chat_wire import error_of, read_completion, request_body
from worker.inference.messages import ChatRequest, Completion

MAX_ANSWER_BYTES = 16_000_000
"""An answer larger than this is treated as garbage."""
CONNECT_SECONDS = 10.0
"""Limit for opening a connection."""


class Abort:
    """Lets another thread end a model call that is in flight. Once set, it stays set."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._actions: list[Callable[[], None]] = []

    def set(self) -> None:
        """Ends the call now; safe to call from any thread, more than once."""
        with self._lock:
            self._event.set()
            for action in self._actions:
                action()

    @property
    def is_set(self) -> bool:
        """Whether the call is to end."""
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleeps; returns early, with True, when the call is to end."""
        return self._event.wait(seconds)

    @contextmanager
    def calling(self, action: Callable[[], None]) -> Generator[None, None, None]:
        """While inside, `set` runs `action`; at once when it was set before."""
        with self._lock:
            self._actions.append(action)
            if self._event.is_set():
                action()
        try:
            yield
        finally:
            with self._lock:
                self._actions.remove(action)


class ChatModel(Protocol):
    """Something that completes a conversation."""

    def complete(self, request: ChatRequest, abort: Abort | None = None) -> Completion:
        """The model's answer. ModelUnavailable: nothing usable came back; ModelRefused: the request itself is wrong."""
        ...


@dataclass(frozen=True)
class Translation:
    """What a foreign failure is in our tree: the class, a stable reason, and the words after "The chat endpoint …"."""

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
    (range(300, 400), Translation(_REFUSED, "redirect", "redirects; set HOPNODE_CHAT_URL to the final address")),
    (range(400, 401), Translation(_REFUSED, "bad-request", "refused the request")),
    (range(401, 402), Translation(_REFUSED, "unauthorized", "did not accept the key; check HOPNODE_CHAT_API_KEY")),
    (range(402, 403), Translation(_REFUSED, "payment", "wants payment")),
    (range(403, 404), Translation(_REFUSED, "unauthorized", "forbids the request; check HOPNODE_CHAT_API_KEY")),
    (range(404, 405), Translation(_REFUSED, "unknown-model", "knows no such model or path; check HOPNODE_CHAT_MODEL")),
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

PROMPT_TOO_LONG = frozenset({"BadRequestError", "context_length_exceeded"})
"""`error.type` or `error.code` of a 400 that means, for a request of our own making, that the prompt is too long."""


@dataclass(frozen=True)
class RetryPolicy:
    """Attempts, and how long to wait between them: full jitter over a doubling base, never past the total deadline."""

    attempts: int = 4
    base_seconds: float = 0.5
    longest_seconds: float = 30.0

    def delay(self, attempt: int, retry_after: float | None) -> float:
        """Seconds to wait after `attempt` (from 1); what the server asks for is the least."""
        drawn = random.uniform(0, min(self.longest_seconds, self.base_seconds * 2 ** (attempt - 1)))  # noqa: S311
        return max(drawn, retry_after or 0.0)


class HttpChat:
    """An OpenAI-compatible chat endpoint; thread-safe. Each attempt has a connection of its own, so that a cancelled call
    can be broken off without touching others, and no stale connection is ever used.

    `url` ends in /v1. `timeout_seconds` limits one attempt, `total_seconds` all attempts with their pauses.
    """

    def __init__(
        self,
        url: str,
        model: str,
        api_key: str | None = None,
        timeout_seconds: float = 120.0,
        *,
        total_seconds: float | None = None,
        retries: RetryPolicy | None = None,
    ) -> None:
        self._url = url.rstrip("/") + "/chat/completions"
        self._model = model
        self._key = api_key
        self._timeout = timeout_seconds
        self._total = total_seconds or timeout_seconds * 1.5
        self._retries = retries or RetryPolicy()
        self._refused_fields: frozenset[str] = frozenset()
        self._reasoning_fields: frozenset[str] = frozenset()

    def complete(self, request: ChatRequest, abort: Abort | None = None) -> Completion:
        """The answer, after as many attempts as the retry policy and the total deadline allow."""
        abort = abort or Abort()
        deadline = time.monotonic() + self._total
        attempt = 1
        while True:
            try:
                return self._attempt(request, attempt, deadline, abort)
            except ModelRefused as error:
                if not self._leave_out(str(error.details.get("param") or "")):
                    raise
            except ModelUnavailable as error:
                pause = self._retries.delay(attempt, cast(float | None, error.details.get("retry_after")))
                if attempt >= self._retries.attempts or time.monotonic() + pause >= deadline or abort.wait(pause):
                    raise
                attempt += 1

    def _attempt(self, request: ChatRequest, attempt: int, deadline: float, abort: Abort) -> Completion:
        body = request_body(
            request, self._model, attempt, refused=self._refused_fields, reasoning_fields=self._reasoning_fields
        )
        started = time.monotonic()
        until = min(deadline, started + self._timeout)
        try:
            status, headers, content = self._post(body, until, abort)
        except tuple(TRANSPORT_TABLE) as error:
            raise self._translated(TRANSPORT_TABLE[type(error)], str(error), aborted=abort.is_set) from error
        if status != 200:
            raise self._status_error(status, headers, content)
        try:
            completion, fields = read_completion(content, time.monotonic() - started)
        except ValueError as error:
            raise self._translated(Translation(_UNAVAILABLE, "garbage", "sent no completion"), str(error)) from error
        self._reasoning_fields |= fields
        return completion

    def _post(self, body: Mapping[str, JsonValue], until: float, abort: Abort) -> tuple[int, Mapping[str, str], bytes]:
        left = max(0.001, until - time.monotonic())
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        timeout = httpx.Timeout(left, connect=min(CONNECT_SECONDS, left))
        with (
            httpx.Client(verify=_tls() if self._url.startswith("https:") else False, trust_env=False) as client,
            closing(_Line()) as line,
            abort.calling(line.cut),
            client.stream(
                "POST", self._url, json=body, headers=headers, timeout=timeout, extensions={"trace": line.trace}
            ) as response,
        ):
            parts: list[bytes] = []
            size = 0
            for part in response.iter_bytes():
                parts.append(part)
                size += len(part)
                if size > MAX_ANSWER_BYTES:
                    raise httpx.DecodingError("the answer is larger than 16 MB")
                if time.monotonic() > until:
                    raise httpx.ReadTimeout("the answer trickles in too slowly")
            return response.status_code, response.headers, b"".join(parts)

    def _status_error(self, status: int, headers: Mapping[str, str], content: bytes) -> NodeError:
        translation = next((row for codes, row in STATUS_TABLE if status in codes), STATUS_TABLE[0][1])
        remote = error_of(content)
        reason = translation.reason
        if (
            status == 400
            and {remote.type, remote.code} & PROMPT_TOO_LONG
            and _field(remote.param) not in OPTIONAL_FIELDS
        ):
            reason = "prompt-too-long"
        return self._translated(
            Translation(translation.error, reason, translation.words),
            f"{status} {remote.message}".strip(),
            status=status,
            param=remote.param,
            retry_after=_retry_after(headers.get("retry-after", "")),
        )

    def _translated(self, row: Translation, detail: str, **details: object) -> NodeError:
        host = httpx.URL(self._url).host if row.reason != "configuration" else "of HOPNODE_CHAT_URL"
        detail = " ".join(detail.split())[:300]
        if self._key:
            detail = detail.replace(self._key, "…")
        message = f"The chat endpoint {host} {row.words}" + (f": {detail}" if detail else "")
        return row.error(message, reason=row.reason, **details)

    def _leave_out(self, param: str) -> bool:
        """Remembers an optional field that the endpoint refuses; False when the field is needed or was left out before."""
        name = _field(param)
        if name not in OPTIONAL_FIELDS or name in self._refused_fields:
            return False
        self._refused_fields |= {name}
        return True


OPTIONAL_FIELDS = frozenset(
    {"temperature", "top_p", "seed", "parallel_tool_calls", "max_tokens", "strict", "reasoning_effort"}
)
"""Fields without which a request still means the same; `max_tokens` is then sent as `max_completion_tokens`."""


def _field(param: str) -> str:
    """The last name in the path by which an endpoint names a field, as in `tools[0].function.strict`."""
    return param.rsplit(".", 1)[-1]


class _Line:
    """A second handle on the socket under a request in flight, by which another thread can cut it. The handle is our own,
    so cutting never meets a socket that is being wrapped in TLS, or closed and its number given to somebody else."""

    def __init__(self) -> None:
        self._handle: socket.socket | None = None
        self._is_cut = False

    def trace(self, event: str, info: Mapping[str, object]) -> None:
        """httpx tells what it does; a fresh connection is what we wait for."""
        if event == "connection.connect_tcp.complete":
            stream = cast("_Stream", info["return_value"])
            self._handle = cast(socket.socket, stream.get_extra_info("socket")).dup()
            if self._is_cut:
                self.cut()

    def cut(self) -> None:
        """Shuts the connection down in both directions, which wakes whoever reads from it."""
        self._is_cut = True
        if self._handle is not None:
            with suppress(OSError):
                self._handle.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Gives the handle back; nothing can be cut after that."""
        if self._handle is not None:
            self._handle.close()


class _Stream(Protocol):
    def get_extra_info(self, info: str) -> object: ...


@cache
def _tls() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


def _retry_after(header: str) -> float | None:
    """Seconds asked for by a Retry-After header, as a number or as a date; None when there is none."""
    if not header:
        return None
    with suppress(ValueError):
        return max(0.0, float(header))
    with suppress(ValueError):
        return max(0.0, (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds())
    return None
