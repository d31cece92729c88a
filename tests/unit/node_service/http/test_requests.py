"""What holds for every request: keys, scopes, ids, limits, and errors as problem documents."""

import json
import re
import socket
from typing import Any

import httpx
import pytest
from support.node.http_node import HttpNode, Tenant

from hopnode.node_service.http.problems import TITLES, TYPE_PREFIX

SCOPED = [
    ("GET", "/v1/searches", "search:read"),
    ("POST", "/v1/searches", "search:write"),
    ("GET", "/v1/collections", "collections:read"),
    ("POST", "/v1/collections", "collections:write"),
    ("GET", "/v1/syncs/none", "sources:read"),
    ("POST", "/v1/syncs/none/cancel", "sources:write"),
    ("GET", "/v1/keys", "admin"),
    ("GET", "/v1/workspaces", "node:admin"),
]


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The body of an answer that must be this problem, in the form that all problems have."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["type"] == TYPE_PREFIX + code
    assert (body["code"], body["status"], body["title"]) == (code, status, TITLES[code])
    assert body["detail"].strip()
    assert body["request_id"] == answer.headers["x-request-id"]
    return body


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer x", "Basic abc", "Bearer hn_00000000_" + "A" * 43])
def test_without_a_valid_key_nothing_opens(node: HttpNode, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    answer = node.client(None).get("/v1/whoami", headers=headers)
    problem(answer, 401, "unauthorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_a_revoked_key_opens_nothing_any_more(node: HttpNode, tenant: Tenant) -> None:
    made = tenant.http.post("/v1/keys", json={"name": "short", "scopes": ["search:read"]}).json()
    other = node.client(made["token"])
    assert other.get("/v1/searches").status_code == 200
    assert tenant.http.delete(f"/v1/keys/{made['id']}").status_code == 204
    problem(other.get("/v1/searches"), 401, "unauthorized")


@pytest.mark.parametrize(("method", "path", "scope"), SCOPED)
def test_each_route_asks_for_its_scope(node: HttpNode, tenant: Tenant, method: str, path: str, scope: str) -> None:
    others = {each for _, _, each in SCOPED} - {scope}
    body = {"json": {"query": "q", "collection": "c"}} if method == "POST" else {}
    refused = node.with_scopes(tenant, *others).request(method, path, **body)
    assert scope in problem(refused, 403, "forbidden")["detail"]
    assert node.with_scopes(tenant, scope).request(method, path, **body).status_code != 403


def test_the_key_is_checked_before_the_body_is_read(node: HttpNode) -> None:
    broken = node.client(None).post("/v1/searches", content=b"{", headers={"Content-Type": "application/json"})
    problem(broken, 401, "unauthorized")


def test_an_unknown_route_and_an_unknown_method_are_problems(tenant: Tenant) -> None:
    problem(tenant.http.get("/v1/nothing"), 404, "not-found")
    problem(tenant.http.get("/v1/searches/"), 404, "not-found")
    answer = tenant.http.patch("/v1/collections/c/documents/a/b")
    problem(answer, 405, "method-not-allowed")
    assert answer.headers["allow"] == "DELETE, GET, PUT"


def test_invalid_fields_are_named_one_by_one_and_never_repeated(tenant: Tenant) -> None:
    body = {"query": "q" * 4001, "effort": "extreme", "top_k": 51, "filters": "hunter2"}
    answer = tenant.http.post("/v1/searches", json=body)
    errors = problem(answer, 422, "invalid-request")["errors"]
    assert {(error["in"], error["field"]) for error in errors} == {
        ("body", "query"),
        ("body", "effort"),
        ("body", "top_k"),
        ("body", "filters"),
    }
    assert "hunter2" not in answer.text
    assert "qqqq" not in answer.text


@pytest.mark.parametrize(
    ("content", "media_type"),
    [(b"{", "application/json"), (b"\xff\xfe{}", "application/json"), (b'{"query": "q"}', "text/plain"), (b"[]", None)],
)
def test_a_body_that_is_no_json_object_is_a_problem(tenant: Tenant, content: bytes, media_type: str | None) -> None:
    headers = {"Content-Type": media_type} if media_type else {}
    answer = tenant.http.post("/v1/searches", content=content, headers=headers)
    problem(answer, 422, "invalid-request")


def test_json_without_a_content_type_is_taken_as_json(tenant: Tenant) -> None:
    tenant.collection()
    body = json.dumps({"query": "q", "collection": "handbook"}).encode()
    assert tenant.http.post("/v1/searches", content=body).status_code == 202


@pytest.mark.parametrize("text", ["\ud800", "a\x00b"])
def test_text_that_no_database_can_keep_is_refused(tenant: Tenant, text: str) -> None:
    for body in ({"query": text, "collection": "c"}, {"query": "q", "collection": "c", "metadata": {"k": [text]}}):
        content = json.dumps(body).encode()
        answer = tenant.http.post("/v1/searches", content=content, headers={"Content-Type": "application/json"})
        problem(answer, 422, "invalid-request")


@pytest.mark.parametrize("value", ["NaN", "-Infinity", "1e400", "[" * 70 + "]" * 70])
def test_json_that_is_no_json_to_others_is_refused(tenant: Tenant, value: str) -> None:
    tenant.collection()
    content = f'{{"query": "q", "collection": "handbook", "metadata": {{"a": {value}}}}}'
    problem(tenant.http.post("/v1/searches", content=content.encode()), 422, "invalid-request")
    content = f'{{"text": "t", "metadata": {{"a": {value}}}}}'
    headers = {"Content-Type": "application/json"}
    answer = tenant.http.put("/v1/collections/handbook/documents/a", content=content.encode(), headers=headers)
    problem(answer, 422, "invalid-request")
    problem(tenant.http.patch("/v1/collections/handbook", content=b'{"dense_weight": NaN}'), 422, "invalid-request")


def test_a_large_body_is_refused_by_its_announced_and_by_its_real_size(tenant: Tenant) -> None:
    headers = {"Content-Type": "application/json"}
    announced = tenant.http.post("/v1/searches", content=b" " * 1_000_001, headers=headers)
    problem(announced, 413, "too-large")
    streamed = tenant.http.post("/v1/searches", content=iter([b" " * 600_000] * 2), headers=headers)
    problem(streamed, 413, "too-large")
    assert tenant.http.post("/v1/searches", content=b" " * 1_000_000, headers=headers).status_code == 422


def test_a_content_length_that_lies_does_not_get_more_through(node: HttpNode, tenant: Tenant) -> None:
    """Raw bytes, since no client library sends such a request: 10 bytes announced, a second request smuggled behind."""
    host, port = node.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        head = f"POST /v1/collections HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tenant.token}\r\n"
        connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 10\r\n\r\n".encode() + b"{" * 5000)
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while part := connection.recv(65536):
            received += part
    assert re.match(rb"HTTP/1.1 4\d\d", received)
    assert tenant.http.get("/v1/collections").json()["items"] == []


def test_a_request_keeps_a_plain_id_and_gets_a_new_one_for_any_other(node: HttpNode) -> None:
    client = node.client(None)
    assert client.get("/healthz", headers={"X-Request-Id": "run-7.a_B"}).headers["x-request-id"] == "run-7.a_B"
    for strange in ("a b", "x" * 65, "<script>", ""):
        given = client.get("/healthz", headers={"X-Request-Id": strange}).headers["x-request-id"]
        assert re.fullmatch(r"[0-9a-f]{16}", given)


def test_no_answer_lets_other_sites_in(node: HttpNode) -> None:
    headers = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "GET"}
    client = node.client(None)
    for answer in (client.get("/healthz", headers=headers), client.options("/v1/whoami", headers=headers)):
        assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_whoami_tells_workspace_scopes_and_version(tenant: Tenant) -> None:
    who = tenant.http.get("/v1/whoami").json()
    assert who["workspace"]["name"] == tenant.workspace.name
    assert who["key"]["id"] == tenant.key_id
    assert who["scopes"] == sorted(who["key"]["scopes"])
    assert re.fullmatch(r"\d+\.\d+.*", who["version"])
