"""An evaluation whose embedded process is killed or stopped between the first question and the last: what was asked stays."""

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.node.cli import Cli, wait_for

from hopnode.worker.inference.scripted import Fault, Reply, ScriptedChatServer, ServerRequest, say
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs

pytestmark = pytest.mark.slow

END_SECONDS = 60.0
TOPICS = ("ferry", "engine", "lighthouse", "bakery")
QUESTIONS = {topic: f"What is known of the {topic}?" for topic in TOPICS}


class Model:
    """Finds nothing, at once; while `silent`, the question about the lighthouse gets no answer."""

    def __init__(self) -> None:
        self.silent = True
        self.waits = threading.Event()
        self.asked = list[str]()

    def reply(self, request: ServerRequest) -> Reply:
        messages: Any = request.body["messages"]
        (topic,) = (topic for topic, question in QUESTIONS.items() if question in str(messages))
        self.asked.append(topic)
        if topic == "lighthouse" and self.silent:
            self.waits.set()
            return Fault(wait_seconds=END_SECONDS)
        return say("<NoDocuments/>")


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def cli(tmp_path: Path, model: Model) -> Iterator[Cli]:
    docs = tmp_path / "docs"
    docs.mkdir()
    for topic in TOPICS:
        (docs / f"{topic}.txt").write_text(f"All that is known of the {topic} stands here.")
    with ScriptedChatServer(model.reply) as server:
        settings = {"chat_url": server.url, "chat_model": "m", "lease_seconds": "3", "shutdown_seconds": "1"}
        yield Cli(tmp_path / "data", tmp_path, log_level="warning", **settings)


def kinds_by_attempt(cli: Cli, evaluation_id: str) -> dict[int, list[str]]:
    db = Database(f"sqlite:///{cli.data_dir / 'hopnode.db'}")
    try:
        kinds: dict[int, list[str]] = {}
        for step in jobs.list_steps(db, evaluation_id):
            kinds.setdefault(step.attempt, []).append(step.kind)
        return kinds
    finally:
        db.close()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "told to stop"])
def test_the_next_process_goes_on_behind_what_was_asked(cli: Cli, model: Model, end: signal.Signals) -> None:
    assert cli.run("add", "docs").returncode == 0
    questions = [{"id": t, "question": QUESTIONS[t], "gold": [f"{t}.txt"]} for t in TOPICS]
    body = {"collection": "default", "questions": questions, "mode": "agent", "profile": "generic"}
    with cli.serve() as process, cli.client(timeout=90) as http:
        made = http.post("/v1/evaluations", json=body).json()
        assert model.waits.wait(END_SECONDS)
        assert http.get(made["url"]).json()["progress"] == {"asked": 2, "questions": 4}
        process.send_signal(end)
        process.wait(30)
    (cli.data_dir / "node.json").unlink(missing_ok=True)  # left behind by the killed process
    model.silent, before = False, list(model.asked)
    with cli.serve(), cli.client(timeout=90) as http:
        wait_for(lambda: http.get(made["url"]).json()["status"] == "succeeded", END_SECONDS)
        ended = http.get(made["url"]).json()
    assert ended["attempt"] == 2
    assert ended["progress"] == {"asked": 4, "questions": 4}
    assert [one["id"] for one in ended["report"]["per_question"]] == list(TOPICS)
    assert ended["report"]["failed"] == {}
    assert before == ["ferry", "ferry", "engine", "lighthouse"], "the first one once more before"
    assert model.asked[len(before) :] == ["lighthouse", "lighthouse", "bakery"], "nothing that was asked before"
    assert kinds_by_attempt(cli, made["id"]) == {1: ["start", "asked", "asked"], 2: ["restart", "asked", "asked"]}
