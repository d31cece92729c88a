"""The uvicorn server for the app: when it stops, requests that wait and event streams are told first.

uvicorn lets open requests finish before the app hears of the stop, and a stream never finishes by itself.
"""

import socket
from typing import Any, cast

import uvicorn
from fastapi import FastAPI

from hopnode.node_service.http.dependencies import Node


class NodeServer(uvicorn.Server):
    """A `uvicorn.Server`; `should_exit = True` or a signal ends it within a fraction of a second plus what is under way."""

    def __init__(self, app: FastAPI, **options: Any) -> None:
        """`options` are those of `uvicorn.Config`. An app that cannot open what it serves with ends the server."""
        super().__init__(uvicorn.Config(app, lifespan="on", **options))
        self._node = cast(Node, app.state.node)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends the waits, then the server."""
        self._node.stopping.set()
        await super().shutdown(sockets)
