"""The command line as a user meets it: the real command in processes of its own, on data folders of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.node.cli import Cli, wait_for
from support.servers.website import docs_site, serve_site

from hopnode.worker.inference.scripted import ScriptedChatServer, say

pytestmark = pytest.mark.slow

STOP_SECONDS = 10.0
NOTES = """# Ferry notes

The ferry Nordlys leaves from Harstad every morning at seven.

## Repairs

Its engine was built by a workshop in Bergen and was overhauled in the spring.
"""


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """The command on an empty data folder, with a small folder of documents beside it."""
    docs = tmp_path / "docs"
    (docs / "deep").mkdir(parents=True)
    (docs / "notes.md").write_text(NOTES)
    (docs / "deep" / "harbour.txt").write_text("The harbour master of Harstad keeps the key of the lighthouse.")
    (docs / ".hidden").write_text("not for anybody")
    return Cli(tmp_path / "data", tmp_path, log_level="warning")


def _get(cli: Cli, path: str, **params: str) -> Any:
    answer = httpx.get(f"{cli.node_url}{path}", headers={"Authorization": f"Bearer {cli.key}"}, params=params)
    assert answer.is_success, answer.text
    return answer.json()


def test_add_and_search_work_before_anything_was_started(cli: Cli) -> None:
    added = cli.run("add", "docs")
    assert added.returncode == 0, added.stderr
    assert "2 stored" in added.stdout and "1 hidden" in added.stdout
    found = cli.run("search", "When does the ferry Nordlys leave?")
    assert found.returncode == 0, found.stderr
    assert "notes" in found.stdout.lower() or "ferry" in found.stdout.lower()
    assert "Nordlys" in found.stdout
    assert not (cli.data_dir / "node.json").exists()


def test_adding_again_costs_nothing_and_keys_are_relative_paths(cli: Cli) -> None:
    first = cli.json("add", "docs")
    assert {document["key"]: document["status"] for document in first["documents"]} == {
        "notes.md": "stored",
        "deep/harbour.txt": "stored",
    }
    again = cli.json("add", "docs")
    assert {document["status"] for document in again["documents"]} == {"unchanged"}


def test_every_passage_of_a_search_is_exactly_the_cited_span_of_its_document(cli: Cli) -> None:
    with cli.serve():
        keys = {document["key"] for document in cli.json("add", "docs")["documents"]}
        texts = [_get(cli, f"/v1/collections/default/documents/{key}", text="true") for key in keys]
        by_id = {document["id"]: document["text"] for document in texts}
        found = cli.json("search", "Who keeps the key of the lighthouse?", "--mode", "agent")
    passages = found["result"]["passages"]
    assert passages
    for passage in passages:
        assert passage["text"] == by_id[passage["document_id"]][passage["start"] : passage["end"]]


def test_the_agents_steps_are_shown_while_it_works_and_not_mixed_into_the_result(cli: Cli) -> None:
    with cli.serve():
        cli.run("add", "docs")
        found = cli.run("search", "Where was the engine of the ferry Nordlys built?", "--mode", "agent")
    assert "turn 1: " in found.stderr
    assert "turn 1: " not in found.stdout
    assert "\x1b[" not in found.stdout


def test_an_answer_stands_before_the_passages_with_what_it_cites(cli: Cli) -> None:
    with ScriptedChatServer(lambda _: say("The harbour master does [P1].")) as writer:
        cli.environment |= {"HOPNODE_ANSWER_URL": writer.url, "HOPNODE_ANSWER_MODEL": "writer"}
        cli.run("add", "docs")
        found = cli.run("search", "Who keeps the key of the lighthouse?", "--answer", "--mode", "one_shot")
    assert found.returncode == 0, found.stderr
    lines = found.stdout.splitlines()
    assert lines[0] == "The harbour master does [1]."
    assert lines[1].startswith("  [1] ") and "harbour.txt" in lines[1]
    refused = cli.run("search", "Who?", "--answer", HOPNODE_ANSWER_URL="", HOPNODE_ANSWER_MODEL="")
    assert refused.returncode != 0
    assert "HOPNODE_ANSWER_MODEL" in refused.stderr


def test_a_file_that_cannot_be_parsed_is_listed_with_its_reason_and_stops_no_other(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "docs" / "broken.pdf").write_bytes(b"%PDF-1.7 and then nothing of use")
    done = cli.run("add", "docs")
    assert done.returncode == 3, done.stderr
    assert "2 stored" in done.stdout and "1 failed" in done.stdout
    assert "broken.pdf" in done.stdout
    outcome = next(one for one in cli.json("add", "docs", code=3)["documents"] if one["key"] == "broken.pdf")
    assert outcome["reason"] and outcome["message"]
    assert cli.run("add", "docs/broken.pdf").returncode == 1


def test_what_does_not_exist_and_a_wrong_key_are_exit_code_4(cli: Cli) -> None:
    with cli.serve():
        shown = cli.run("collections", "show", "nowhere")
        assert shown.returncode == 4
        assert "error: " in shown.stderr and "mend: " in shown.stderr
        assert cli.run("search", "anything").returncode == 4
        assert cli.run("search", "anything", "--collection", "nowhere").returncode == 4
        assert cli.run("sync", "--source", "nothing").returncode == 4
        refused = cli.run("collections", "list", HOPNODE_API_KEY="hn_00000000_" + "x" * 43)
        assert refused.returncode == 4
        assert "HOPNODE_API_KEY" in refused.stderr


def test_collections_are_made_shown_listed_and_deleted(cli: Cli) -> None:
    with cli.serve():
        assert cli.json("collections", "create", "handbook", "--description", "How we work")["name"] == "handbook"
        assert cli.run("collections", "create", "handbook").returncode == 1
        cli.json("add", "docs", "--collection", "handbook")
        assert cli.json("collections", "show", "handbook")["stats"]["documents"] == 2
        assert "documents" in cli.run("collections", "show", "handbook").stdout
        assert [one["name"] for one in cli.json("collections", "list")] == ["handbook"]
        assert cli.run("collections", "delete", "handbook", "--yes").returncode == 0
        assert cli.json("collections", "list") == []


def test_keys_are_made_used_listed_and_revoked(cli: Cli) -> None:
    with cli.serve():
        made = cli.run("keys", "create", "n8n", "--days", "30")
        token = made.stdout.strip()
        assert token.startswith("hn_")
        assert cli.run("collections", "list", HOPNODE_API_KEY=token).returncode == 0
        refused = cli.run("collections", "create", "x", HOPNODE_API_KEY=token)
        assert refused.returncode == 4 and "collections:write" in refused.stderr
        key = next(one for one in cli.json("keys", "list") if one["name"] == "n8n")
        assert token not in json.dumps(key)
        assert cli.run("keys", "revoke", key["id"]).returncode == 0
        assert cli.run("collections", "list", HOPNODE_API_KEY=token).returncode == 4
        assert "revoked" in cli.run("keys", "list").stdout


def test_a_website_is_synced_and_its_pages_are_found(cli: Cli) -> None:
    with serve_site() as site:
        docs_site(site, 4)
        host = site.url.removeprefix("http://").rstrip("/")
        cli.environment |= {"HOPNODE_EGRESS_ALLOW_HOSTS": host, "HOPNODE_EGRESS_ALLOW_CIDRS": "127.0.0.0/8"}
        with cli.serve():
            first = cli.json("sync", f"{site.url}/", "--collection", "site")
            assert first["status"] == "succeeded"
            assert first["counts"]["added"] >= 4
            assert len(cli.json("sync", "--list")) == 1
            again = cli.run("sync", f"{site.url}/", "--collection", "site")
            assert again.returncode == 0 and "unchanged" in again.stdout
            assert len(cli.json("sync", "--list")) == 1
            assert cli.json("search", "docs", "--collection", "site")["result"]["passages"]


def _waited_for_a_core(pid: int) -> float:
    """Seconds that a process's main thread was ready to run and did not get a core, since others had them."""
    path = Path(f"/proc/{pid}/schedstat")
    return int(path.read_text().split()[1]) / 1e9 if path.exists() else 0.0


