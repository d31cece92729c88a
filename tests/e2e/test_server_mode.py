"""Server mode as docs/deploy.md prints it: PostgreSQL, Redis, a Chroma server, the API and both workers as processes."""

import json
import re
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import psutil
import pytest
from support.data.samples import pdf
from support.node.deployment import Deployment, printed_block
from support.node.queue import wait_until
from support.servers.postgres import PostgresServer, free_port
from support.servers.redis_server import RedisServer
from support.servers.website import Site, docs_site, html, serve_site

from hopnode.worker.inference.scripted import Fault, Reply, ScriptedChatServer, ServerRequest, final, use

pytestmark = pytest.mark.slow

API, AGENT, SYNC, CHROMA = "hopnode api", "hopnode worker --role agent", "hopnode worker --role sync", "chroma run"
END_SECONDS = 60
FERRY = "# Ferry notes\n\nThe ferry Nordlys leaves from Harstad every morning at seven.\n"
ENGINE = "The engine of the ferry Nordlys was built by a workshop in Bergen."
HARBOUR = "The harbour master of Harstad keeps the key of the lighthouse."
QUESTION = "Where was the engine of the ferry Nordlys built?"


class Model:
    """A chat model that searches once and names what it saw; keeps silent when it is asked while `silent`, and at the request
    with the number `silent_at`."""

    def __init__(self) -> None:
        self.silent = False
        self.silent_at = 0

    def __call__(self, request: ServerRequest) -> Reply:
        if self.silent or request.number == self.silent_at:
            self.silent = False
            return Fault(wait_seconds=600)
        results = [one["content"] for one in cast(Any, request.body["messages"]) if one["role"] == "tool"]
        shown = re.findall(r"# DOCUMENT ID: (\S+)", "\n".join(results))
        return final(shown[0]) if shown else use(("search_corpus", {"query": "engine of the ferry Nordlys"}))


@pytest.fixture(scope="module")
def site() -> Generator[Site]:
    with serve_site() as running:
        docs_site(running, 5)
        running.put("/", html("Start", links=["/docs/0", "/manual.pdf"]))
        running.put("/manual.pdf", pdf([["The winch of the slipway is oiled in May."]]), "application/pdf")
        yield running


@pytest.fixture(scope="module")
def chat() -> Generator[ScriptedChatServer]:
    with ScriptedChatServer(Model()) as server:
        yield server


@pytest.fixture(scope="module")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Generator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.stop()


@contextmanager
def deployed(
    lines: list[str], folder: Path, postgres: PostgresServer, redis_url: str, **settings: str
) -> Generator[Deployment]:
    """The printed lines on places of our own: a database without tables, an empty data folder, free ports."""
    database_url, chroma_port = postgres.new_empty_database(), free_port()
    places = {
        "/var/lib/hopnode": str(folder / "data"),
        "postgresql+psycopg://hopnode:secret@127.0.0.1:5432/hopnode": database_url,
        "redis://127.0.0.1:6379/0": redis_url,
        "--port 8700": f"--port {free_port()}",
    }
    if any("HOPNODE_CHROMA_URL" in line for line in lines):
        places |= {"http://127.0.0.1:8000": f"http://127.0.0.1:{chroma_port}", "--port 8000": f"--port {chroma_port}"}
    quick = {"lease_seconds": "4", "shutdown_seconds": "2", "agent_slots": "2", "log_format": "json"}
    named = {f"HOPNODE_{name.upper()}": value for name, value in (quick | settings).items()}
    node = Deployment(lines, places, folder, named)
    try:
        yield node
    finally:
        node.close()
        postgres.give_back(database_url)


@pytest.fixture(scope="module")
def node(
    tmp_path_factory: pytest.TempPathFactory,
    postgres_server: PostgresServer,
    redis_server: RedisServer,
    site: Site,
    chat: ScriptedChatServer,
) -> Generator[Deployment]:
    """All that the page prints, in its order, with three documents in the collection `handbook`."""
    settings = {"egress_allow_hosts": site.host, "chat_url": chat.url, "chat_model": "scripted"}
    folder = tmp_path_factory.mktemp("server-mode")
    with deployed(printed_block(), folder, postgres_server, redis_server.url, **settings) as node:
        node.start(CHROMA)
        assert "up to date now" in node.finish(node.command("hopnode migrate"))
        node.start_api()
        node.start(AGENT)
        node.start(SYNC)
        fill(node)
        yield node


