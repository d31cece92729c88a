"""The README's commands, run as they are printed there, on a home folder and a port of their own."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.node.queue import wait_until
from support.servers.postgres import free_port

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
VENV = Path(sys.executable).parents[1]
START_SECONDS, COMMAND_SECONDS = 60.0, 120.0
WARM_START_SECONDS = 15.0
"""What the start of a node on an existing folder may take here; what it takes by itself is printed, and is below five."""


def printed_commands() -> list[str]:
    """Every command of the README's console blocks, with its further lines."""
    blocks = re.findall(r"^```console\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    return [command.strip() for block in blocks for command in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]


class Visitor:
    """Somebody who follows the README in the folder of the repository; paths and the port are theirs."""

    def __init__(self, home: Path) -> None:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("HOPNODE_", "MAKE", "MFLAGS"))
        }
        self.home = home
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._environment = kept | {"HOME": str(home), "HOPNODE_PORT": str(self.port), "COLUMNS": "100"}

    def run(self, command: str) -> str:
        """Runs a printed command to its end, which must be good, and returns what it said."""
        done = subprocess.run(
            ["bash", "-c", self._own(command)],
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def keep_running(self, command: str) -> Generator[float]:
        """Runs a printed command that stays; yields the seconds until the node was ready. Ends with Ctrl-C."""
        with (self.home / "log").open("ab") as log:
            started = time.perf_counter()
            process = subprocess.Popen(
                ["bash", "-c", f"exec {self._own(command)}"],
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            wait_until(lambda: self.ready() or process.poll() is not None, START_SECONDS, "the node is ready")
            assert process.poll() is None, (self.home / "log").read_text()
            yield time.perf_counter() - started
        finally:
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all that the command started
            process.wait(30)
            wait_until(lambda: not _lives(process.pid), 30, "nothing of the command is left")

    def ready(self) -> bool:
        """Whether `/readyz` says yes."""
        try:
            return httpx.get(f"{self.url}/readyz", timeout=5, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    def get(self, path: str, **params: str) -> Any:
        """What the node answers with the key of its data folder."""
        key = (self.home / ".hopnode" / "api_key").read_text().strip()
        answer = httpx.get(
            f"{self.url}{path}", params=params, headers={"Authorization": f"Bearer {key}"}, trust_env=False
        )
        assert answer.is_success, answer.text
        return answer.json()

    def _own(self, command: str) -> str:
        ready = VENV / ".runtime-ready"  # the set-up is what runs this test: `make` need not do it again
        command = command.replace("make serve", f"make -o {ready} VENV={VENV} serve")
        return command.replace(".venv/bin/", f"{VENV}/bin/").replace(":8700/", f":{self.port}/")


def _lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def cites_exactly(visitor: Visitor, result: Any) -> int:
    """Checks every passage against its document as the node hands it out; how many there were."""
    for passage in result["passages"]:
        document = visitor.get(f"/v1/collections/default/documents/{passage['key']}", text="true")
        assert document["id"] == passage["document_id"]
        assert passage["text"] == document["text"][passage["start"] : passage["end"]]
    return len(result["passages"])


def test_the_five_minutes_of_the_readme_are_true(tmp_path: Path) -> None:
    serve, add, search, curl = printed_commands()
    assert serve.startswith("make serve") and " add README.md docs/" in add and " search " in search
    assert curl.startswith("curl ") and ":8700/" in curl and "~/.hopnode/api_key" in curl
    visitor = Visitor(tmp_path)
    with visitor.keep_running(serve) as first:
        pass
    with visitor.keep_running(serve) as again:
        print(f"\n`make serve` answers /readyz after {first:.1f} s on a new folder, {again:.1f} s on an existing one")
        assert " 0 failed" in visitor.run(add)
        files = [ROOT / "README.md", *(path for path in (ROOT / "docs").rglob("*") if path.is_file())]
        documents = visitor.get("/v1/collections/default/documents", limit="200")["items"]
        names = {str(path.relative_to(ROOT / "docs")) if path.parent != ROOT else path.name for path in files}
        assert {document["key"] for document in documents} == names

        shown = visitor.run(search)
        asked = visitor.get(visitor.get("/v1/searches")["items"][0]["url"])
        assert cites_exactly(visitor, asked["result"]) > 0
        for passage in asked["result"]["passages"]:
            assert f"[{passage['start']}:{passage['end']}]" in shown

        answer = json.loads(visitor.run(curl))
        assert answer["status"] == "succeeded"
        assert cites_exactly(visitor, answer["result"]) > 0
        assert "decisions/0008-a-lost-search-begins-anew.md" in {one["key"] for one in answer["result"]["passages"]}
    assert again < WARM_START_SECONDS


def test_the_readme_shows_commands_and_no_prompt_without_one() -> None:
    assert len(printed_commands()) == 4
    assert not [command for command in printed_commands() if not command]
