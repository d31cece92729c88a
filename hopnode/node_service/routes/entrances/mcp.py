"""The Model Context Protocol over HTTP: who may come in, and how much they may send. Knows neither messages nor tools."""

import re
from typing import cast

from fastapi import APIRouter, Request, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hopnode.node_service.http.auth import Identity
from hopnode.node_service.http.dependencies import AnyKey, CurrentNode, Node, NodeRoute
from hopnode.node_service.mcp.tools import Caller
from hopnode.worker.errors import Forbidden

router = APIRouter(route_class=NodeRoute)
PATH = "/mcp"
_OWN_MACHINE = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?")


@router.post(PATH, include_in_schema=False)
async def speak_mcp(identity: AnyKey, node: CurrentNode, request: Request) -> Response:
    """One message of MCP's streamable HTTP and its answer. The protocol describes itself to its clients."""
    _refuse_web_pages(request)
    return _Handed(cast(ASGIApp, request.app.state.mcp), Call(await request.body(), node, identity))


def _refuse_web_pages(request: Request) -> None:
    """Browsers send Origin with every POST, and nothing else does. A page of this machine's own may ask; a foreign one may
    not, even where its name was made to lead here (DNS rebinding).
    """
    origin = request.headers.get("origin")
    if origin is not None and not _OWN_MACHINE.fullmatch(origin):
        raise Forbidden("Web pages may not speak MCP to this node: the header Origin names a page of another machine.")


class Call:
    """A request whose body was read: its messages once more for whoever answers it, and whether the caller has hung up."""

    def __init__(self, body: bytes, node: Node, identity: Identity) -> None:
        self._body: bytes | None = body
        self._left = False
        self.caller = Caller(node, identity, self.gone)

    async def gone(self) -> bool:
        """Whether the connection has ended, as far as the answering side has heard."""
        return self._left

    async def receive(self, further: Receive) -> Message:
        """The body first, then what comes after it."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        message = await further()
        self._left = self._left or message["type"] == "http.disconnect"
        return message


class _Handed(Response):
    """The answer that an ASGI app gives to the call."""

    def __init__(self, app: ASGIApp, call: Call) -> None:
        super().__init__()
        self._app, self._call = app, call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["mcp_caller"] = self._call.caller
        await self._app(scope, lambda: self._call.receive(receive), send)