def fill(node: Deployment) -> None:
    """Puts three documents into the new collection `handbook`."""
    with node.client() as http:
        assert http.post("/v1/collections", json={"name": "handbook"}).status_code == 201
        for key, text in (("ferry.md", FERRY), ("engine.txt", ENGINE), ("harbour.txt", HARBOUR)):
            assert http.put(f"/v1/collections/handbook/documents/{key}", json={"text": text}).status_code == 201


def search(http: httpx.Client, query: str, collection: str = "handbook", **fields: Any) -> dict[str, Any]:
    """A search by the agent that was waited for and succeeded whole; its passages are checked against their documents."""
    body = {"query": query, "collection": collection, "mode": "agent", "profile": "offline"} | fields
    made = http.post("/v1/searches", json=body, headers={"Prefer": f"wait={END_SECONDS}"})
    assert made.status_code == 201, made.text
    found = made.json()
    assert found["status"] == "succeeded", found["error"]
    assert (found["result"]["degraded"], found["result"]["index"]["vector_lag"]) == ([], 0)
    for passage in found["result"]["passages"]:
        address = f"/v1/collections/{collection}/documents/{passage['key']}"
        document = http.get(address, params={"text": "true"}).json()
        assert passage["text"] == document["text"][passage["start"] : passage["end"]]
    return found


def keys(found: dict[str, Any]) -> set[str]:
    """The documents that a search returned passages of."""
    return {passage["key"] for passage in found["result"]["passages"]}


def claimed(node: Deployment, words: str, job: str) -> bool:
    """Whether a worker says in its log that it took the job."""
    return any(line.get("event") == "job_claimed" and line.get("job") == job for line in node.logged(words))


def synced(http: httpx.Client, source: str) -> dict[str, Any]:
    """A sync of the source, waited for."""
    sync = http.post(f"/v1/sources/{source}/syncs").json()
    return http.get(sync["url"], params={"wait": END_SECONDS}).json()


def test_the_agent_worker_answers_and_a_deleted_document_is_gone_from_the_next_search(node: Deployment) -> None:
    with node.client() as http:
        found = search(http, QUESTION)
        assert "engine.txt" in keys(found)
        assert claimed(node, AGENT, found["id"])
        assert not claimed(node, SYNC, found["id"])
        assert http.delete("/v1/collections/handbook/documents/engine.txt").status_code == 204
        assert "engine.txt" not in keys(search(http, QUESTION))
        assert http.put("/v1/collections/handbook/documents/engine.txt", json={"text": ENGINE}).status_code == 201
        assert "engine.txt" in keys(search(http, QUESTION))


def test_the_sync_worker_brings_a_website_and_what_went_from_it_is_gone(node: Deployment, site: Site) -> None:
    with node.client() as http:
        assert http.post("/v1/collections", json={"name": "web"}).status_code == 201
        body = {"kind": "website", "name": "site", "config": {"start_url": f"{site.url}/", "crawl_delay": 0}}
        made = http.post("/v1/collections/web/sources", json=body)
        assert made.status_code == 201, made.text
        first = synced(http, made.json()["id"])
        assert (first["status"], first["counts"]["added"], first["counts"]["failed"]) == ("succeeded", 7, 0)
        assert any(line.get("kind") == "sync" and line["event"] == "job_claimed" for line in node.logged(SYNC))
        assert f"{site.url}/manual.pdf" in keys(search(http, "When is the winch of the slipway oiled?", "web"))
        assert f"{site.url}/docs/3" in keys(search(http, "Who rotates the keys of Document 3?", "web"))
        site.remove("/docs/3")
        second = synced(http, made.json()["id"])
        assert (second["counts"]["deleted"], second["counts"]["unchanged"]) == (1, 6)
        assert f"{site.url}/docs/3" not in keys(search(http, "Who rotates the keys of Document 3?", "web"))


