"""A search whose embedded process dies or freezes in the middle of an agent's run: begun again from nothing, and never mixed."""

import json
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.node.cli import Cli, wait_for

from hopnode.worker.inference.scripted import Fault, Reply, ScriptedChatServer, ServerRequest, say, use
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.jobs import Job

pytestmark = pytest.mark.slow

LEASE_SECONDS = 3
END_SECONDS = 60.0
DOCUMENTS = {
    "ferry.txt": "The ferry Nordlys leaves from Harstad. Its engine was built by the workshop of Liv Holm.",
    "holm.txt": "Liv Holm has her workshop in Bergen.",
}
QUESTION = "Where was the engine of the ferry Nordlys built?"


class Model:
    """Searches for the ferry, then for Holm, then lists what it saw. While `silent`, the third request gets no answer."""

    def __init__(self) -> None:
        self.silent = True
        self.conversations: list[str] = []
        self.waits = threading.Event()

    def reply(self, request: ServerRequest) -> Reply:
        messages: Any = request.body["messages"]
        told = "".join(str(message.get("content")) for message in messages if message["role"] == "tool")
        self.conversations.append(told)
        turns = sum(message["role"] == "assistant" for message in messages)
        if turns == 2 and self.silent:
            self.waits.set()
            return Fault(wait_seconds=END_SECONDS)
        if turns < 2:
            return use(("search_corpus", {"query": ("ferry Nordlys", "Liv Holm workshop")[turns]}))
        ids = re.findall(r"# DOCUMENT ID: (\w+)", told)
        return say("".join(f"<Document id={one}><Justification>why</Justification></Document>" for one in ids))


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def cli(tmp_path: Path, model: Model) -> Iterator[Cli]:
    docs = tmp_path / "docs"
    docs.mkdir()
    for name, text in DOCUMENTS.items():
        (docs / name).write_text(text)
    with ScriptedChatServer(model.reply) as server:
        settings = {"chat_url": server.url, "chat_model": "m", "lease_seconds": str(LEASE_SECONDS)}
        yield Cli(tmp_path / "data", tmp_path, log_level="warning", **settings)


def begun(cli: Cli, http: httpx.Client, model: Model) -> dict[str, Any]:
    """A search that waits for the third reply of its model."""
    assert cli.run("add", "docs").returncode == 0
    body = {"query": QUESTION, "collection": "default", "mode": "agent", "profile": "generic"}
    search = http.post("/v1/searches", json=body).json()
    assert model.waits.wait(END_SECONDS)
    return search


def events(http: httpx.Client, search: dict[str, Any], last: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events behind the step `last`, until the stream ends or breaks off."""
    kind = ""
    with http.stream("GET", search["events_url"], headers={"Last-Event-ID": str(last)} if last else {}) as answer:
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if name == "event":
                kind = value
            elif name == "data":
                yield kind, json.loads(value)


def until_it_breaks_off(http: httpx.Client, search: dict[str, Any], seen: list[dict[str, Any]]) -> None:
    try:
        seen.extend(step for kind, step in events(http, search) if kind != "end" or "seq" in step)
    except httpx.HTTPError:
        return


def check(http: httpx.Client, search: dict[str, Any], model: Model, last: int = 2) -> list[dict[str, Any]]:
    """Waits for the end and looks whether the attempts lie one behind the other, the last one whole."""
    wait_for(lambda: http.get(search["url"]).json()["status"] == "succeeded", END_SECONDS)
    ended = http.get(search["url"]).json()
    assert ended["attempt"] == last
    assert {one["key"] for one in ended["result"]["passages"]} == set(DOCUMENTS)
    assert ended["result"]["usage"]["turns"] == 3, "nothing of the first attempt is counted"
    steps: list[dict[str, Any]] = http.get(search["trajectory_url"]).json()["steps"]
    assert [step["seq"] for step in steps] == list(range(1, ended["last_step"] + 1))
    first, second = ([step for step in steps if step["attempt"] == number] for number in (1, last))
    assert first + second == steps
    turn = ["action", "observation", "usage"]
    assert [step["kind"] for step in first] == ["start", *turn, *turn]
    assert [step["kind"] for step in second] == ["restart", "start", *turn, *turn, "action", "end"]
    assert second[0]["data"] == {"attempt": last, "last_step": len(first)}
    assert model.conversations[3] == "", "the second conversation begins with nothing of the first"
    assert model.conversations[4:] == model.conversations[1:3]
    return steps


def test_a_process_that_is_killed_leaves_a_search_that_the_next_one_begins_again(cli: Cli, model: Model) -> None:
    seen: list[dict[str, Any]] = []
    with cli.serve() as process, cli.client() as http, cli.client() as listening:
        search = begun(cli, http, model)
        listener = threading.Thread(target=until_it_breaks_off, args=(listening, search, seen))
        listener.start()
        wait_for(lambda: len(seen) == 7, END_SECONDS)
        process.kill()
        process.wait()
        listener.join(END_SECONDS)
    (cli.data_dir / "node.json").unlink()  # left behind by the killed process; the next one writes its own
    model.silent = False
    with cli.serve(), cli.client() as http:
        rest = list(events(http, search, last=seen[-1]["seq"]))
        steps = check(http, search, model)
    assert rest[-1] == ("end", {"search_id": search["id"], "status": "succeeded", "last_step": steps[-1]["seq"]})
    assert rest[0][0] == "restart", "whoever listened is told that what they saw is void"
    assert [*seen, *(step for _, step in rest[:-1])] == steps, "no step lost or repeated over the death of the node"


def test_a_process_that_froze_past_its_lease_writes_nothing_more_for_the_attempt_it_lost(
    cli: Cli, model: Model
) -> None:
    with cli.serve() as process, cli.client() as http:
        search = begun(cli, http, model)
        db = Database(f"sqlite:///{cli.data_dir / 'hopnode.db'}")
        process.send_signal(signal.SIGSTOP)
        try:
            taken: list[Job] = []
            wait_for(lambda: taken.extend(taken_over(db)) or bool(taken), END_SECONDS)
            assert (taken[0].id, taken[0].attempt) == (search["id"], 2)
            assert jobs.give_back(db, taken[0])
            model.silent = False
        finally:
            process.send_signal(signal.SIGCONT)
            db.close()
        check(http, search, model, last=3)


def taken_over(db: Database) -> Iterator[Job]:
    """The job of a worker that fell silent, as another worker claims it."""
    if job := jobs.claim_next(db, role="agent", lease_seconds=60, workspace_limit=4):
        yield job
