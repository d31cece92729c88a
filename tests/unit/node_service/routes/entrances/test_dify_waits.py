"""An agent that takes longer than Dify waits: its tries join one search, and the last brings the best that is known."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.node.dify_client import DifyClient
from support.node.http_node import HttpNode, Tenant, serve_node

from hopnode.worker.inference.messages import Completion
from hopnode.worker.inference.scripted import ScriptedChatServer, ServerRequest, final, use
from hopnode.worker.searches.job import run_search_job

pytestmark = pytest.mark.slow

QUESTION = "Who founded the company that built the Anselm Tower?"


@contextmanager
def node_with_slow_model(folder: Path, seconds: float) -> Iterator[tuple[HttpNode, ScriptedChatServer]]:
    """A node whose agent searches once, and then thinks for so long."""

    def reply(request: ServerRequest) -> Completion:
        if request.number == 1:
            return use(("search_corpus", {"query": QUESTION}))
        server.stopping.wait(seconds)
        return final(*re.findall(r"DOCUMENT ID: (\S+)", str(request.body)))

    with ScriptedChatServer(reply) as server:
        settings = {"chat_url": server.url, "chat_model": "scripted"}
        with serve_node(folder, settings, handlers={"search": run_search_job}, agent_slots=2) as node:
            yield node, server


def filled(node: HttpNode) -> Tenant:
    tenant = node.tenant()
    tenant.collection()
    assert tenant.put("tower.md", "The Anselm Tower was built by the Brook Company in 1911.").status_code == 201
    assert tenant.put("company.md", "The Brook Company was founded by Mira Lindqvist.").status_code == 201
    return tenant


def searches_of(tenant: Tenant) -> list[str]:
    return [f"{one['mode']} {one['status']}" for one in tenant.http.get("/v1/searches").json()["items"]]


def test_an_agent_of_seven_seconds_is_one_search_whose_result_a_later_try_brings(tmp_path: Path) -> None:
    with node_with_slow_model(tmp_path, 6.5) as (node, server):
        tenant = filled(node)
        asked = DifyClient(f"{node.url}/v1/dify", tenant.token).retrieve(QUESTION, "handbook:agent")
        assert asked.answer is not None and asked.answer.status_code == 200
        assert asked.tries == 2
        assert {record["metadata"]["key"] for record in asked.records} == {"tower.md", "company.md"}
        assert not any("partial" in record["metadata"] for record in asked.records)
        assert searches_of(tenant) == ["agent succeeded"]
        assert len(server.requests) == 2


def test_an_agent_of_a_minute_costs_dify_no_failure_but_brings_what_one_query_finds_and_says_so(tmp_path: Path) -> None:
    with node_with_slow_model(tmp_path, 60) as (node, _):
        tenant = filled(node)
        asked = DifyClient(f"{node.url}/v1/dify", tenant.token).retrieve(QUESTION, "handbook:agent")
        assert asked.answer is not None and asked.answer.status_code == 200
        assert asked.records and all(record["metadata"]["partial"] is True for record in asked.records)
        assert sorted(searches_of(tenant)) == ["agent running", "one_shot succeeded"]
