"""Searches on a running node: start, wait, look, list, cancel."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from running_node import REFUSED, RunningNode, wait_until
from unreliable_wire import Fault, UnreliableWire

from hopnode_client import AsyncHopnode, Conflict, JobCancelled, JobFailed, NotFound, WaitTimedOut
from hopnode_client.options import SearchOptions

THINKING: SearchOptions = {"mode": "agent", "profile": "generic"}
"""Asks the model that thinks for ever."""


def last_search(client: Any) -> Any:
    return client.get_search(next(iter(client.list_searches(page_size=1))).id)


async def newest(client: AsyncHopnode) -> Any:
    return await anext(aiter(client.list_searches(page_size=1)))


def test_whoami_tells_workspace_scopes_and_version(client: Any) -> None:
    me = client.whoami()
    assert me.workspace.name == "default"
    assert "search:write" in me.scopes
    assert me.version


def test_a_search_brings_passages_that_stand_in_their_documents(client: Any, wire: UnreliableWire) -> None:
    found = client.search("Who founded the company that built the tower?", "facts", mode="agent", top_k=3)
    assert found.status == "succeeded" and found.ended
    assert {"tower.md", "company.md"} <= {passage.key for passage in found.passages} and len(found.passages) <= 3
    for passage in found.passages:
        text = client.documents.get("facts", passage.key, text=True).text
        assert text[passage.start : passage.end] == passage.text
    assert found.result.mode == "agent" and found.result.profile == "offline"
    assert wire.asked("POST /v1/searches")[0].headers["prefer"].startswith("wait=")


def test_every_option_reaches_the_node_and_defaults_are_the_nodes_own(client: Any, wire: UnreliableWire) -> None:
    options: SearchOptions = {
        "mode": "one_shot",
        "effort": "low",
        "profile": "offline",
        "top_k": 2,
        "filter": {"team": "blue"},
        "min_score": 0.01,
        "neighbours": 1,
        "max_turns": 3,
        "deadline_seconds": 20,
        "answer": False,
        "metadata": {"ticket": 7},
        "join": False,
    }
    assert set(options) | {"callback"} == SearchOptions.__optional_keys__, "a callback needs somebody to call"
    found = client.search("Where is the harbour?", ["facts"], **options)
    assert found.metadata == {"ticket": 7} and found.collections == ("facts",)
    client.search("Where is the harbour?", "facts")
    assert json.loads(wire.asked("POST /v1/searches")[-1].body) == {
        "query": "Where is the harbour?",
        "collection": "facts",
    }


def test_a_search_can_be_started_looked_at_and_waited_for(client: Any) -> None:
    started = client.start_search("Where is the harbour?", "facts", mode="one_shot")
    assert client.wait_for(started.id, timeout=30).passages[0].key == "harbour.md"
    assert client.get_search(started.id).ended
    assert started.id in [one.id for one in client.list_searches(page_size=2)]


def test_lists_go_over_all_pages(client: Any, wire: UnreliableWire) -> None:
    ids = [client.start_search("Where?", "facts", mode="one_shot").id for _ in range(5)]
    listed = []
    for search in client.list_searches(page_size=2):
        listed.append(search.id)
        if len(listed) == 5:
            break
    assert listed == ids[::-1]
    assert len(wire.asked("GET /v1/searches?limit=2")) == 3


def test_the_same_idempotency_key_gives_the_same_search_again(client: Any) -> None:
    first = client.start_search("Where is the harbour?", "facts", idempotency_key="mine-" + client.whoami().version)
    again = client.start_search("Where is the harbour?", "facts", idempotency_key="mine-" + client.whoami().version)
    other = client.start_search("Where is the harbour?", "facts")
    assert first.id == again.id != other.id


def test_the_steps_of_a_search_are_there_afterwards(client: Any) -> None:
    found = client.search("Who founded Brightstone?", "facts", mode="agent")
    trajectory = client.trajectory(found.id)
    assert trajectory.complete and [step.seq for step in trajectory.steps] == list(range(1, found.last_step + 1))


def test_a_search_that_takes_too_long_is_cancelled_and_the_error_says_so(client: Any) -> None:
    began = time.monotonic()
    with pytest.raises(WaitTimedOut, match=r"within 0\.5 s.*was cancelled") as caught:
        client.search("Why?", "facts", timeout=0.5, **THINKING)
    assert time.monotonic() - began < 5
    assert isinstance(caught.value, TimeoutError)
    assert client.get_search(caught.value.job.id).status == "cancelled"


def test_a_wait_that_ends_leaves_the_search_alone_until_somebody_cancels_it(client: Any) -> None:
    started = client.start_search("Why?", "facts", **THINKING)
    with pytest.raises(WaitTimedOut, match="wait for it again, or cancel it"):
        client.wait_for(started.id, timeout=0.3)
    assert not client.get_search(started.id).ended
    assert client.cancel(started.id).status == "cancelled"
    with pytest.raises(JobCancelled) as caught:
        client.wait_for(started.id, timeout=5)
    assert isinstance(caught.value, JobFailed) and caught.value.code == "cancelled"
    with pytest.raises(Conflict):
        client.cancel(started.id)


def test_a_search_that_fails_raises_its_own_code_and_message(client: Any) -> None:
    with pytest.raises(JobFailed, match="The operator should check HOPNODE_CHAT_URL") as caught:
        client.search(f"Why? {REFUSED}", "facts", **THINKING)
    assert caught.value.code == caught.value.job.error.code == "model-refused"
    assert client.get_search(caught.value.job.id).status == "failed"


def test_nothing_is_started_where_the_node_refuses(client: Any, wire: UnreliableWire) -> None:
    with pytest.raises(NotFound, match="no collection `nowhere`"):
        client.search("Why?", "nowhere")
    assert [seen.path for seen in wire.seen] == ["/v1/searches"]


def test_a_search_whose_connection_is_lost_for_good_is_cancelled(client: Any, wire: UnreliableWire) -> None:
    wire.fail("POST /v1/searches", *[Fault(passed=True)] * 4)
    with pytest.raises(Exception, match="was not answered"):
        client.search("Why, oh why?", "facts", **THINKING)
    assert len({seen.headers["idempotency-key"] for seen in wire.asked("POST /v1/searches") if seen.body}) == 1
    lost = last_search(client)
    assert lost.query == "Why, oh why?" and lost.status == "cancelled"


def test_a_cancelled_task_cancels_its_search(node: RunningNode) -> None:
    async def play() -> str:
        async with AsyncHopnode(node.url, node.key) as client:
            task = asyncio.create_task(client.search("Why not?", "facts", **THINKING))
            while (found := await newest(client)).query != "Why not?":
                await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return (await client.get_search(found.id)).status

    assert asyncio.run(play()) == "cancelled"


def test_a_task_that_is_cancelled_once_more_meanwhile_still_cancels_its_search(node: RunningNode) -> None:
    async def play() -> None:
        async with AsyncHopnode(node.url, node.key) as client:
            task = asyncio.create_task(client.search("Why twice?", "facts", **THINKING))
            while (found := await newest(client)).query != "Why twice?":
                await asyncio.sleep(0.02)
            for _ in range(3):
                task.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await task
            async with asyncio.timeout(10):
                while (await client.get_search(found.id)).status != "cancelled":
                    await asyncio.sleep(0.02)

    asyncio.run(play())


def test_a_timeout_around_the_call_cancels_the_search_within_the_first_wait(node: RunningNode) -> None:
    async def play() -> Any:
        async with AsyncHopnode(node.url, node.key) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await client.search("Why at all?", "facts", **THINKING)
            return await newest(client)

    cut = asyncio.run(play())
    assert (cut.query, cut.status) == ("Why at all?", "cancelled")


PROGRAM = """
import sys
from hopnode_client import Hopnode
with Hopnode(sys.argv[1], sys.argv[2]) as node:
    node.search("Why me?", "facts", mode="agent", profile="generic")
"""


@pytest.mark.parametrize("client", ["threads"], indirect=True)
def test_ctrl_c_cancels_the_search(client: Any, node: RunningNode) -> None:
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, node.url, node.key.strip()], stderr=subprocess.PIPE)
    wait_until(lambda: last_search(client).query == "Why me?" and last_search(client).status == "running")
    os.kill(program.pid, signal.SIGINT)
    _, said = program.communicate(timeout=20)
    assert b"KeyboardInterrupt" in said
    assert last_search(client).status == "cancelled"
