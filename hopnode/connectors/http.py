"""The one way out for HTTP: a transport that dials checked addresses only, and `get` with caps on time, bytes and redirects.
It knows nothing of sources, robots or items."""

import socket
import ssl
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from http.cookiejar import CookieJar, DefaultCookiePolicy
from threading import Thread
from typing import Any, TypeAlias

import httpcore
import httpx

from hopnode.connectors.bodies import decode_body
from hopnode.connectors.egress import EgressPolicy
from hopnode.connectors.errors import FetchTimeout, InvalidAddress, SourceUnreachable, TooManyRedirects

__all__ = ["EgressPolicy", "GuardedTransport", "Reply", "get", "open_client", "post", "resolve", "time_limit"]

MAX_REDIRECTS = 5
REDIRECTS = frozenset({301, 302, 303, 307, 308})

Resolver: TypeAlias = Callable[[str, int], Sequence[str]]
"""Name and port to addresses, in the order of preference; raises OSError when there is no such name."""

_deadline: ContextVar[float | None] = ContextVar("http_deadline", default=None)


def resolve(host: str, port: int) -> list[str]:
    """Addresses of `host` by the system's resolver, without repeats."""
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in infos))


@contextmanager
def time_limit(seconds: float) -> Generator[None]:
    """All waiting on the network inside the block ends after `seconds` in total, however slowly bytes drip in."""
    outer = _deadline.get()
    ends = time.monotonic() + seconds
    token = _deadline.set(ends if outer is None else min(ends, outer))
    try:
        yield
    finally:
        _deadline.reset(token)


def _left(timeout: float | None) -> float | None:
    """What remains of the time limit, at most `timeout`."""
    ends = _deadline.get()
    if ends is None:
        return timeout
    left = ends - time.monotonic()
    if left <= 0:
        raise httpcore.ReadTimeout("the time limit of the request is over")
    return left if timeout is None else min(left, timeout)


