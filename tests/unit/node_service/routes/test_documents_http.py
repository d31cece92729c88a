"""Documents over HTTP, with the real corpus behind: put, list, get, delete, and what is refused."""

import base64
from typing import Any

import pytest
from support.node.http_node import HttpNode, Tenant

TEXT = "The harbour lies north of the old town. Ships from three countries call there every week."


@pytest.fixture
def owner(tenant: Tenant) -> Tenant:
    made = tenant.http.post("/v1/collections", json={"name": "handbook", "embedder": "minilm"})
    assert made.status_code == 201, made.text
    return tenant


def test_a_new_document_is_a_201_a_known_one_a_200(owner: Tenant) -> None:
    made = owner.put("guides/harbour.md", TEXT, title="Harbour", url="https://example.com/h", metadata={"team": "blue"})
    assert made.status_code == 201
    assert made.headers["location"] == "/v1/collections/handbook/documents/guides/harbour.md"
    assert made.json()["status"] == "stored"
    assert made.json()["chunks_added"] == 1
    same = owner.put("guides/harbour.md", TEXT, title="Harbour", url="https://example.com/h", metadata={"team": "blue"})
    assert (same.status_code, same.json()["status"]) == (200, "unchanged")
    changed = owner.put("guides/harbour.md", TEXT + " The pier is new.", title="Harbour")
    assert (changed.status_code, changed.json()["status"]) == (200, "stored")
    assert changed.json()["document_id"] == made.json()["document_id"]


def test_a_document_is_read_back_with_and_without_its_text(owner: Tenant) -> None:
    owner.put("guides/harbour.md", TEXT, title="Harbour", metadata={"team": "blue"})
    path = "/v1/collections/handbook/documents/guides/harbour.md"
    record = owner.http.get(path).json()
    assert (record["key"], record["title"], record["metadata"]) == ("guides/harbour.md", "Harbour", {"team": "blue"})
    assert (record["characters"], record["version"], record["text"]) == (len(TEXT), 1, None)
    assert owner.http.get(path, params={"text": True}).json()["text"] == TEXT


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("a/b/c.txt", "a/b/c.txt"),
        ("a/b", "a%2Fb"),
        ("한국어 문서.txt", "%ED%95%9C%EA%B5%AD%EC%96%B4%20%EB%AC%B8%EC%84%9C.txt"),
        ("what?#1 50%", "what%3F%231%2050%25"),
        ("/rooted", "%2Frooted"),
        ("a//b", "a//b"),
    ],
)
def test_a_key_may_hold_slashes_and_anything_that_is_percent_encoded(owner: Tenant, key: str, path: str) -> None:
    made = owner.http.put(f"/v1/collections/handbook/documents/{path}", json={"text": TEXT})
    assert made.status_code == 201
    assert made.json()["key"] == key
    assert owner.http.get(made.headers["location"]).json()["key"] == key


@pytest.mark.parametrize("path", ["", "a%00b", "a%09b", "x" * 1025])
def test_a_key_that_is_empty_too_long_or_unprintable_is_refused(owner: Tenant, path: str) -> None:
    answer = owner.http.put(f"/v1/collections/handbook/documents/{path}", json={"text": TEXT})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "key"


def test_raw_bytes_are_parsed_by_their_content_type_and_name(owner: Tenant) -> None:
    page = b"<html><head><title>Quay</title></head><body><h1>Quay</h1><p>The quay is long and made of stone.</p></body></html>"
    path = "/v1/collections/handbook/documents/quay"
    made = owner.http.put(
        path, content=page, headers={"Content-Type": "text/html"}, params={"url": "https://example.com/quay"}
    )
    assert made.status_code == 201, made.text
    record = owner.http.get(path, params={"text": True}).json()
    assert "<p>" not in record["text"]
    assert "made of stone" in record["text"]
    assert record["url"] == "https://example.com/quay"


def test_a_json_file_goes_as_bytes_under_its_name(owner: Tenant) -> None:
    path = "/v1/collections/handbook/documents/data/ports.json"
    made = owner.http.put(path, content=b'{"port": "Quay"}', headers={"Content-Type": "application/octet-stream"})
    assert made.status_code == 201, made.text
    assert "Quay" in owner.http.get(path, params={"text": True}).json()["text"]


