"""The steps of a search as they come, over a connection that may break."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from running_node import RunningNode, wait_until
from unreliable_wire import Fault, UnreliableWire

from hopnode_client import HopnodeError, NotFound
from hopnode_client.events import Event, EventReader

STREAM = "GET /v1/searches/"


def test_the_stream_tells_every_step_once_and_ends_with_the_search(client: Any) -> None:
    started = client.start_search("Who founded the company that built the tower?", "facts", mode="agent")
    steps = list(client.stream(started.id))
    assert client.get_search(started.id).ended
    assert steps == list(client.trajectory(started.id).steps)


@pytest.mark.parametrize("cut_after", [1, 900])
def test_a_stream_that_breaks_goes_on_where_it_was(client: Any, wire: UnreliableWire, cut_after: int) -> None:
    found = client.search("Who founded the company that built the tower?", "facts", mode="agent")
    wire.seen.clear()
    wire.fail(STREAM, Fault(after=cut_after), Fault(503), Fault(after=cut_after))
    assert list(client.stream(found.id)) == list(client.trajectory(found.id).steps)
    positions = [int(seen.headers["last-event-id"]) for seen in wire.asked(STREAM) if "events" in seen.path]
    assert len(positions) == 4 and positions == sorted(positions)


def test_a_stream_can_begin_behind_a_step(client: Any) -> None:
    found = client.search("Who founded Brightstone?", "facts", mode="agent")
    assert [step.seq for step in client.stream(found.id, after=2)] == list(range(3, found.last_step + 1))


def test_a_running_search_is_followed_until_it_is_cancelled(client: Any) -> None:
    started = client.start_search("Why?", "facts", mode="agent", profile="generic")
    wait_until(lambda: client.get_search(started.id).last_step > 0)
    seen = []
    for step in client.stream(started.id):
        seen.append(step.kind)
        if len(seen) == 1:
            client.cancel(started.id)
    assert seen[0] == "start"


def test_a_stream_of_nothing_is_an_error_at_once(client: Any, wire: UnreliableWire) -> None:
    with pytest.raises(NotFound):
        list(client.stream("nothing"))
    assert len(wire.seen) == 1


def test_leaving_a_stream_early_leaves_the_search_alone(client: Any, node: RunningNode) -> None:
    started = client.start_search("Why?", "facts", mode="agent", profile="generic")
    following = client.stream(started.id)
    assert next(following).seq == 1
    following.close()
    assert not client.get_search(started.id).ended
    client.cancel(started.id)


TEXT = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=20)


@given(
    events=st.lists(st.tuples(st.sampled_from(["action", "end"]), TEXT, st.none() | st.integers(0, 99).map(str))),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    cuts=st.lists(st.integers(0, 400)),
)
def test_events_are_read_alike_however_the_bytes_are_cut(events: list[Any], end: str, cuts: list[int]) -> None:
    lines = [": ok", "retry: 1000", ""]
    for kind, data, number in events:
        lines += [f"event: {kind}", f"data: {data}", *([f"id: {number}"] if number else []), ""]
    sent = end.join([*lines, ""]).encode() + b": the end\n"
    edges = sorted({0, *(cut for cut in cuts if cut < len(sent)), len(sent)})
    reader = EventReader()
    read = [event for low, high in pairwise(edges) for event in reader.feed(sent[low:high])]
    assert read == [Event(*event) for event in events]


def test_a_half_event_is_never_told() -> None:
    assert list(EventReader().feed(b'event: action\nid: 1\ndata: {"seq": 1}\n')) == []


def test_a_stream_that_never_lives_ends_with_the_error(client: Any, wire: UnreliableWire) -> None:
    found = client.search("Where?", "facts", mode="one_shot")
    wire.fail(STREAM, Fault(403, {"Content-Type": "text/html"}, b"no"))
    with pytest.raises(HopnodeError, match="status 403"):
        list(client.stream(found.id))
