"""Searches that take longer than a client of MCP waits, and clients that leave."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.types import CallToolResult
from support.node.http_node import HttpNode, Tenant, serve_node
from support.node.mcp_client import ERAS, call, text_of, with_client
from support.node.queue import wait_until

from hopnode.worker.inference.messages import Completion
from hopnode.worker.inference.scripted import ScriptedChatServer, ServerRequest, final, use
from hopnode.worker.searches.job import run_search_job

QUESTION = "Who founded the company that built the Anselm Tower?"
ASKED = {"query": QUESTION, "collections": ["handbook"]}
by_era = pytest.mark.parametrize("era", ERAS)


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpNode]:
    """A node whose jobs nobody takes up."""
    with serve_node(tmp_path_factory.mktemp("idle")) as served:
        yield served


@pytest.fixture
def tenant(idle: HttpNode) -> Tenant:
    tenant = idle.tenant()
    tenant.collection()
    return tenant


def statuses(tenant: Tenant) -> list[str]:
    return [one["status"] for one in tenant.http.get("/v1/searches").json()["items"]]


@by_era
def test_a_search_that_is_not_done_in_time_gives_its_id_and_goes_on(tenant: Tenant, era: str) -> None:
    answer = call(tenant.node.url, tenant.token, "search", era, **ASKED, wait_seconds=0.2)
    assert not answer.is_error
    found: Any = answer.structured_content
    assert (found["status"], found["passages"]) == ("queued", [])
    assert "Call get_search" in text_of(answer) and found["search_id"] in text_of(answer)
    assert statuses(tenant) == ["queued"]


@by_era
def test_a_client_that_hangs_up_ends_its_search(tenant: Tenant, era: str) -> None:
    async def hang_up(client: Client) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: client.call_tool("search", ASKED | {"wait_seconds": 50}))
            while not statuses(tenant):
                await anyio.sleep(0.05)
            group.cancel_scope.cancel()

    with_client(tenant.node.url, tenant.token, hang_up, era)
    wait_until(lambda: statuses(tenant) == ["cancelled"], 10, "the search of the client that left is cancelled")


@by_era
def test_a_client_that_hangs_up_leaves_a_search_alone_that_was_only_waited_for(tenant: Tenant, era: str) -> None:
    search = tenant.search()

    async def hang_up(client: Client) -> bool:
        with anyio.move_on_after(1) as scope:
            await client.call_tool("get_search", {"search_id": search["id"], "wait_seconds": 50})
        return scope.cancelled_caught

    assert with_client(tenant.node.url, tenant.token, hang_up, era)
    assert statuses(tenant) == ["queued"]


def test_a_search_that_was_cancelled_is_an_error_that_says_so(tenant: Tenant) -> None:
    search = tenant.search()
    assert tenant.http.post(f"/v1/searches/{search['id']}/cancel").status_code == 200
    answer = call(tenant.node.url, tenant.token, "get_search", search_id=search["id"])
    assert answer.is_error and f"The search {search['id']} brought nothing." in text_of(answer)


@by_era
def test_a_node_that_stops_ends_the_wait_and_answers(tmp_path: Path, era: str) -> None:
    with serve_node(tmp_path) as node:
        tenant = node.tenant()
        tenant.collection()

        async def stop_meanwhile(client: Client) -> CallToolResult:
            answers: list[CallToolResult] = []
            await client.list_tools()  # the client checks what it gets against the schema, and could not ask later

            async def ask() -> None:
                answers.append(await client.call_tool("search", ASKED | {"wait_seconds": 50}))

            async with anyio.create_task_group() as group:
                group.start_soon(ask)
                while not statuses(tenant):
                    await anyio.sleep(0.05)
                started = time.monotonic()
                node.server.should_exit = True
            assert time.monotonic() - started < 5
            return answers[0]

        answer = with_client(node.url, tenant.token, stop_meanwhile, era)
        assert not answer.is_error and "Call get_search" in text_of(answer)


@pytest.mark.slow
def test_an_agent_that_takes_its_time_is_waited_for_by_get_search(tmp_path: Path) -> None:
    def reply(request: ServerRequest) -> Completion:
        if request.number == 1:
            return use(("search_corpus", {"query": QUESTION}))
        server.stopping.wait(2)
        return final(*re.findall(r"DOCUMENT ID: (\S+)", str(request.body)))

    with ScriptedChatServer(reply) as server:
        settings = {"chat_url": server.url, "chat_model": "scripted"}
        with serve_node(tmp_path, settings, handlers={"search": run_search_job}) as node:
            tenant = node.tenant()
            tenant.collection()
            assert tenant.put("tower.md", "The Anselm Tower was built by the Brook Company.").status_code == 201
            first = call(node.url, tenant.token, "search", **ASKED, mode="agent", wait_seconds=0.5)
            started: Any = first.structured_content
            assert started["status"] in {"queued", "running"}
            second = call(node.url, tenant.token, "get_search", search_id=started["search_id"])
            found: Any = second.structured_content
            assert (found["status"], [one["key"] for one in found["passages"]]) == ("succeeded", ["tower.md"])
