"""The SDK's own MCP client for a served node, asked from tests that are not async."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

T = TypeVar("T")
ERAS = ("legacy", "auto")
"""Both ways in which the protocol opens: a handshake, and since 2026-07-28 requests that stand for themselves."""


def with_client(url: str, token: str, work: Callable[[Client], Awaitable[T]], era: str = ERAS[1]) -> T:
    """What `work` makes of a connected client."""

    async def connected() -> T:
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as http,
            Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=era) as client,
        ):
            return await work(client)

    return anyio.run(connected)


def call(url: str, token: str, tool: str, era: str = ERAS[1], **arguments: Any) -> CallToolResult:
    """One call of one tool."""

    async def called(client: Client) -> CallToolResult:
        return await client.call_tool(tool, arguments)

    return with_client(url, token, called, era)


def text_of(answer: CallToolResult) -> str:
    """What the model reads."""
    [content] = answer.content
    assert content.type == "text"
    return content.text
