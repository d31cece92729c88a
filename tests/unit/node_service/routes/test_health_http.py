"""The node about itself, without a key: up, ready, numbers, and its own description."""

import base64
import hashlib
import re
from pathlib import Path

import httpx
import pytest
from support.node.http_node import HttpNode, Tenant, serve_node


@pytest.fixture
def anyone(node: HttpNode) -> httpx.Client:
    return node.client(None)


def test_the_process_says_that_it_is_up(anyone: httpx.Client) -> None:
    assert anyone.get("/healthz").json()["status"] == "ok"


def test_a_whole_node_is_ready(anyone: httpx.Client) -> None:
    answer = anyone.get("/readyz")
    assert answer.status_code == 200
    assert answer.json()["ready"]
    assert {name: part["ok"] for name, part in answer.json()["parts"].items()} == {
        "database": True,
        "schema": True,
        "vectors": True,
    }


def test_a_part_that_is_away_makes_the_node_not_ready_and_is_named(tmp_path: Path) -> None:
    away = {"chroma_url": "http://127.0.0.1:9", "redis_url": "redis://127.0.0.1:9/0"}
    with serve_node(tmp_path, away) as node:
        client = node.client(None)
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert not answer.json()["ready"]
        parts = answer.json()["parts"]
        assert [name for name, part in parts.items() if not part["ok"]] == ["vectors", "broker"]
        assert (parts["vectors"]["code"], parts["broker"]["code"]) == ("vectors-unavailable", "broker-unavailable")
        assert "127.0.0.1" not in answer.text
        assert client.get("/healthz").status_code == 200


def test_a_schema_that_is_behind_makes_the_node_not_ready(tmp_path: Path) -> None:
    with serve_node(tmp_path) as node:
        with node.db.write() as connection:
            connection.exec_driver_sql("UPDATE alembic_version SET version_num = '0000'")
        answer = node.client(None).get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["parts"]["schema"] == {"ok": False, "code": "schema-behind"}


def metric(text: str, start: str) -> float:
    return float(next(line for line in text.splitlines() if line.startswith(start)).rsplit(" ", 1)[1])


def test_the_numbers_come_from_the_database_and_name_no_workspace(
    node: HttpNode, tenant: Tenant, anyone: httpx.Client
) -> None:
    tenant.collection()
    search = tenant.search()
    answer = anyone.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert metric(answer.text, "hopnode_database_up") == 1
    assert metric(answer.text, 'hopnode_jobs{kind="search",status="queued"}') >= 1
    assert metric(answer.text, "hopnode_jobs_oldest_queued_seconds") >= 0
    start = 'hopnode_http_request_seconds_count{method="POST",route="/v1/searches",status="202"}'
    assert metric(answer.text, start) >= 1
    for word in (tenant.workspace.id, tenant.workspace.name, search["id"], "handbook"):
        assert word not in answer.text


def test_strange_methods_and_paths_add_no_series(anyone: httpx.Client) -> None:
    for method in ("PROPFIND", "SUBSCRIBE"):
        anyone.request(method, "/v1/nothing/1")
        anyone.request(method, "/v1/searches")
    text = anyone.get("/metrics").text
    assert 'method="other"' in text
    assert "PROPFIND" not in text
    assert "/v1/nothing" not in text


def test_the_page_loads_nothing_from_anywhere_else(anyone: httpx.Client) -> None:
    page = anyone.get("/docs")
    assert page.status_code == 200
    assert re.findall(r"https?://", page.text) == []
    assert re.findall(r"(?:src|href)=\"([^\"]+)\"", page.text) == ["data:,", "openapi.json"]
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    for tag in ("script", "style"):
        source = re.search(rf"<{tag}[^>]*>(.*?)</{tag}>", page.text, re.DOTALL)
        assert source
        digest = base64.b64encode(hashlib.sha256(source[1].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "innerHTML" not in page.text


def test_the_node_serves_its_description(node: HttpNode, anyone: httpx.Client) -> None:
    document = anyone.get("/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert "/v1/searches" in document["paths"]
