"""Searches of one process at its cores: those that compute take turns, and those with a model do not wait to ask it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.node.http_node import HttpNode, Tenant, serve_node
from support.node.queue import wait_until

from hopnode.worker.inference.scripted import Reply, ScriptedChatServer, ServerRequest, say, use
from hopnode.worker.searches.job import run_search_job
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.jobs import JobStatus

pytestmark = pytest.mark.slow


class Model:
    """Searches once, then says that nothing helps."""

    def __init__(self) -> None:
        self.asked = threading.Event()

    def reply(self, request: ServerRequest) -> Reply:
        self.asked.set()
        messages: Any = request.body["messages"]
        if any(message["role"] == "tool" for message in messages):
            return say("<NoDocuments/>")
        return use(("search_corpus", {"query": "harbour"}))


@pytest.fixture(scope="module")
def model() -> Model:
    return Model()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, model: Model) -> Iterator[HttpNode]:
    folder: Path = tmp_path_factory.mktemp("turns")
    with ScriptedChatServer(model.reply) as server:
        settings = {"chat_url": server.url, "chat_model": "m"}
        with serve_node(folder, settings, handlers={"search": run_search_job}) as served:
            yield served


@pytest.fixture
def asker(node: HttpNode) -> Tenant:
    tenant = node.tenant()
    tenant.collection()
    assert tenant.put("quay.md", "The harbour lies north of the old town.").status_code == 201
    return tenant


@contextmanager
def busy(node: HttpNode) -> Iterator[None]:
    """All turns are taken by others."""
    taken = 0
    while node.runtime.computing.acquire(timeout=0):
        taken += 1
    try:
        yield
    finally:
        node.runtime.computing.release(taken)


def status(node: HttpNode, tenant: Tenant, search: dict[str, Any]) -> JobStatus:
    return jobs.get_job(node.db, tenant.workspace.id, search["id"]).status


@pytest.mark.parametrize("fields", [{"mode": "one_shot"}, {"mode": "agent", "profile": "offline"}, {"mode": "auto"}])
def test_a_search_that_computes_waits_for_its_turn_and_then_runs(
    node: HttpNode, asker: Tenant, fields: dict[str, Any]
) -> None:
    with busy(node):
        search = asker.search(**fields)
        wait_until(lambda: status(node, asker, search) is JobStatus.RUNNING, 10, "it was claimed")
        assert not asker.http.get(search["trajectory_url"]).json()["steps"]
    wait_until(lambda: status(node, asker, search).final, 10, "it had its turn")
    assert asker.http.get(search["url"]).json()["result"]["passages"]


def test_a_search_that_waits_for_its_turn_can_be_cancelled(node: HttpNode, asker: Tenant) -> None:
    with busy(node):
        search = asker.search(mode="one_shot")
        wait_until(lambda: status(node, asker, search) is JobStatus.RUNNING, 10, "it was claimed")
        asker.http.post(f"{search['url']}/cancel")
        after = asker.search(mode="one_shot")
        wait_until(lambda: status(node, asker, after) is JobStatus.RUNNING, 3, "its thread was free for the next one")


def test_a_search_with_a_model_asks_it_however_busy_the_cores_are(node: HttpNode, asker: Tenant, model: Model) -> None:
    with busy(node):
        model.asked.clear()
        search = asker.search(mode="agent", profile="generic")
        assert model.asked.wait(10)
    wait_until(lambda: status(node, asker, search).final, 10, "it ended")
    assert asker.http.get(search["url"]).json()["result"]["stop_reason"] == "nothing-found"
