"""The outermost layer of the app: request ids, timing, one log line a request, and the net under every exception.

Plain ASGI, so that streams pass untouched; knows no route.
"""

import re
import secrets
import time
from collections.abc import Mapping
from typing import Any

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hopnode.node_service.http.problems import internal_error
from hopnode.node_service.http.request_metrics import NodeMetrics
from hopnode.worker import tracing
from hopnode.worker.logs import get_logger

REQUEST_ID = "X-Request-Id"
_GIVEN_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_QUIET = {"/healthz", "/readyz", "/metrics"}  # asked every few seconds by machines
_log = get_logger(__name__)


class RequestLogMiddleware:
    """Wraps the app. The caller's `X-Request-Id` is kept when it is a plain word, else the request gets a new one."""

    def __init__(self, app: ASGIApp, metrics: NodeMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request; other kinds of scope (lifespan) pass through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        answer = _ObservedAnswer(send, request_id, scope["state"])
        started = time.perf_counter()
        given = Headers(scope=scope)
        with (
            structlog.contextvars.bound_contextvars(request_id=request_id),
            tracing.joined(given.get("traceparent"), given.get("tracestate")),
            tracing.span("request", "server") as note,
        ):
            try:
                await self._app(scope, receive, answer)
            except ClientDisconnect:
                _log.info("client_left", route=_route(scope))  # before it had sent its request; nobody reads an answer
            except Exception as error:  # noqa: BLE001 - the request boundary: nothing may pass unanswered
                _log.error("request_failed", route=_route(scope), error=type(error).__name__, exc_info=True)
                if answer.status is None:
                    await internal_error(request_id)(scope, receive, answer)
            note(http__request__method=scope["method"], http__route=_route(scope))
            note(http__response__status_code=answer.status or 0)
            self._note(scope, answer, time.perf_counter() - started)

    def _note(self, scope: Scope, answer: "_ObservedAnswer", seconds: float) -> None:
        route, status = _route(scope), answer.status or 0
        if not answer.is_stream:
            self._metrics.served(scope["method"], route, status, seconds)
        log = _log.debug if route in _QUIET else _log.info
        log("request_served", method=scope["method"], route=route, status=status, milliseconds=round(seconds * 1000))


class _ObservedAnswer:
    """Sends the answer on, with the request id in its headers, and remembers what went out."""

    def __init__(self, send: Send, request_id: str, state: Mapping[str, Any]) -> None:
        self._send = send
        self._request_id = request_id
        self._state = state
        self.status: int | None = None
        self.is_stream = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers[REQUEST_ID] = self._request_id
            headers["X-Content-Type-Options"] = "nosniff"
            headers.update(self._state.get("rate_limits", {}))
            self.is_stream = headers.get("content-type", "").startswith("text/event-stream")
        await self._send(message)


def _request_id(scope: Scope) -> str:
    given = Headers(scope=scope).get(REQUEST_ID, "")
    return given if _GIVEN_ID.fullmatch(given) else secrets.token_hex(8)


def _route(scope: Scope) -> str:
    """The template of the route (`/v1/searches/{search_id}`): paths hold names of things, templates do not."""
    return str(getattr(scope.get("route"), "path", "unknown"))
