"""The protocol around the tools: the only module that knows the SDK of the Model Context Protocol, and its streamable HTTP.

Stateless: each request stands for itself, so any API process of a node may serve it. Keys, limits and logs are not known here.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from starlette.requests import Request
from starlette.types import ASGIApp

from hopnode.node_service.mcp.tools import TOOLS, Caller, Tool, call

INSTRUCTIONS = (
    "Hopnode searches the documents of one workspace. Use list_collections to see what there is, search to find passages, and "
    "read_document to read around them. Base answers on passages and cite them by their numbers."
)
_BY_NAME = {tool.name: tool for tool in TOOLS}
_Context = ServerRequestContext[Any, Request]


@asynccontextmanager
async def serving(max_body_bytes: int) -> AsyncGenerator[ASGIApp]:
    """The ASGI app that answers MCP's requests, open as long as the block.

    Each request it serves carries its `Caller` as `request.state.mcp_caller`. The SDK's check of the header Host is off: it
    needs a list of the node's names, and the route lets no web page in, whatever name it came by.
    """
    server: Server[Any] = Server(
        "hopnode",
        title="Hopnode",
        version=version("hopnode"),
        instructions=INSTRUCTIONS,
        on_list_tools=_list_tools,
        on_call_tool=_call_tool,
    )
    manager = StreamableHTTPSessionManager(
        server,
        stateless=True,
        security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        max_request_body_size=max_body_bytes,
    )
    async with manager.run():
        yield manager.handle_request


async def _list_tools(_: _Context, _page: types.PaginatedRequestParams | None) -> types.ListToolsResult:
    return types.ListToolsResult(tools=[_described(tool) for tool in TOOLS])


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.takes.model_json_schema(),
        output_schema=tool.gives.model_json_schema(mode="serialization"),
        annotations=types.ToolAnnotations(
            read_only_hint=not tool.changes, destructive_hint=False, open_world_hint=False
        ),
    )


async def _call_tool(context: _Context, asked: types.CallToolRequestParams) -> types.CallToolResult:
    tool = _BY_NAME.get(asked.name)
    if tool is None:
        raise MCPError(types.INVALID_PARAMS, f"There is no tool {asked.name!r}; there are {', '.join(_BY_NAME)}.")
    assert context.request is not None
    caller: Caller = context.request.state.mcp_caller
    answer = await call(tool, caller, asked.arguments or {})
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=answer.text)],
        structured_content=answer.data.model_dump(mode="json") if answer.data is not None else None,
        is_error=answer.failed,
    )