class _Stream(httpcore.NetworkStream):
    """A connection whose every wait is bounded by the time limit of the request that uses it."""

    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, _left(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, _left(timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _GuardedBackend(httpcore.NetworkBackend):
    """Opens connections for the pool: resolve once, check every address, dial what was checked.

    The pool above keeps the host name. So `Host`, SNI and the check of the certificate go by name. A kept connection is
    used again for the same name only.
    """

    def __init__(self, policy: EgressPolicy, resolver: Resolver) -> None:
        self._policy = policy
        self._resolver = resolver
        self._inner = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        addresses = self._policy.admit(host, port, self._resolve(host, port, _left(timeout)))
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for tried, address in enumerate(addresses):
            share = None if timeout is None else timeout / (len(addresses) - tried)
            try:
                return _Stream(self._inner.connect_tcp(str(address), port, _left(share), local_address, socket_options))
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    def _resolve(self, host: str, port: int, timeout: float | None) -> Sequence[str]:
        """Runs the resolver on a thread, as the system's has no time limit of its own."""
        answer: Future[Sequence[str]] = Future()

        def work() -> None:
            try:
                answer.set_result(self._resolver(host, port))
            except Exception as error:  # noqa: BLE001 - handed to the waiting thread, which raises it
                answer.set_exception(error)

        Thread(target=work, name="resolve", daemon=True).start()
        try:
            return answer.result(timeout)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(f"the name {host} was not resolved in time") from error
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"the name {host} cannot be resolved") from error


HTTPCORE_TO_HTTPX: Mapping[type[Exception], type[httpx.TransportError]] = {
    httpcore.ConnectTimeout: httpx.ConnectTimeout,
    httpcore.ReadTimeout: httpx.ReadTimeout,
    httpcore.WriteTimeout: httpx.WriteTimeout,
    httpcore.PoolTimeout: httpx.PoolTimeout,
    httpcore.TimeoutException: httpx.TimeoutException,
    httpcore.ConnectError: httpx.ConnectError,
    httpcore.ReadError: httpx.ReadError,
    httpcore.WriteError: httpx.WriteError,
    httpcore.NetworkError: httpx.NetworkError,
    httpcore.LocalProtocolError: httpx.LocalProtocolError,
    httpcore.RemoteProtocolError: httpx.RemoteProtocolError,
    httpcore.ProtocolError: httpx.ProtocolError,
    httpcore.UnsupportedProtocol: httpx.UnsupportedProtocol,
    httpcore.ProxyError: httpx.ProxyError,
}
"""Foreign errors, most special first; a test holds it against all errors that httpcore can raise."""


@contextmanager
def _as_httpx_errors() -> Generator[None]:
    try:
        yield
    except tuple(HTTPCORE_TO_HTTPX) as error:
        translated = next(to for known, to in HTTPCORE_TO_HTTPX.items() if isinstance(error, known))
        raise translated(str(error)) from error


class _Body(httpx.SyncByteStream):
    def __init__(self, stream: Iterable[bytes]) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        with _as_httpx_errors():
            yield from self._stream

    def close(self) -> None:
        if close := getattr(self._stream, "close", None):
            close()


class GuardedTransport(httpx.BaseTransport):
    """An httpx transport that refuses addresses the policy does not admit; it uses no proxy and follows no redirect.

    `verify` replaces the public certificate authorities, for sites with their own. Raises EgressBlocked and InvalidAddress
    besides the transport errors of httpx.
    """

    def __init__(
        self, policy: EgressPolicy, resolver: Resolver = resolve, verify: ssl.SSLContext | None = None
    ) -> None:
        self._pool = httpcore.ConnectionPool(
            ssl_context=verify or httpx.create_ssl_context(trust_env=False),
            max_connections=20,
            max_keepalive_connections=10,
            keepalive_expiry=30,
            network_backend=_GuardedBackend(policy, resolver),
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Sends one request."""
        url = request.url
        if url.scheme not in ("http", "https") or not url.host:
            raise InvalidAddress(f"{url.scheme or 'no scheme'}: only http and https URLs with a host can be fetched.")
        if url.userinfo:
            raise InvalidAddress(f"{url.host}: a URL must not carry a user name or password.")
        assert isinstance(request.stream, httpx.SyncByteStream)
        target = httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)
        with _as_httpx_errors():
            answer = self._pool.handle_request(
                httpcore.Request(
                    request.method,
                    target,
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions=request.extensions,
                )
            )
        assert isinstance(answer.stream, Iterable)
        return httpx.Response(
            answer.status, headers=answer.headers, stream=_Body(answer.stream), extensions=answer.extensions
        )

    def close(self) -> None:
        """Closes all connections."""
        self._pool.close()


def open_client(
    policy: EgressPolicy,
    *,
    user_agent: str,
    resolver: Resolver = resolve,
    verify: ssl.SSLContext | None = None,
) -> httpx.Client:
    """A client over the guarded transport: no environment, no cookies, no redirects of its own, 10 s a network step."""
    return httpx.Client(
        transport=GuardedTransport(policy, resolver, verify),
        headers={"user-agent": user_agent, "accept-encoding": "gzip, deflate"},
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
        timeout=10,
        trust_env=False,
        follow_redirects=False,
    )


@dataclass(frozen=True)
class Reply:
    """An answer with its decoded body; `url` is that of the last hop. `body` is empty when it was not wanted."""

    url: str
    status: int
    headers: httpx.Headers
    body: bytes = b""

    @property
    def media_type(self) -> str:
        """Media type in lower case, without parameters; empty when the server names none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def redirect(self) -> str | None:
        """Absolute URL that the answer points to, when it is a redirect."""
        location = self.headers.get("location")
        if self.status not in REDIRECTS or not location:
            return None
        try:
            return str(httpx.URL(self.url).join(location))
        except (httpx.InvalidURL, ValueError):
            return None


def get(
    client: httpx.Client,
    url: str,
    *,
    max_bytes: int,
    seconds: float = 30,
    headers: Mapping[str, str] | None = None,
    redirects: int = MAX_REDIRECTS,
    wanted: Callable[[Reply], bool] | None = None,
) -> Reply:
    """GET with limits: `max_bytes` of decoded body, `seconds` for all hops together, `redirects` followed by hand.

    With `redirects=0` a redirect is returned as it is. `wanted` looks at status and headers and may leave the body unread.
    Raises EgressBlocked, InvalidAddress, BodyTooLarge, BodyUnreadable, TooManyRedirects, FetchTimeout, SourceUnreachable.
    """
    with time_limit(seconds):
        for _ in range(redirects + 1):
            reply = _get_once(client, url, max_bytes, headers or {}, wanted)
            if not redirects or not reply.redirect:
                return reply
            url = reply.redirect
    raise TooManyRedirects(f"{url}: more than {redirects} redirects in a row.")


def _get_once(
    client: httpx.Client, url: str, max_bytes: int, headers: Mapping[str, str], wanted: Callable[[Reply], bool] | None
) -> Reply:
    with _our_errors(url), client.stream("GET", url, headers=headers) as response:
        head = Reply(str(response.url), response.status_code, response.headers)
        if head.redirect or (wanted and not wanted(head)):
            return head
        body = decode_body(response.iter_raw(), response.headers.get("content-encoding", ""), max_bytes, url)
        return Reply(head.url, head.status, head.headers, body)


def post(
    client: httpx.Client, url: str, body: bytes, headers: Mapping[str, str], *, seconds: float, most_bytes: int
) -> Reply:
    """POST once, without following a redirect. Of the answer's body, as it came over the wire, `most_bytes` are read.

    Raises EgressBlocked, InvalidAddress, FetchTimeout (after `seconds` in all) and SourceUnreachable.
    """
    given = {"accept-encoding": "identity", **headers}
    with (
        time_limit(seconds),
        _our_errors(url),
        client.stream("POST", url, content=body, headers=given, timeout=seconds) as response,
    ):
        start = bytearray()
        for piece in response.iter_raw():
            start += piece
            if len(start) >= most_bytes:
                break
        return Reply(str(response.url), response.status_code, response.headers, bytes(start[:most_bytes]))


@contextmanager
def _our_errors(url: str) -> Generator[None]:
    try:
        yield
    except httpx.InvalidURL as error:
        raise InvalidAddress(f"{url}: {error}") from error
    except httpx.TimeoutException as error:
        raise FetchTimeout(f"{url}: no complete answer in time.", cause=str(error)) from error
    except httpx.TransportError as error:
        raise SourceUnreachable(f"{url}: {error or type(error).__name__}") from error
