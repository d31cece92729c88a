"""When a request is sent again: only where that is safe, and after the time that the node asks for."""

import socket
import threading
import time
from typing import Any

import httpx
import pytest
from running_node import RunningNode, ThinkingModel
from unreliable_wire import Fault, UnreliableWire

from hopnode_client import Conflict, Hopnode, HopnodeError, NoAnswer, NotFound, Unavailable, UnexpectedAnswer
from hopnode_client.requests import Request, nap_before_repeat

CUT, LOST_ANSWER = Fault(), Fault(passed=True)
PROBLEM = {"Content-Type": "application/problem+json"}
AWAY = Fault(
    503,
    PROBLEM | {"Retry-After": "1"},
    b'{"type": "urn:hopnode:problem:store-unavailable", "status": 503, "detail": "Away."}',
)


def test_a_get_survives_a_node_that_is_away_and_waits_as_long_as_it_asks(client: Any, wire: UnreliableWire) -> None:
    wire.fail("GET /v1/whoami", AWAY, CUT)
    began = time.monotonic()
    assert client.whoami().version
    assert time.monotonic() - began > 1
    assert len(wire.asked("GET /v1/whoami")) == 3


def test_after_some_tries_the_problem_of_the_node_is_the_error(client: Any, wire: UnreliableWire) -> None:
    wire.fail("GET /v1/whoami", *[Fault(503, PROBLEM, AWAY.body)] * 4)
    with pytest.raises(Unavailable, match=r"Away\. Try again in a while") as caught:
        client.whoami()
    assert (caught.value.status, caught.value.type) == (503, "urn:hopnode:problem:store-unavailable")
    assert len(wire.seen) == 4


def test_a_search_whose_answer_is_lost_is_not_started_twice(client: Any, wire: UnreliableWire) -> None:
    before = [search.id for search in client.list_searches()]
    wire.fail("POST /v1/searches", LOST_ANSWER, CUT)
    found = client.start_search("Where is the harbour?", "facts")
    assert [search.id for search in client.list_searches() if search.id not in before] == [found.id]
    assert len(wire.asked("POST /v1/searches")) == 3


def test_a_poll_that_breaks_off_is_asked_again(client: Any, wire: UnreliableWire) -> None:
    wire.fail("GET /v1/searches/", CUT, AWAY, CUT, CUT, CUT)
    started = client.start_search("Where is the harbour?", "facts")
    with pytest.raises(NoAnswer):
        client.get_search(started.id[:-1])
    assert client.wait_for(started.id).status == "succeeded"


def test_a_put_whose_answer_is_lost_is_sent_again(client: Any, wire: UnreliableWire, name: str) -> None:
    wire.fail("PUT ", LOST_ANSWER)
    assert client.documents.put(name, "a.md", "The harbour lies north.").status == "unchanged"


def test_a_delete_whose_answer_is_lost_has_done_its_work(client: Any, wire: UnreliableWire, name: str) -> None:
    client.documents.put(name, "a.md", "The harbour lies north.")
    wire.fail("DELETE ", LOST_ANSWER)
    client.documents.delete(name, "a.md")
    assert len(wire.asked("DELETE ")) == 2
    with pytest.raises(NotFound):
        client.documents.delete(name, "a.md")


def test_what_would_be_done_twice_is_not_sent_twice(client: Any, wire: UnreliableWire) -> None:
    wire.fail("POST /v1/collections", LOST_ANSWER)
    with pytest.raises(NoAnswer, match="was not answered"):
        client.collections.create("once")
    assert len(wire.asked("POST ")) == 1
    with pytest.raises(Conflict):
        client.collections.create("once")
    client.collections.delete("once")


def test_what_was_turned_away_for_its_number_is_sent_again_whatever_it_is(client: Any, wire: UnreliableWire) -> None:
    wire.fail("POST /v1/collections", Fault(429, {"Retry-After": "0"}))
    assert client.collections.create("later").name == "later"
    client.collections.delete("later")


def test_nobody_waits_for_an_hour(client: Any, wire: UnreliableWire) -> None:
    wire.fail("GET /v1/whoami", Fault(429, {"Retry-After": "3600"}))
    with pytest.raises(HopnodeError):
        client.whoami()
    assert len(wire.seen) == 1


@pytest.mark.parametrize("repeatable", [True, False])
def test_naps_double_up_to_a_limit_and_end(repeatable: bool) -> None:
    request = Request("POST", "/", repeatable=repeatable, attempts=7)
    error = httpx.ConnectError("refused")
    naps = [nap_before_repeat(request, attempt, error) for attempt in range(1, 8)]
    assert naps == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, None]


def test_a_node_that_is_not_there_is_told_apart_with_what_to_look_at() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with Hopnode(f"http://127.0.0.1:{port}", "hn_1_x") as client, pytest.raises(NoAnswer, match="Is the node running"):
        client.whoami()


def test_a_node_that_is_silent_is_given_up_after_the_timeout(model: ThinkingModel) -> None:
    with Hopnode(model.url.removesuffix("/v1"), "hn_1_x", timeout=0.2) as client, pytest.raises(NoAnswer):
        client.collections.create("silent")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault(200, {"Content-Type": "text/html"}, b"<h1>Welcome</h1>"), "text/html, not JSON"),
        (Fault(403, {"Content-Type": "text/html"}, b"<h1>No</h1>"), "status 403"),
        (Fault(301, {"Location": "https://example.com/v1/whoami"}), "Give that address instead"),
        (Fault(200, {"Content-Type": "application/json"}, b'{"hello": 1}'), "no Whoami"),
        (Fault(400, PROBLEM, b"<oops>"), "cannot be read"),
    ],
)
def test_an_answer_that_is_no_nodes_is_said_to_be_so(
    client: Any, wire: UnreliableWire, fault: Fault, said: str
) -> None:
    wire.fail("GET /v1/whoami", fault)
    with pytest.raises(UnexpectedAnswer, match=said) as caught:
        client.whoami()
    assert caught.value.status == fault.status


def test_a_search_outlives_a_restart_of_the_node(node: RunningNode) -> None:
    with Hopnode(node.url, node.key) as client:
        started = client.start_search("Where?", "facts", mode="agent", profile="generic", deadline_seconds=1.5)
        restart = threading.Thread(target=node.restart)
        restart.start()
        assert client.wait_for(started.id, timeout=60).status == "succeeded"
        restart.join()
