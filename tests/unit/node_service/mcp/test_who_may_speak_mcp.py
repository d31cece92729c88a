"""Who may speak MCP to a node, and what the edge of the node does with their requests."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from support.node.http_node import HttpNode, Tenant, serve_node
from support.node.mcp_client import ERAS, call, text_of

MOST_BYTES = 20_000
ASKED = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
ACCEPT = {"Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpNode]:
    with serve_node(tmp_path_factory.mktemp("mcp"), service={"max_body_bytes": MOST_BYTES}) as served:
        yield served


@pytest.fixture(scope="module")
def tenant(node: HttpNode) -> Tenant:
    tenant = node.tenant()
    tenant.collection()
    return tenant


def post(client: httpx.Client, body: Any = ASKED, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.post("/mcp", content=content, headers={"Content-Type": "application/json"} | ACCEPT | headers)


@pytest.mark.parametrize("token", [None, "hn_00000000_wrong", "sk-something"])
def test_without_a_key_of_the_node_nothing_is_read_not_even_nonsense(node: HttpNode, token: str | None) -> None:
    for body in (ASKED, b"{nonsense", b" " * (MOST_BYTES + 1)):
        answer = post(node.client(token), body)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthorized")
        assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("tool", "arguments", "missing"),
    [
        ("search", {"query": "q", "collections": ["handbook"]}, "search:write"),
        ("start_search", {"query": "q", "collections": ["handbook"]}, "search:write"),
        ("read_document", {"collection": "handbook", "key": "a"}, "collections:read"),
        ("list_collections", {}, "collections:read"),
    ],
)
def test_a_narrow_key_is_told_which_scope_it_lacks(tenant: Tenant, era: str, tool: str, arguments: Any, missing: str):
    narrow = tenant.node.with_scopes(tenant, "search:read").headers["authorization"].removeprefix("Bearer ")
    answer = call(tenant.node.url, narrow, tool, era, **arguments)
    assert answer.is_error
    assert text_of(answer) == f"This needs a key with the scope `{missing}`."
    assert tenant.http.get("/v1/searches").json()["items"] == []


def test_a_body_may_be_as_large_as_on_other_routes(tenant: Tenant) -> None:
    large = ASKED | {"params": {"filler": "x" * MOST_BYTES}}
    answer = post(tenant.http, large)
    assert (answer.status_code, answer.json()["code"]) == (413, "too-large")


@pytest.mark.parametrize("origin", ["https://evil.example", "http://evil.example:8700", "null", "file://", "http://["])
def test_a_foreign_web_page_is_refused_also_under_a_name_that_leads_here(tenant: Tenant, origin: str) -> None:
    host = origin.partition("//")[2] or "node.example"
    answer = post(tenant.http, Origin=origin, Host=host.strip("[") or "node.example")
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")


@pytest.mark.parametrize("origin", ["http://localhost:6274", "http://127.0.0.1:3000", "http://[::1]:80"])
def test_a_page_of_the_same_machine_may_ask(tenant: Tenant, origin: str) -> None:
    assert post(tenant.http, Origin=origin).status_code == 200


def test_a_client_may_reach_the_node_under_any_name(tenant: Tenant) -> None:
    assert post(tenant.http, Host="search.example.com").status_code == 200


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT"])
def test_there_are_no_sessions_to_listen_to_or_to_end(tenant: Tenant, method: str) -> None:
    answer = tenant.http.request(method, "/mcp", headers=ACCEPT)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("body", [b"{nonsense", b"[]", b'{"jsonrpc": "2.0"}', b"\xff", b"[" * 5_000])
def test_nonsense_is_an_error_of_the_protocol(tenant: Tenant, body: bytes) -> None:
    answer = post(tenant.http, body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] < 0


def test_requests_are_counted_and_calls_of_tools_with_their_outcome(tenant: Tenant) -> None:
    call(tenant.node.url, tenant.token, "list_collections")
    call(tenant.node.url, tenant.token, "get_search", search_id="0" * 24)
    told = tenant.http.get("/metrics").text
    assert 'hopnode_mcp_tool_calls_total{outcome="answered",tool="list_collections"}' in told
    assert 'hopnode_mcp_tool_calls_total{outcome="failed",tool="get_search"}' in told
    assert 'route="/mcp",status="200"' in told
    assert post(tenant.http).headers["x-request-id"]