def test_serve_is_ready_within_five_seconds_once_the_data_folder_exists(cli: Cli) -> None:
    with cli.serve():
        pass  # the first start makes the folder
    started = time.perf_counter()
    with cli.serve() as process:
        assert httpx.get(f"{cli.node_url}/readyz").status_code == 200
        seconds = time.perf_counter() - started
        assert seconds - _waited_for_a_core(process.pid) < 5, seconds


def test_serve_says_its_address_where_the_key_lies_and_how_to_search(cli: Cli) -> None:
    with cli.serve() as process:
        url = cli.node_url
        process.send_signal(signal.SIGINT)
        shown, _ = process.communicate(timeout=STOP_SECONDS)
    assert url and url in shown
    assert str(cli.data_dir / "api_key") in shown
    assert "hopnode search" in shown


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_ends_cleanly_within_seconds_on_a_signal(cli: Cli, number: signal.Signals) -> None:
    with cli.serve() as process:
        started = time.perf_counter()
        process.send_signal(number)
        shown, errors = process.communicate(timeout=STOP_SECONDS)
        assert process.returncode == 0, errors
        assert time.perf_counter() - started < STOP_SECONDS
    assert "Stopped." in shown
    assert "Traceback" not in errors
    assert not (cli.data_dir / "node.json").exists()


