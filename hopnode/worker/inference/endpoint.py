"""One HTTP endpoint of a model server: attempts, deadlines, cancelling, and foreign errors in our words. Knows no format.

Foreign errors are translated by the tables of `failures.py` and nowhere else; there is one retry policy.
"""

import random
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TypeVar, cast

import httpx
from pydantic import JsonValue

from hopnode.worker import tracing
from hopnode.worker.errors import ModelRefused, ModelUnavailable, NodeError
from hopnode.worker.inference.abort import Abort, Line
from hopnode.worker.inference.failures import STATUS_TABLE, TRANSPORT_TABLE, Translation
from hopnode.worker.inference.remote_error import error_of

MAX_ANSWER_BYTES = 16_000_000
"""An answer larger than this is treated as garbage."""
CONNECT_SECONDS = 10.0
"""Limit for opening a connection."""

T = TypeVar("T")


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


@dataclass(frozen=True)
class Named:
    """What an endpoint is called in messages, and the settings that a message may tell to check."""

    what: str
    settings: str

    def fill(self, words: str) -> str:
        """`words` with the settings of this endpoint in it."""
        return words.replace("{settings}", self.settings)


class Endpoint:
    """POST to one address; thread-safe. Each attempt has a connection of its own. So a cancelled call can be broken off
    without touching others, and no stale connection is ever used.

    `timeout_seconds` limits one attempt, `total_seconds` all attempts with their pauses. `optional` are fields without
    which a request still means the same: one that the endpoint refuses by name is left out from then on.
    """

    def __init__(
        self,
        url: str,
        named: Named,
        api_key: str | None = None,
        timeout_seconds: float = 120.0,
        *,
        total_seconds: float | None = None,
        retries: RetryPolicy | None = None,
        optional: frozenset[str] = frozenset(),
    ) -> None:
        self._url = url
        self._named = named
        self._key = api_key
        self._timeout = timeout_seconds
        self._total = total_seconds or timeout_seconds * 1.5
        self._retries = retries or RetryPolicy()
        self._optional = optional
        self._refused_fields: frozenset[str] = frozenset()

    def call(
        self,
        body: Callable[[int, frozenset[str]], Mapping[str, JsonValue]],
        read: Callable[[bytes, float], T],
        abort: Abort | None = None,
    ) -> T:
        """Asks as often as the retry policy and the total deadline allow, and returns what `read` makes of the answer. `read`
        gets its bytes and the seconds it took; a ValueError of `read` means another attempt. `body` gets the number of
        the attempt, from 1, and the fields to leave out."""
        abort = abort or Abort()
        deadline = time.monotonic() + self._total
        attempt = 1
        while True:
            try:
                return self._attempt(body(attempt, self._refused_fields), read, deadline, abort)
            except ModelRefused as error:
                if not self._leave_out(str(error.details.get("param") or "")):
                    raise
            except ModelUnavailable as error:
                pause = self._retries.delay(attempt, cast(float | None, error.details.get("retry_after")))
                if attempt >= self._retries.attempts or time.monotonic() + pause >= deadline or abort.wait(pause):
                    raise
                attempt += 1

    def _attempt(
        self, body: Mapping[str, JsonValue], read: Callable[[bytes, float], T], deadline: float, abort: Abort
    ) -> T:
        started = time.monotonic()
        until = min(deadline, started + self._timeout)
        try:
            status, headers, content = self._post(body, until, abort)
        except tuple(TRANSPORT_TABLE) as error:
            raise self._translated(TRANSPORT_TABLE[type(error)], str(error), aborted=abort.is_set) from error
        if status != 200:
            raise self._status_error(status, headers, content)
        try:
            return read(content, time.monotonic() - started)
        except ValueError as error:
            raise self._translated(
                Translation(ModelUnavailable, "garbage", "sent no answer of the right form"), str(error)
            ) from error

    def _post(self, body: Mapping[str, JsonValue], until: float, abort: Abort) -> tuple[int, Mapping[str, str], bytes]:
        left = max(0.001, until - time.monotonic())
        timeout = httpx.Timeout(left, connect=min(CONNECT_SECONDS, left))
        with (
            tracing.span(f"{self._named.what} call", "client") as note,
            httpx.Client(verify=_tls(secure=self._url.startswith("https:")), trust_env=False) as client,
            closing(Line()) as line,
            abort.calling(line.cut),
            client.stream(
                "POST", self._url, json=body, headers=self._headers(), timeout=timeout, extensions={"trace": line.trace}
            ) as response,
        ):
            note(http__response__status_code=response.status_code)
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

    def _headers(self) -> dict[str, str]:
        return tracing.headers() | ({"Authorization": f"Bearer {self._key}"} if self._key else {})

    def _status_error(self, status: int, headers: Mapping[str, str], content: bytes) -> NodeError:
        translation = next((row for codes, row in STATUS_TABLE if status in codes), STATUS_TABLE[0][1])
        remote = error_of(content)
        reason = translation.reason
        if (
            status == 400
            and {remote.type, remote.code} & PROMPT_TOO_LONG
            and _field(remote.param) not in self._optional
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
        host = httpx.URL(self._url).host if row.reason != "configuration" else f"of {self._named.settings}_URL"
        detail = " ".join(detail.split())[:300]
        if self._key:
            detail = detail.replace(self._key, "…")
        told = f"The {self._named.what} endpoint {host} {self._named.fill(row.words)}"
        message = told + (f": {detail}" if detail else "")
        return row.error(message, reason=row.reason, **details)

    def _leave_out(self, param: str) -> bool:
        """Remembers an optional field that the endpoint refuses. Returns False when the field is needed or was left out before."""
        name = _field(param)
        if name not in self._optional or name in self._refused_fields:
            return False
        self._refused_fields |= {name}
        return True


def _field(param: str) -> str:
    """The last name in the path by which an endpoint names a field, as in `tools[0].function.strict`."""
    return param.rsplit(".", 1)[-1]


@cache
def _tls(*, secure: bool) -> ssl.SSLContext:
    """Made once, since httpx would make one for every client; where it is not used it needs to know no authorities."""
    return httpx.create_ssl_context(trust_env=False) if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def _retry_after(header: str) -> float | None:
    """Seconds asked for by a Retry-After header, as a number or as a date. Returns None when there is none."""
    if not header:
        return None
    with suppress(ValueError):
        return max(0.0, float(header))
    with suppress(ValueError):
        return max(0.0, (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds())
    return None