def test_a_document_that_cannot_be_parsed_is_rejected_with_a_reason_and_the_old_one_stays(owner: Tenant) -> None:
    path = "/v1/collections/handbook/documents/report.pdf"
    owner.http.put(path, json={"text": TEXT})
    for content, reason in ((b"", "empty"), (b"%PDF-1.7 broken", "corrupt")):
        answer = owner.http.put(path, content=content, headers={"Content-Type": "application/pdf"})
        assert answer.status_code == 422
        assert answer.json()["code"] == "document-rejected"
        assert answer.json()["reason"] == reason
    assert owner.http.get(path, params={"text": True}).json()["text"] == TEXT


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{", ""),
        (b'{"txt": "a"}', "text"),
        (b'{"text": 3}', "text"),
        (b'{"text": "a", "metadata": []}', "metadata"),
        (b'{"text": "a\\u0000"}', "text"),
    ],
)
def test_json_that_is_no_document_is_refused_by_field(owner: Tenant, body: bytes, field: str) -> None:
    headers = {"Content-Type": "application/json; charset=utf-8"}
    answer = owner.http.put("/v1/collections/handbook/documents/a", content=body, headers=headers)
    assert answer.status_code == 422
    assert answer.json()["code"] == "invalid-request"
    assert field in [error["field"] for error in answer.json()["errors"]]


def test_an_upload_may_be_larger_than_other_bodies_and_not_larger_than_a_document(owner: Tenant) -> None:
    path = "/v1/collections/handbook/documents/large.bin"
    headers = {"Content-Type": "application/pdf"}
    within = owner.http.put(path, content=iter([b"%PDF" + b" " * 1_499_996] * 2), headers=headers)
    assert within.json()["code"] == "document-rejected"
    beyond = owner.http.put(path, content=iter([b" " * 1_500_001] * 2), headers=headers)
    assert (beyond.status_code, beyond.json()["code"]) == (413, "too-large")


def test_documents_are_listed_by_key_page_by_page(owner: Tenant) -> None:
    for key in ("c", "a/2", "b", "a/1"):
        owner.put(key, f"{TEXT} {key}")
    seen, cursor = list[str](), None
    while True:
        query = {"limit": 3} | ({"cursor": cursor} if cursor else {})
        page = owner.http.get("/v1/collections/handbook/documents", params=query).json()
        seen += [item["key"] for item in page["items"]]
        if not (cursor := page["next_cursor"]):
            break
    assert seen == ["a/1", "a/2", "b", "c"]


def test_a_deleted_document_is_gone_at_once(owner: Tenant) -> None:
    owner.put("a/1", TEXT)
    path = "/v1/collections/handbook/documents/a/1"
    assert owner.http.delete(path).status_code == 204
    for answer in (owner.http.get(path), owner.http.delete(path)):
        assert (answer.status_code, answer.json()["code"]) == (404, "not-found")
    assert owner.http.get("/v1/collections/handbook/documents").json()["items"] == []


def batch(owner: Tenant, *documents: dict[str, Any]) -> Any:
    return owner.http.post("/v1/collections/handbook/documents:batch", json={"documents": documents})


def test_a_batch_tells_the_outcome_of_each_document_and_goes_on_after_a_bad_one(owner: Tenant) -> None:
    page = base64.b64encode(b"<html><body><p>The quay is long and made of stone.</p></body></html>").decode()
    answer = batch(
        owner,
        {"key": "a", "text": TEXT},
        {"key": "b", "base64": "", "media_type": "application/pdf"},
        {"key": "c.html", "base64": page},
        {"key": "a2", "text": TEXT, "title": "Again", "metadata": {"team": "blue"}},
    )
    assert answer.status_code == 200
    outcomes = answer.json()["outcomes"]
    assert [(each["key"], each["status"]) for each in outcomes] == [
        ("a", "stored"),
        ("b", "failed"),
        ("c.html", "stored"),
        ("a2", "stored"),
    ]
    assert outcomes[1]["reason"] == "empty"
    assert outcomes[1]["message"]


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"key": "a"}, "documents.0"),
        ({"key": "a", "text": "t", "base64": "dA=="}, "documents.0"),
        ({"key": "a", "base64": "%%"}, "documents.0.base64"),
        ({"key": "", "text": "t"}, "documents.0.key"),
    ],
)
def test_a_batch_that_is_not_well_formed_is_refused_as_a_whole(owner: Tenant, document: Any, field: str) -> None:
    answer = batch(owner, document, {"key": "good", "text": TEXT})
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert owner.http.get("/v1/collections/handbook/documents").json()["items"] == []


def test_a_document_of_an_unknown_collection_is_a_404(node: HttpNode, owner: Tenant) -> None:
    assert owner.put("a", TEXT, collection="attic").status_code == 404