def _busy_folder(root: Path) -> Path:
    """Enough text to keep the embedder busy for a while."""
    folder = root / "busy"
    folder.mkdir()
    for number in range(8):
        words = " ".join(f"word{number}x{place} said that" for place in range(6000))
        (folder / f"{number}.txt").write_text(words)
    return folder


def test_serve_ends_cleanly_while_documents_are_embedded(cli: Cli, tmp_path: Path) -> None:
    with cli.serve() as process:
        adding = cli.start("add", str(_busy_folder(tmp_path)))
        wait_for(lambda: bool(_get(cli, "/v1/collections")["items"]), 30)
        process.send_signal(signal.SIGTERM)
        shown, errors = process.communicate(timeout=2 * STOP_SECONDS)
        _, complaint = adding.communicate(timeout=STOP_SECONDS)
    assert process.returncode == 0, errors
    assert "Stopped." in shown
    assert "Traceback" not in errors and "terminate called" not in errors
    assert adding.returncode == 1
    assert "No node answers" in complaint


def test_leaving_add_with_ctrl_c_ends_the_node_that_it_started(cli: Cli, tmp_path: Path) -> None:
    process = cli.start("add", str(_busy_folder(tmp_path)))
    wait_for(lambda: (cli.data_dir / "workspaces").exists() or process.poll() is not None, 30)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=2 * STOP_SECONDS)
    assert process.returncode == 130
    assert errors == ""
    assert cli.run("add", "docs").returncode == 0


def test_a_second_serve_is_told_who_owns_the_folder_and_what_to_do(cli: Cli) -> None:
    with cli.serve() as owner:
        second = cli.run("serve", "--port", "0")
        assert second.returncode == 1
        assert str(owner.pid) in second.stderr
        assert "HOPNODE_DATA_DIR" in second.stderr
        assert httpx.get(f"{cli.node_url}/healthz").is_success


def test_a_taken_port_is_said_with_what_to_do(cli: Cli, tmp_path: Path) -> None:
    with cli.serve():
        port = str(cli.node_url).rpartition(":")[2]
        other = Cli(tmp_path / "other", tmp_path).run("serve", "--port", port)
    assert other.returncode == 1
    assert port in other.stderr and "--port" in other.stderr