@pytest.mark.parametrize("whole", [False, True], ids=["the worker", "the worker and what supervises it"])
def test_a_search_whose_worker_is_killed_is_finished_by_the_next_one(
    node: Deployment, chat: ScriptedChatServer, whole: bool
) -> None:
    assert isinstance(chat.reply, Model)
    with node.client() as http:
        search(http, QUESTION)  # the worker is up
        before, chat.reply.silent = len(chat.requests), True
        body = {"query": QUESTION, "collection": "handbook", "mode": "agent", "profile": "generic"}
        made = http.post("/v1/searches", json=body).json()
        wait_until(lambda: len(chat.requests) > before, END_SECONDS, "the model was asked")
        family = node.family(AGENT)
        if whole:
            node.stop(AGENT, signal.SIGKILL)
        for process in family if whole else family[:1]:
            process.kill()
        if whole:
            node.start(AGENT)
        wait_until(lambda: http.get(made["url"]).json()["status"] == "succeeded", END_SECONDS, "it was taken up again")
        ended = http.get(made["url"]).json()
        assert ended["attempt"] == 2
        assert keys(ended) == {"engine.txt"}
        steps = http.get(f"{made['url']}/trajectory").json()["steps"]
        assert [step["kind"] for step in steps].count("end") == 1
        assert [step["seq"] for step in steps] == list(range(1, ended["last_step"] + 1))


def test_an_evaluation_whose_worker_is_killed_goes_on_behind_what_was_asked(
    node: Deployment, chat: ScriptedChatServer
) -> None:
    assert isinstance(chat.reply, Model)
    questions = [
        {"question": QUESTION, "gold": ["engine.txt"]},
        {"question": "Who has the key?", "gold": ["harbour.txt"]},
    ]
    body = {"collection": "handbook", "questions": questions, "mode": "agent", "profile": "generic"}
    with node.client() as http:
        search(http, QUESTION)  # the worker is up
        before = len(chat.requests)
        alone = http.post("/v1/evaluations", json=body).json()
        whole = http.get(alone["url"], params={"wait": END_SECONDS}).json()
        assert (whole["status"], whole["attempt"]) == ("succeeded", 1)
        needed = len(chat.requests) - before
        chat.reply.silent_at = len(chat.requests) + needed  # the last of all requests gets no answer
        made = http.post("/v1/evaluations", json=body | {"compare_with": alone["id"]}).json()
        wait_until(lambda: len(chat.requests) == before + 2 * needed, END_SECONDS, "the last question is asked")
        assert http.get(made["url"]).json()["progress"] == {"asked": 1, "questions": 2}
        node.family(AGENT)[0].kill()
        wait_until(lambda: http.get(made["url"]).json()["status"] == "succeeded", END_SECONDS, "it was taken up again")
        ended = http.get(made["url"]).json()
    assert claimed(node, AGENT, made["id"])
    assert (ended["attempt"], ended["report"]["failed"]) == (2, {})
    assert ended["report"]["recall"] == whole["report"]["recall"]
    assert {one["difference"] for one in ended["comparison"]["differences"]} == {0.0}


def test_the_command_line_finds_the_node_and_the_doctor_calls_it_sound(node: Deployment) -> None:
    found = json.loads(node.finish(f'hopnode search "{QUESTION}" --collection handbook --mode one_shot --json'))
    assert "engine.txt" in keys(found)
    checks = json.loads(node.finish("env HOPNODE_CHAT_URL= hopnode doctor --json"))["checks"]
    states = {check["name"]: check["state"] for check in checks}
    assert {states[name] for name in ("owner", "database", "redis", "chroma", "embedder", "key")} == {"ok"}


def test_without_a_chroma_server_the_api_hosts_one_and_workers_find_it_wherever_it_is(
    tmp_path: Path, postgres_server: PostgresServer, redis_server: RedisServer
) -> None:
    lines = [line for line in printed_block() if "HOPNODE_CHROMA_URL" not in line and not line.startswith(CHROMA)]
    with deployed(lines, tmp_path, postgres_server, redis_server.database(1)) as node:
        node.finish(node.command("hopnode migrate"))
        node.start(AGENT)
        node.start_api()
        fill(node)
        with node.client() as http:
            assert "engine.txt" in keys(search(http, QUESTION))
        told = tmp_path / "data" / "chroma" / "chroma.json"
        first = json.loads(told.read_text())
        node.stop(API, signal.SIGKILL)
        node.start_api()
        assert json.loads(told.read_text())["url"] != first["url"]
        assert not psutil.pid_exists(first["pid"])
        with node.client() as http:
            assert "engine.txt" in keys(search(http, QUESTION))
        assert [node.stop(AGENT), node.stop(API)] == [0, 0]
