"""Jobs from the request to their result: real job threads that only a kick wakes, the real stories, the real corpus."""

import time
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from support.node.http_node import HttpNode, serve_node
from support.servers.website import docs_site, serve_site

from hopnode.worker.searches.job import run_search_job
from hopnode.worker.syncs.job import run_sync_job

TEXTS = {
    "tower.md": "# Tower\n\nThe Anselm Tower was built by the Brook Company in 1911. It is made of brick. 탑은 높다.",
    "company.md": "# Brook Company\n\nThe Brook Company was founded by Mira Lindqvist, an engineer from the coast.",
    "harbour.md": "# Harbour\n\nThe harbour lies north of the old town. Ships call there every week.",
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpNode]:
    settings = {"egress_allow_cidrs": ["127.0.0.0/8"]}
    handlers = {"search": run_search_job, "sync": run_sync_job}
    with serve_node(tmp_path_factory.mktemp("running"), settings, handlers=handlers) as served:
        yield served


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["one_shot", "agent"])
def test_a_search_ends_with_passages_that_are_what_the_documents_say(node: HttpNode, mode: str) -> None:
    tenant = node.tenant()
    tenant.collection()
    for key, text in TEXTS.items():
        assert tenant.put(key, text).status_code == 201
    body = {"query": "Who founded the company that built the Anselm Tower?", "collection": "handbook", "mode": mode}
    started = time.monotonic()
    answer = tenant.http.post("/v1/searches", json=body, headers={"Prefer": "wait=30"})
    assert answer.status_code == 201, answer.text
    assert time.monotonic() - started < 30, "the threads look by themselves only once a minute, so a kick woke one"
    result = answer.json()["result"]
    assert result["mode"] == mode
    assert result["passages"]
    for passage in result["passages"]:
        document = f"/v1/collections/handbook/documents/{passage['key']}"
        stored = tenant.http.get(document, params={"text": True}).json()
        assert passage["document_id"] == stored["id"]
        assert passage["text"] == stored["text"][passage["start"] : passage["end"]]
    steps = tenant.http.get(answer.json()["trajectory_url"]).json()
    assert steps["complete"]
    assert steps["steps"][0]["kind"] == "start"


def test_a_search_that_the_node_is_not_set_up_for_fails_and_says_so(node: HttpNode) -> None:
    tenant = node.tenant()
    tenant.collection()
    body = {"query": "q", "collection": "handbook", "profile": "generic", "mode": "agent"}
    search = tenant.http.post("/v1/searches", json=body, headers={"Prefer": "wait=10"}).json()
    assert search["status"] == "failed"
    assert search["error"]["code"] == "configuration"


@pytest.mark.slow
def test_a_sync_brings_a_site_into_its_collection(node: HttpNode) -> None:
    tenant = node.tenant()
    tenant.collection()
    with serve_site() as site:
        docs_site(site, 3)
        config = {"start_url": f"{site.url}/", "crawl_delay": 0}
        body = {"kind": "website", "name": "docs", "config": config}
        source = tenant.http.post("/v1/collections/handbook/sources", json=body)
        assert source.status_code == 201, source.text
        sync = tenant.http.post(f"/v1/sources/{source.json()['id']}/syncs").json()
        done = tenant.http.get(sync["url"], params={"wait": 30}).json()
    assert done["status"] == "succeeded", done
    assert done["counts"]["added"] == 4
    documents = tenant.http.get("/v1/collections/handbook/documents").json()["items"]
    assert len(documents) == 4
    assert all(document["url"].startswith(site.url) for document in documents)
    key = quote(documents[0]["key"])
    assert tenant.http.get(f"/v1/collections/handbook/documents/{key}").json()["key"] == documents[0]["key"]


@pytest.mark.slow
def test_auto_says_how_it_decided_and_answers_either_way(node: HttpNode) -> None:
    tenant = node.tenant()
    tenant.collection()
    for key, text in TEXTS.items():
        tenant.put(key, text)
    body = {"query": "Who founded the company that built the Anselm Tower?", "collection": "handbook", "top_k": 1}
    result = tenant.http.post("/v1/searches", json=body, headers={"Prefer": "wait=30"}).json()["result"]
    assert result["mode"] in ("one_shot", "agent")
    assert result["mode_reason"]
    assert len(result["passages"]) == 1


@pytest.mark.slow
def test_a_least_score_and_neighbours_shape_the_result(node: HttpNode) -> None:
    tenant = node.tenant()
    tenant.collection()
    chapters = [f"## Chapter {n}\n\n" + f"The keeper of lamp {n} wrote down the weather. " * 60 for n in range(6)]
    assert tenant.put("book.md", "# Lamps\n\n" + "\n\n".join(chapters)).status_code == 201
    body = {"query": "keeper of lamp 3", "collection": "handbook", "mode": "one_shot", "top_k": 1, "neighbours": 1}
    result = tenant.http.post("/v1/searches", json=body, headers={"Prefer": "wait=30"}).json()["result"]
    (passage,) = result["passages"]
    ends = sorted((near["start"], near["end"]) for near in passage["neighbours"])
    assert 1 <= len(ends) <= 2
    assert all(end <= passage["start"] or start >= passage["end"] for start, end in ends)
    nothing = tenant.http.post("/v1/searches", json=body | {"min_score": 1}, headers={"Prefer": "wait=30"}).json()
    assert nothing["status"] == "succeeded"
    assert nothing["result"]["passages"] == []
