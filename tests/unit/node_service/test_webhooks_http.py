"""Webhooks, deliveries and callbacks over HTTP, with a receiver on loopback; the test plays the worker."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook as Verifier
from support.node.http_node import HttpNode, Tenant, passage, result, serve_node
from support.node.queue import wait_until
from support.servers.receiver import Answer, Receiver, receiving

from hopnode.worker.job_handlers import make_deliverer
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.jobs import JobStatus


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as one:
        yield one


@pytest.fixture
def telling(tmp_path: Path, receiver: Receiver) -> Iterator[HttpNode]:
    """A node that may call the receiver, and does."""
    with serve_node(tmp_path / "node", {"webhook_allow_hosts": [receiver.address]}) as node:
        deliverer = make_deliverer(node.runtime)
        deliverer.start()
        yield node
        deliverer.stop()


@pytest.fixture
def owner(telling: HttpNode) -> Tenant:
    tenant = telling.tenant()
    tenant.collection()
    return tenant


def _finish(node: HttpNode, search_id: str) -> None:
    assert jobs.finish(node.db, node.claim(search_id), JobStatus.SUCCEEDED, result=result(passage()))


def _delivered(owner: Tenant, count: int = 1) -> list[dict[str, Any]]:
    def found() -> list[dict[str, Any]]:
        return owner.http.get("/v1/deliveries", params={"status": "delivered"}).json()["items"]

    wait_until(lambda: len(found()) == count, 15, "the events are delivered")
    return found()


def test_a_search_calls_back_with_what_a_get_would_say(telling: HttpNode, owner: Tenant, receiver: Receiver) -> None:
    secret = owner.http.post("/v1/webhooks/callback-secret").json()["secret"]
    callback = {"url": receiver.url, "headers": {"Authorization": "planted-header"}, "metadata": {"run": "r1"}}
    search = owner.search(callback=callback)
    assert "callback" not in search
    _finish(telling, search["id"])
    [delivery] = _delivered(owner)
    [call] = receiver.calls
    body = Verifier(secret).verify(call.body, dict(call.headers))
    read = owner.http.get(search["url"]).json()
    assert body["data"]["result"]["passages"] == read["result"]["passages"]
    assert (body["data"]["links"]["self"], body["data"]["metadata"]) == (search["url"], {"run": "r1"})
    assert call.headers["authorization"] == "planted-header"
    assert (delivery["id"], delivery["event"], delivery["webhook_id"]) == (call.id, "search.succeeded", None)
    assert [attempt["status"] for attempt in delivery["attempts"]] == [200]
    files = [path for path in telling.settings.root.rglob("*") if path.is_file()]
    assert [path for path in files if b"planted-header" in path.read_bytes()] == []
    assert [path for path in files if secret.encode() in path.read_bytes()] == []


def test_a_webhook_shows_its_secret_once_and_follows_its_rotation(
    telling: HttpNode, owner: Tenant, receiver: Receiver
) -> None:
    made = owner.http.put("/v1/webhooks", json={"url": receiver.url, "events": ["search.cancelled"]})
    assert (made.status_code, made.json()["secret"][:6]) == (201, "whsec_")
    again = owner.http.put("/v1/webhooks", json={"url": receiver.url})
    assert (again.status_code, again.json()["secret"], again.json()["id"]) == (200, None, made.json()["id"])
    rotated = owner.http.put("/v1/webhooks", json={"url": receiver.url, "rotate_secret": True}).json()["secret"]
    [listed] = owner.http.get("/v1/webhooks").json()["items"]
    assert (listed["secret"], listed["events"], listed["disabled_reason"]) == (None, [], None)
    _finish(telling, owner.search()["id"])
    _delivered(owner)
    for secret in (made.json()["secret"], rotated):
        Verifier(secret).verify(receiver.calls[0].body, dict(receiver.calls[0].headers))
    assert owner.http.delete("/v1/webhooks", params={"url": receiver.url}).status_code == 204
    assert owner.http.delete("/v1/webhooks", params={"url": receiver.url}).status_code == 404


@pytest.mark.parametrize(
    "url", ["ftp://example.com", "https://", "https://a:b@example.com", "nonsense", "http://x:0/", "http://[::1"]
)
def test_an_address_that_nothing_can_be_sent_to_is_refused(owner: Tenant, url: str) -> None:
    assert owner.http.put("/v1/webhooks", json={"url": url}).status_code == 422
    body = {"query": "q", "collection": "handbook", "callback": {"url": url}}
    answer = owner.http.post("/v1/searches", json=body)
    assert [error["field"] for error in answer.json()["errors"]] == ["callback.url"]


@pytest.mark.parametrize("name", ["Host", "webhook-id", "Content-Type", "bad name"])
def test_a_header_that_the_node_sets_itself_is_refused(owner: Tenant, receiver: Receiver, name: str) -> None:
    callback = {"url": receiver.url, "headers": {name: "x"}}
    body = {"query": "q", "collection": "handbook", "callback": callback}
    assert owner.http.post("/v1/searches", json=body).status_code == 422


def test_a_dead_delivery_is_listed_and_replayed(telling: HttpNode, owner: Tenant, receiver: Receiver) -> None:
    receiver.answers.append(Answer(400))
    _finish(telling, owner.search(callback={"url": receiver.url})["id"])
    listing = "/v1/deliveries?status=dead"
    wait_until(lambda: bool(owner.http.get(listing).json()["items"]), 10, "the delivery is dead")
    [dead] = owner.http.get(listing).json()["items"]
    assert "400" in dead["error"]
    assert owner.http.post(f"/v1/deliveries/{dead['id']}/replay").status_code == 202
    [delivery] = _delivered(owner)
    assert [attempt["status"] for attempt in delivery["attempts"]] == [400, 200]
    other = telling.tenant()
    assert other.http.get("/v1/deliveries").json()["items"] == []
    assert other.http.post(f"/v1/deliveries/{dead['id']}/replay").status_code == 404


def test_a_callback_that_is_asked_for_later_is_answered_now_or_called_then(
    telling: HttpNode, owner: Tenant, receiver: Receiver
) -> None:
    search = owner.search()
    asked = owner.http.post(f"{search['url']}/callback", json={"url": receiver.url})
    assert (asked.status_code, asked.json()["status"]) == (202, "queued")
    _finish(telling, search["id"])
    _delivered(owner)
    ended = owner.http.post(f"{search['url']}/callback", json={"url": receiver.url})
    assert (ended.status_code, ended.json()["status"]) == (200, "succeeded")
    assert ended.json()["result"]["passages"]
    assert telling.tenant().http.post(f"{search['url']}/callback", json={"url": receiver.url}).status_code == 404


def test_a_cancel_url_needs_no_key_and_cancels_its_search_alone(telling: HttpNode, owner: Tenant) -> None:
    one, two = owner.search(), owner.search("Where is the mill?")
    nobody = telling.client(None)
    crossed = one["cancel_url"].replace(one["id"], two["id"])
    assert nobody.post(crossed).status_code == 404
    assert nobody.post(f"/v1/searches/{one['id']}/cancel").status_code == 401
    cancelled = nobody.post(one["cancel_url"])
    assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    assert nobody.post(one["cancel_url"]).status_code == 409
    assert owner.http.get(two["url"]).json()["status"] == "queued"
    assert "cancel_url" not in owner.http.get(two["url"]).json()


def test_only_an_admin_sees_webhooks_and_deliveries(telling: HttpNode, owner: Tenant) -> None:
    narrow = telling.with_scopes(owner, "search:read", "search:write")
    for answer in (
        narrow.get("/v1/webhooks"),
        narrow.get("/v1/deliveries"),
        narrow.post("/v1/webhooks/callback-secret"),
        narrow.put("/v1/webhooks", json={"url": "https://example.com"}),
    ):
        assert answer.status_code == 403