def test_a_node_that_was_killed_leaves_nothing_that_stands_in_the_way(cli: Cli) -> None:
    with cli.serve() as process:
        cli.run("add", "docs")
        process.kill()
        process.wait()
    assert (cli.data_dir / "node.json").exists()
    assert cli.run("search", "When does the ferry leave?").returncode == 0
    with cli.serve():
        assert cli.json("collections", "show", "default")["stats"]["documents"] == 2


def test_a_command_waits_for_another_one_that_holds_the_folder(cli: Cli) -> None:
    first, second = cli.start("add", "docs", "--json"), cli.start("add", "docs", "--json")
    outputs = [process.communicate(timeout=90) for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], outputs
    statuses = [one["status"] for output, _ in outputs for one in json.loads(output)["documents"]]
    assert sorted(statuses) == ["stored", "stored", "unchanged", "unchanged"]


def test_leaving_a_search_with_ctrl_c_cancels_it_on_the_node(cli: Cli) -> None:
    with cli.serve():
        cli.run("add", "docs")
        process = cli.start("search", "Who keeps the key?", "--mode", "agent")
        wait_for(lambda: bool(_get(cli, "/v1/searches")["items"]) or process.poll() is not None, 30)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=STOP_SECONDS)
        search = _get(cli, "/v1/searches")["items"][0]
        wait_for(lambda: _get(cli, search["url"])["status"] in ("cancelled", "succeeded"), STOP_SECONDS)
    assert process.returncode in (0, 130)


def test_doctor_tells_a_sound_node_from_a_broken_one(cli: Cli) -> None:
    with cli.serve():
        found = {check["name"]: check["state"] for check in cli.json("doctor")["checks"]}
        assert found["owner"] == "ok" and found["database"] == "ok" and found["key"] == "ok"
    broken = cli.run("doctor", HOPNODE_CHROMA_URL="http://127.0.0.1:9")
    assert broken.returncode == 1
    assert "FAILED" in broken.stdout and "mend: " in broken.stdout


def test_the_demo_shows_both_modes_and_finds_the_paragraphs_there_the_second_time(cli: Cli) -> None:
    first = cli.run("demo", "--questions", "2", seconds=600)
    assert first.returncode == 0, first.stderr
    for word in ("one_shot", "agent", "found", "gold", "hopnode serve", "/docs"):
        assert word in first.stdout
    assert max(len(line) for line in first.stdout.splitlines() if "HOPNODE_DATA_DIR" not in line) <= 100
    started = time.perf_counter()
    totals = cli.json("demo", "--questions", "2")["totals"]
    assert time.perf_counter() - started < 60
    assert totals["found"]["agent"] >= totals["found"]["one_shot"] > 0


def test_the_module_runs_as_the_command_does(cli: Cli) -> None:
    command = Path(sys.executable).parent / "hopnode"
    done = subprocess.run([command, "--version"], capture_output=True, text=True, env=cli.environment)
    assert done.stdout == cli.run("--version").stdout


@pytest.mark.parametrize("on_the_path", [True, False])
def test_the_commands_that_are_printed_to_be_copied_can_be_run_as_they_stand(cli: Cli, on_the_path: bool) -> None:
    scripts = str(Path(sys.executable).parent)
    others = [place for place in cli.environment["PATH"].split(os.pathsep) if place != scripts]
    cli.environment["PATH"] = os.pathsep.join([scripts, *others] if on_the_path else others)
    with cli.serve() as process:
        process.send_signal(signal.SIGINT)
        shown, _ = process.communicate(timeout=STOP_SECONDS)
    command = next(line for line in shown.splitlines() if line.startswith("  add ")).split()[1]
    done = subprocess.run(["bash", "-c", f"{command} --version"], cwd=cli.cwd, env=cli.environment, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert (command == "hopnode") is on_the_path
