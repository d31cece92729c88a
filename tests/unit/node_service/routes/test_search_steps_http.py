"""The steps of a search as events and as a trajectory, while it runs and after; the test plays the worker."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from support.node.http_node import HttpNode, Tenant, result
from support.node.queue import wait_until

from hopnode.worker.harness.trajectory import FORMAT_VERSION
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.jobs import Job, JobStatus


@dataclass(frozen=True)
class Event:
    kind: str
    id: str | None
    data: dict[str, Any]


def events(lines: Iterator[str]) -> Iterator[Event]:
    """WHATWG event streams, as far as the node uses them."""
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        if not line and "data" in fields:
            yield Event(fields["event"], fields.get("id"), json.loads(fields["data"]))
        if not line:
            fields = {}
        elif name:
            fields[name] = value.removeprefix(" ")


@contextmanager
def stream(tenant: Tenant, search: dict[str, Any], **options: Any) -> Iterator[Iterator[Event]]:
    with tenant.http.stream("GET", search["events_url"], **options) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["x-accel-buffering"] == "no"
        yield events(answer.iter_lines())


@pytest.fixture
def search(tenant: Tenant) -> dict[str, Any]:
    tenant.collection()
    return tenant.search()


@pytest.fixture
def job(node: HttpNode, search: dict[str, Any]) -> Job:
    return node.claim(search["id"])


def add_steps(node: HttpNode, job: Job, *numbers: int) -> None:
    for number in numbers:
        jobs.add_step(node.db, job, "action", {"turn": number, "text": "항구\nnorth"})


def end(node: HttpNode, job: Job) -> None:
    assert jobs.finish(node.db, job, JobStatus.SUCCEEDED, result=result())


def test_steps_come_as_they_happen_and_the_stream_ends_with_the_search(node, tenant, search, job) -> None:
    seen: list[Event] = []

    def listen() -> None:
        with stream(tenant, search) as incoming:
            seen.extend(incoming)

    thread = threading.Thread(target=listen)
    add_steps(node, job, 1)
    thread.start()
    wait_until(lambda: len(seen) == 1, 5, "the step that was there before")
    add_steps(node, job, 2, 3)
    wait_until(lambda: len(seen) == 3, 5, "the steps that came later")
    end(node, job)
    thread.join(5)
    assert not thread.is_alive()
    assert [(event.kind, event.id) for event in seen] == [
        ("action", "1"),
        ("action", "2"),
        ("action", "3"),
        ("end", None),
    ]
    assert seen[0].data["data"] == {"turn": 1, "text": "항구\nnorth"}
    assert seen[-1].data == {"search_id": search["id"], "status": "succeeded", "last_step": 3}


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({}, 1),
        ({"params": {"after": 2}}, 3),
        ({"headers": {"Last-Event-ID": "3"}}, 4),
        ({"headers": {"Last-Event-ID": "4"}, "params": {"after": 1}}, 5),
        ({"params": {"after": 99}}, None),
    ],
)
def test_a_stream_goes_on_behind_the_last_step_that_was_seen(node, tenant, search, job, options, first) -> None:
    add_steps(node, job, *range(1, 6))
    end(node, job)
    with stream(tenant, search, **options) as incoming:
        seen = list(incoming)
    expected = [str(number) for number in range(first, 6)] if first else []
    assert [event.id for event in seen[:-1]] == expected
    assert seen[-1].kind == "end"


def test_a_stream_that_breaks_off_is_resumed_without_a_step_lost_or_repeated(node, tenant, search, job) -> None:
    add_steps(node, job, *range(1, 451))
    end(node, job)
    seen: list[Event] = []
    while not seen or seen[-1].kind != "end":
        headers = {"Last-Event-ID": str(seen[-1].id)} if seen else {}
        with stream(tenant, search, headers=headers) as incoming:
            for event in incoming:
                seen.append(event)
                if len(seen) % 150 == 0:
                    break
    assert [event.id for event in seen] == [*map(str, range(1, 451)), None]


@pytest.mark.parametrize("last", ["soon", "-1", "1.5", "9" * 30])
def test_a_last_event_id_that_is_no_number_of_a_step_is_refused(tenant, search, last) -> None:
    answer = tenant.http.get(search["events_url"], headers={"Last-Event-ID": last})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == "last-event-id"


def test_a_cancelled_search_ends_its_stream(tenant, search) -> None:
    tenant.http.post(f"{search['url']}/cancel")
    with stream(tenant, search) as incoming:
        assert [event.data["status"] for event in incoming] == ["cancelled"]


def test_a_listener_who_leaves_is_forgotten(node: HttpNode, tenant: Tenant, search: dict[str, Any]) -> None:
    def open_streams() -> float:
        text = tenant.http.get("/metrics").text
        return float(
            next(line for line in text.splitlines() if line.startswith("hopnode_http_event_streams")).split()[1]
        )

    before = open_streams()
    with (
        httpx.Client(base_url=node.url, headers=tenant.http.headers) as client,
        client.stream("GET", search["events_url"]),
    ):
        wait_until(lambda: open_streams() == before + 1, 5, "the stream is open")
    wait_until(lambda: open_streams() == before, 5, "the stream is forgotten")


def test_the_trajectory_holds_all_steps_and_says_whether_more_will_come(node, tenant, search, job) -> None:
    add_steps(node, job, *range(1, 451))
    running = tenant.http.get(search["trajectory_url"]).json()
    assert running["format_version"] == FORMAT_VERSION
    assert not running["complete"]
    assert [step["seq"] for step in running["steps"]] == list(range(1, 451))
    assert running["steps"][0]["data"]["turn"] == 1
    end(node, job)
    assert tenant.http.get(search["trajectory_url"]).json()["complete"]
