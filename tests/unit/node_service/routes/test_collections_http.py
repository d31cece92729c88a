"""Collections over HTTP, with the real corpus behind."""

import pytest
from support.node.http_node import HttpNode, Tenant, serve_node

from hopnode.worker.store.sources.sources import create_source

TEXT = "The harbour lies north of the old town."


def test_a_collection_is_created_read_and_listed_by_name(tenant: Tenant) -> None:
    body = {"name": "handbook", "description": "How we work", "embedder": "minilm", "metadata": {"team": "blue"}}
    made = tenant.http.post("/v1/collections", json=body)
    assert made.status_code == 201
    assert made.headers["location"] == "/v1/collections/handbook"
    assert {name: made.json()[name] for name in body} == body
    tenant.collection("attic")
    assert [item["name"] for item in tenant.http.get("/v1/collections").json()["items"]] == ["attic", "handbook"]
    read = tenant.http.get("/v1/collections/handbook").json()
    assert read["stats"] == {
        "documents": 0,
        "chunks": 0,
        "tokens": 0,
        "index_version": 0,
        "vector_lag": 0,
        "lexical_engine": "fts5",
        "warnings": [],
    }


def test_what_a_collection_holds_is_counted(tenant: Tenant) -> None:
    tenant.collection()
    tenant.put("a", TEXT)
    tenant.put("b", TEXT + " Twice.")
    read = tenant.http.get("/v1/collections/handbook").json()
    assert (read["stats"]["documents"], read["stats"]["chunks"]) == (2, 2)
    assert read["stats"]["index_version"] > 0
    assert (read["embedder"], read["dimension"]) == ("minilm", 384)


def test_a_taken_name_is_a_conflict_and_free_in_another_workspace(node: HttpNode, tenant: Tenant) -> None:
    tenant.collection()
    again = tenant.http.post("/v1/collections", json={"name": "handbook"})
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    assert node.tenant().collection("handbook")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": "Handbook"}, "name"),
        ({"name": ".hidden"}, "name"),
        ({"name": "a" * 64}, "name"),
        ({"name": "a", "embedder": "word2vec"}, "embedder"),
        ({"name": "a", "embedder": "http"}, "embedder"),
        ({"name": "a", "dense_weight": 1.5}, "dense_weight"),
        ({"name": "a", "description": "x" * 10_001}, "description"),
        ({"name": "a", "size": 3}, "size"),
        ({}, "name"),
    ],
)
def test_a_collection_that_cannot_be_is_refused_by_field(tenant: Tenant, body: dict[str, object], field: str) -> None:
    answer = tenant.http.post("/v1/collections", json=body)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_a_change_leaves_what_it_does_not_name(tenant: Tenant) -> None:
    tenant.http.post("/v1/collections", json={"name": "handbook", "description": "old", "metadata": {"a": 1}})
    changed = tenant.http.patch("/v1/collections/handbook", json={"dense_weight": 0.5}).json()
    assert (changed["description"], changed["metadata"], changed["dense_weight"]) == ("old", {"a": 1}, 0.5)
    changed = tenant.http.patch("/v1/collections/handbook", json={"dense_weight": None, "description": "new"}).json()
    assert (changed["description"], changed["metadata"], changed["dense_weight"]) == ("new", {"a": 1}, None)
    assert tenant.http.patch("/v1/collections/handbook", json={"name": "other"}).status_code == 422


def test_a_deleted_collection_is_gone_with_its_documents_and_sources(node: HttpNode, tenant: Tenant) -> None:
    tenant.collection()
    tenant.put("a", TEXT)
    collection_id = node.db_collection(tenant, "handbook").id
    create_source(node.db, tenant.workspace.id, collection_id, kind="website", name="docs", config={})
    assert tenant.http.delete("/v1/collections/handbook").status_code == 204
    assert tenant.http.get("/v1/collections/handbook").status_code == 404
    assert tenant.http.delete("/v1/collections/handbook").status_code == 404
    tenant.collection()
    assert tenant.http.get("/v1/collections/handbook").json()["stats"]["documents"] == 0
    assert tenant.http.get("/v1/collections/handbook/sources").json()["items"] == []


def test_the_embeddings_api_of_the_node_is_named_with_its_model(tmp_path) -> None:
    settings = {"embedder_url": "http://127.0.0.1:9/v1", "embedder_model": "small"}
    with serve_node(tmp_path, settings) as node:
        made = node.tenant().http.post("/v1/collections", json={"name": "a", "embedder": "http"})
        assert made.json()["embedder"] == "http:small"
