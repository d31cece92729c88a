"""Workspaces and keys over HTTP: who may make what, and what is shown once."""

from datetime import UTC, datetime, timedelta

import pytest
from support.node.http_node import TENANT_SCOPES, HttpNode, Tenant


def test_a_key_is_shown_once_and_works_until_it_is_revoked(node: HttpNode, tenant: Tenant) -> None:
    made = tenant.http.post("/v1/keys", json={"name": "n8n", "scopes": ["search:read"]})
    assert made.status_code == 201
    token = made.json()["token"]
    assert token.startswith(f"hn_{made.json()['id']}_")
    listed = tenant.http.get("/v1/keys")
    assert token not in listed.text
    assert [key["name"] for key in listed.json()["items"]] == ["test", "n8n"]
    assert node.client(token).get("/v1/whoami").json()["scopes"] == ["search:read"]
    assert tenant.http.delete(f"/v1/keys/{made.json()['id']}").status_code == 204
    assert node.client(token).get("/v1/whoami").status_code == 401
    assert [bool(key["revoked_at"]) for key in tenant.http.get("/v1/keys").json()["items"]] == [False, True]


def test_a_key_cannot_pass_on_what_it_lacks(node: HttpNode, tenant: Tenant) -> None:
    narrow = node.with_scopes(tenant, "admin", "search:read")
    refused = narrow.post("/v1/keys", json={"name": "k", "scopes": ["search:read", "search:write", "node:admin"]})
    assert refused.status_code == 403
    assert "node:admin, search:write" in refused.json()["detail"]
    assert narrow.post("/v1/keys", json={"name": "k", "scopes": ["search:read", "admin"]}).status_code == 201


def test_a_key_can_end_by_itself(tenant: Tenant) -> None:
    end = datetime.now(UTC) + timedelta(hours=1)
    made = tenant.http.post("/v1/keys", json={"name": "k", "scopes": ["admin"], "expires_at": end.isoformat()})
    assert datetime.fromisoformat(made.json()["expires_at"]) == end
    past = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
    refused = tenant.http.post("/v1/keys", json={"name": "k", "scopes": ["admin"], "expires_at": past})
    assert refused.json()["code"] == "invalid-request"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "k", "scopes": []}, "scopes"),
        ({"name": "k", "scopes": ["all"]}, "scopes"),
        ({"name": " ", "scopes": ["admin"]}, "name"),
        ({"name": "a\nb", "scopes": ["admin"]}, "name"),
        ({"name": "k", "scopes": ["admin"], "expires_at": "2030-01-01T00:00:00"}, "expires_at"),
    ],
)
def test_a_key_that_cannot_be_is_refused_by_field(tenant: Tenant, body: dict[str, object], field: str) -> None:
    answer = tenant.http.post("/v1/keys", json=body)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_the_first_key_of_the_node_makes_workspaces_that_are_open_to_their_own_key_only(node: HttpNode) -> None:
    owner = node.client(node.default_token)
    made = owner.post("/v1/workspaces", json={"name": "research"})
    assert made.status_code == 201
    assert made.json()["key"]["scopes"] == sorted(TENANT_SCOPES)
    who = node.client(made.json()["key"]["token"]).get("/v1/whoami").json()
    assert who["workspace"]["id"] == made.json()["id"]
    names = [item["name"] for item in owner.get("/v1/workspaces").json()["items"]]
    assert {"default", "research"} <= set(names)
    assert names == sorted(names)
    assert owner.post("/v1/workspaces", json={"name": "research"}).status_code == 409


def test_the_admin_of_a_workspace_makes_no_workspaces(tenant: Tenant) -> None:
    for answer in (tenant.http.get("/v1/workspaces"), tenant.http.post("/v1/workspaces", json={"name": "mine"})):
        assert answer.status_code == 403
        assert "node:admin" in answer.json()["detail"]


def test_a_key_is_rotated_with_a_grace_and_only_by_who_holds_what_it_holds(node: HttpNode, tenant: Tenant) -> None:
    made = tenant.http.post("/v1/keys", json={"name": "n8n", "scopes": ["search:read"]}).json()
    rotated = tenant.http.post(f"/v1/keys/{made['id']}/rotate", json={"grace_seconds": 60})
    assert rotated.status_code == 201
    assert (rotated.json()["name"], rotated.json()["scopes"]) == ("n8n", ["search:read"])
    for token in (made["token"], rotated.json()["token"]):
        assert node.client(token).get("/v1/whoami").status_code == 200
    assert tenant.http.post(f"/v1/keys/{rotated.json()['id']}/rotate", json={"grace_seconds": 0}).status_code == 201
    assert node.client(rotated.json()["token"]).get("/v1/whoami").status_code == 401
    only_admin = node.with_scopes(tenant, "admin")
    assert only_admin.post(f"/v1/keys/{tenant.key_id}/rotate", json={}).status_code == 403
    assert node.tenant().http.post(f"/v1/keys/{tenant.key_id}/rotate", json={}).status_code == 404


def test_the_last_admin_key_is_revoked_only_by_force(node: HttpNode, tenant: Tenant) -> None:
    refused = tenant.http.delete(f"/v1/keys/{tenant.key_id}")
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert tenant.http.delete(f"/v1/keys/{tenant.key_id}", params={"force": True}).status_code == 204
    assert tenant.http.get("/v1/whoami").status_code == 401
