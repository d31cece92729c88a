"""Dify's External Knowledge API, asked by a client that behaves as Dify's does."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from support.node.dify_client import DifyClient
from support.node.http_node import HttpNode, Tenant, serve_node

from hopnode.worker.searches.job import run_search_job

TEXTS = {
    "tower.md": (
        "The Anselm Tower was built by the Brook Company in 1911. It is made of brick.",
        {"year": 1911, "area": "town"},
    ),
    "company.md": (
        "The Brook Company was founded by Mira Lindqvist, an engineer from the coast.",
        {"year": 1890, "area": "coast"},
    ),
    "harbour.md": (
        "The harbour lies north of the old town. Ships call there every week.",
        {"year": 1750, "area": "coast"},
    ),
}
QUESTION = "Who founded the company that built the Anselm Tower?"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpNode]:
    with serve_node(tmp_path_factory.mktemp("dify"), {}, handlers={"search": run_search_job}) as served:
        yield served


@pytest.fixture(scope="module")
def tenant(node: HttpNode) -> Tenant:
    """A workspace with three documents that differ in their metadata."""
    tenant = node.tenant()
    tenant.collection()
    for key, (text, metadata) in TEXTS.items():
        assert tenant.put(key, text, metadata=metadata).status_code == 201
    return tenant


@pytest.fixture
def dify(tenant: Tenant) -> DifyClient:
    return DifyClient(f"{tenant.node.url}/v1/dify", tenant.token)


def raw(tenant: Tenant, **changes: Any) -> httpx.Response:
    body = {"knowledge_id": "handbook", "query": QUESTION, "retrieval_setting": {"top_k": 3, "score_threshold": 0}}
    return tenant.http.post("/v1/dify/retrieval", json=body | changes)


def keys(records: list[dict[str, Any]]) -> set[str]:
    return {record["metadata"]["key"] for record in records}


def test_a_good_key_can_be_registered_whatever_way_the_endpoint_is_spelled(tenant: Tenant) -> None:
    for endpoint in ("/v1/dify", "/v1/dify/", "/v1/dify/retrieval"):
        assert DifyClient(f"{tenant.node.url}{endpoint}", tenant.token).register(), endpoint


@pytest.mark.parametrize("key", ["hn_00000000_wrong", "", "sk-something"])
def test_a_wrong_key_cannot_be_registered(tenant: Tenant, key: str) -> None:
    assert not DifyClient(f"{tenant.node.url}/v1/dify", key).register()


def test_the_key_is_judged_before_the_body(node: HttpNode) -> None:
    answer = node.client("hn_00000000_wrong").post("/v1/dify/retrieval", content=b"{not json")
    assert answer.status_code == 403
    assert answer.json()["error_code"] == 1002
    answer = node.client(None).post("/v1/dify/retrieval", content=b"")
    assert (answer.status_code, answer.json()["error_code"]) == (403, 1001)


def test_a_key_that_may_not_search_is_refused_like_a_wrong_one(tenant: Tenant) -> None:
    narrow = tenant.node.with_scopes(tenant, "collections:read")
    answer = narrow.post("/v1/dify/retrieval", json={"knowledge_id": "handbook", "query": "q"})
    assert answer.status_code == 403
    assert "search:" in answer.json()["error_msg"]


@pytest.mark.parametrize("knowledge", ["handbook", "handbook:fast", "handbook:agent"])
def test_records_have_the_form_that_dify_reads(dify: DifyClient, tenant: Tenant, knowledge: str) -> None:
    asked = dify.retrieve(QUESTION, knowledge)
    assert asked.answer is not None and asked.answer.status_code == 200, asked
    assert asked.tries == 1 and asked.seconds < 5
    assert "tower.md" in keys(asked.records)
    ids = [record["metadata"]["document_id"] for record in asked.records]
    assert len(set(ids)) == len(ids) and all(isinstance(one, str) for one in ids)
    scores = [record["score"] for record in asked.records]
    assert scores == sorted(scores, reverse=True) and all(0 <= score <= 1 for score in scores)
    for record in asked.records:
        text, metadata = TEXTS[record["metadata"]["key"]]
        assert record["content"] == text[record["metadata"]["start"] : record["metadata"]["end"]]
        assert isinstance(record["title"], str) and record["title"]
        assert metadata.items() <= record["metadata"].items()
        assert tenant.http.get(f"/v1/searches/{record['metadata']['search_id']}").status_code == 200


def test_the_agent_is_asked_where_the_knowledge_says_so(dify: DifyClient, tenant: Tenant) -> None:
    records = dify.retrieve(QUESTION, "handbook:agent").records
    search = tenant.http.get(f"/v1/searches/{records[0]['metadata']['search_id']}").json()
    assert search["result"]["mode"] == "agent"
    assert {"tower.md", "company.md"} <= keys(records)


def test_top_k_and_threshold_are_applied_here_since_dify_does_not(dify: DifyClient) -> None:
    assert len(dify.retrieve(QUESTION, "handbook", top_k=1).records) == 1
    everything = dify.retrieve(QUESTION, "handbook", top_k=None).records
    low, high = sorted(record["score"] for record in everything)[-2:]
    least = (low + high) / 2
    assert {record["score"] for record in dify.retrieve(QUESTION, "handbook", score_threshold=least).records} == {
        record["score"] for record in everything if record["score"] >= least
    }


def condition(operator: str, value: Any, name: Any = "year", **more: Any) -> dict[str, Any]:
    one = {"name": name, "comparison_operator": operator, "value": value}
    return {"logical_operator": "and", "conditions": [one]} | more


ALL, COAST = set(TEXTS), {"company.md", "harbour.md"}


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        (None, ALL),
        ({"logical_operator": None, "conditions": None}, ALL),
        (condition("is", "coast", "area"), COAST),
        (condition("is", "coast", ["area"]), COAST),
        (condition("is not", "coast", "area"), {"tower.md"}),
        (condition("contains", "oas", "area"), COAST),
        (condition("not contains", "oas", "area"), {"tower.md"}),
        (condition("start with", "to", "area"), {"tower.md"}),
        (condition("end with", "st", "area"), COAST),
        (condition("empty", None, "missing"), ALL),
        (condition("not empty", None, "missing"), set[str]()),
        (condition("in", ["town", "village"], "area"), {"tower.md"}),
        (condition("in", "town, village", "area"), {"tower.md"}),
        (condition("not in", ["town"], "area"), COAST),
        (condition("=", "1911"), {"tower.md"}),
        (condition("=", 1911), {"tower.md"}),
        (condition("≠", "1911"), COAST),
        (condition(">", "1800"), {"tower.md", "company.md"}),
        (condition("<", 1800), {"harbour.md"}),
        (condition("≥", 1911), {"tower.md"}),
        (condition("≤", "1890"), COAST),
        (condition("before", 1800), {"harbour.md"}),
        (condition("after", 1800), {"tower.md", "company.md"}),
        (condition("is", "{{#1711.area#}}", "area"), set[str]()),
        (condition("is not", "{{#1711.area#}}", "area"), set[str]()),
        (condition(">", "many"), set[str]()),
        (
            {
                "logical_operator": "or",
                "conditions": [
                    {"name": "year", "comparison_operator": "=", "value": "1911"},
                    {"name": "year", "comparison_operator": "=", "value": "1750"},
                ],
            },
            {"tower.md", "harbour.md"},
        ),
    ],
)
def test_conditions_on_metadata_mean_what_dify_offers(
    dify: DifyClient, asked: dict[str, Any] | None, wanted: set[str]
) -> None:
    found = dify.retrieve("town tower company harbour", "handbook", top_k=10, metadata_condition=asked)
    assert found.answer is not None and found.answer.status_code == 200
    assert keys(found.records) == wanted


@pytest.mark.parametrize(
    ("body", "status", "code", "told"),
    [
        (b"", 400, 3001, "no JSON"),
        (b"[]", 400, 3001, "body"),
        (b'{"query": "q"}', 400, 3001, "knowledge_id"),
        (b'{"query": "", "knowledge_id": "handbook"}', 400, 3001, "query"),
        (b'{"query": "q", "knowledge_id": "nothing"}', 404, 2001, "nothing"),
        (b'{"query": "q", "knowledge_id": ","}', 404, 2001, "no collection"),
        (b'{"query": "q", "knowledge_id": "handbook:slow"}', 400, 3001, "`fast` or `agent`"),
        (
            b'{"query": "q", "knowledge_id": "handbook", "metadata_condition": {"conditions": '
            b'[{"name": "a", "comparison_operator": "like", "value": "b"}]}}',
            400,
            3001,
            "like",
        ),
        (b"[" * 100_000, 400, 3001, ""),
    ],
)
def test_what_asking_again_cannot_mend_is_told_so(
    tenant: Tenant, body: bytes, status: int, code: int, told: str
) -> None:
    answer = tenant.http.post("/v1/dify/retrieval", content=body)
    assert answer.status_code == status, answer.text
    assert answer.json()["error_code"] == code
    assert told in answer.json()["error_msg"]


def test_a_body_that_is_too_large_is_refused_while_it_comes(tenant: Tenant) -> None:
    answer = tenant.http.post("/v1/dify/retrieval", content=b"x" * 2_000_000)
    assert answer.status_code == 413


def test_quotes_come_back_as_they_were_typed_from_difys_retrieval_test(tenant: Tenant) -> None:
    search = raw(tenant, query='Who said \\"brick\\" in the tower?').json()["records"][0]["metadata"]["search_id"]
    assert tenant.http.get(f"/v1/searches/{search}").json()["query"] == 'Who said "brick" in the tower?'


def test_several_collections_can_be_one_knowledge(tenant: Tenant) -> None:
    tenant.collection("manuals")
    assert tenant.put("crane.md", "The crane at the harbour lifts ships.", "manuals").status_code == 201
    answer = raw(tenant, knowledge_id="handbook, manuals", query="ships at the harbour")
    assert {"crane.md", "harbour.md"} <= keys(answer.json()["records"])


def test_knowledge_of_another_workspace_does_not_exist(node: HttpNode) -> None:
    answer = raw(node.tenant())
    assert (answer.status_code, answer.json()["error_code"]) == (404, 2001)


def test_a_passage_that_was_deleted_since_is_not_shown_to_whoever_joins_its_search(node: HttpNode) -> None:
    tenant = node.tenant()
    tenant.collection()
    for key, (text, metadata) in TEXTS.items():
        tenant.put(key, text, metadata=metadata)
    before = raw(tenant)
    assert "tower.md" in keys(before.json()["records"])
    assert tenant.http.delete("/v1/collections/handbook/documents/tower.md").status_code == 204
    after = raw(tenant)
    assert "tower.md" not in keys(after.json()["records"])
    assert {one["metadata"]["search_id"] for one in after.json()["records"]} == {
        before.json()["records"][0]["metadata"]["search_id"]
    }, "the second call joined the search of the first"


def test_failures_show_in_the_metrics_since_dify_hides_them(tenant: Tenant) -> None:
    def counted(outcome: str) -> float:
        lines = tenant.http.get("/metrics").text.splitlines()
        found = [line for line in lines if line.startswith(f'hopnode_dify_retrievals_total{{outcome="{outcome}"}}')]
        return float(found[0].rpartition(" ")[2]) if found else 0.0

    failures, successes = counted("error-2001"), counted("found")
    raw(tenant, knowledge_id="nothing")
    raw(tenant)
    assert (counted("error-2001"), counted("found")) == (failures + 1, successes + 1)
