"""Searches that wait for their model wait together: an embedded node as it comes, with one workspace."""

import re
import threading
from pathlib import Path
from typing import Any

import pytest
from support.node.cli import Cli, wait_for

from hopnode.worker.inference.scripted import Reply, ScriptedChatServer, ServerRequest, say, use

pytestmark = pytest.mark.slow

SEARCHES = 16
SECONDS = 60.0


def test_sixteen_searches_of_one_workspace_ask_their_model_at_the_same_time(tmp_path: Path) -> None:
    together = threading.Barrier(SEARCHES)

    def reply(request: ServerRequest) -> Reply:
        together.wait(SECONDS)  # nobody gets an answer before all have asked; BrokenBarrierError when they never do
        messages: Any = request.body["messages"]
        ids = re.findall(r"# DOCUMENT ID: (\w+)", str(messages[-1]["content"]))
        if not ids:
            return use(("search_corpus", {"query": "lighthouse"}))
        return say("".join(f"<Document id={one}><Justification>why</Justification></Document>" for one in ids))

    (tmp_path / "note.txt").write_text("The harbour master keeps the key of the lighthouse.")
    with ScriptedChatServer(reply) as model:
        cli = Cli(tmp_path / "data", tmp_path, log_level="warning", chat_url=model.url, chat_model="m")
        with cli.serve():
            added = cli.run("add", "note.txt")
            assert added.returncode == 0, added.stderr
            with cli.client() as http:
                body = {"query": "Who keeps the key?", "collection": "default", "mode": "agent", "join": False}
                made = [http.post("/v1/searches", json=body).json() for _ in range(SEARCHES)]
                read = lambda: [http.get(search["url"]).json() for search in made]  # noqa: E731
                wait_for(lambda: all(search["status"] == "succeeded" for search in read()), SECONDS)
                assert {search["attempt"] for search in read()} == {1}
    assert len(model.requests) == 2 * SEARCHES, "each asked twice, and no request had to be repeated"
