"""`add`, `search`, `sync` and `collections` against a served node: what they print, and how they end."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs
from support.node.http_node import HttpNode, Tenant, passage, result, serve_node
from typer.testing import CliRunner, Result

from hopnode.node_service.cli import app
from hopnode.node_service.commands.terminal.exits import CommandError, ExitCode
from hopnode.node_service.commands.terminal.invocation import Invocation
from hopnode.worker.errors import ModelRefused
from hopnode.worker.queue.job_context import JobContext
from hopnode.worker.runtime import Runtime

LOST = "Where is what was lost?"


def tell(_: Runtime, context: JobContext) -> Any:
    """A search that finds one passage, and one that fails."""
    if context.job.request["query"] == LOST:
        raise ModelRefused("The model said no.")
    return result(passage())


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpNode]:
    """A node that takes small documents only."""
    folder = tmp_path_factory.mktemp("node")
    with serve_node(folder, {"max_document_bytes": 2000}, handlers={"search": tell}) as served:
        yield served


@pytest.fixture
def asker(node: HttpNode) -> Tenant:
    """A fresh workspace on it."""
    return node.tenant()


def hopnode(asker: Tenant, *arguments: object) -> Result:
    """The command line, told where the node is and with which key to speak."""
    environment = {"HOPNODE_URL": asker.node.url, "HOPNODE_API_KEY": asker.token}
    with capture_logs():  # the node lives in this process, and its log would stand between the results
        return CliRunner().invoke(app, [str(one) for one in arguments], obj=Invocation(), env=environment)


def refused(ended: Result) -> CommandError:
    assert isinstance(ended.exception, CommandError), ended.output
    return ended.exception


def test_a_folder_is_added_and_added_again_without_a_change(asker: Tenant, tmp_path: Path) -> None:
    (tmp_path / "quay.md").write_text("The harbour lies north.")
    (tmp_path / ".secret").write_text("no")
    first = hopnode(asker, "add", tmp_path, "--prefix", "docs/")
    assert first.exit_code == ExitCode.OK
    assert "default: 1 stored, 0 unchanged, 0 failed" in first.output
    assert "left out: 1 files (1 hidden)" in first.output
    again = hopnode(asker, "add", tmp_path, "--prefix", "docs/", "--json")
    told = json.loads(again.output)
    assert [(one["key"], one["status"]) for one in told["documents"]] == [("docs/quay.md", "unchanged")]
    assert [one["reason"] for one in told["skipped"]] == ["hidden"]
    assert asker.http.get("/v1/collections/default/documents/docs/quay.md").status_code == 200


def test_a_file_that_the_node_refuses_is_named_and_the_others_are_stored(asker: Tenant, tmp_path: Path) -> None:
    (tmp_path / "small.md").write_text("The harbour lies north.")
    (tmp_path / "large.md").write_text("word " * 1000)
    partly = hopnode(asker, "add", tmp_path)
    assert partly.exit_code == ExitCode.PARTLY_FAILED
    assert "1 stored, 0 unchanged, 1 failed" in partly.output
    assert "large.md" in partly.output.replace("\n", ""), "a terminal may break a path anywhere"
    assert hopnode(asker, "add", tmp_path / "large.md").exit_code == ExitCode.FAILED


def test_a_folder_without_anything_to_add_makes_no_collection(asker: Tenant, tmp_path: Path) -> None:
    (tmp_path / "empty.md").touch()
    error = refused(hopnode(asker, "add", tmp_path))
    assert "1 empty" in str(error)
    assert asker.http.get("/v1/collections").json()["items"] == []


def test_a_search_prints_its_passages_and_ends_well(asker: Tenant) -> None:
    asker.collection()
    found = hopnode(asker, "search", "Where is the harbour?")
    assert found.exit_code == ExitCode.OK
    assert "Quay" in found.output
    assert "The harbour lies north." in found.output
    as_json = json.loads(hopnode(asker, "search", "Where is the harbour?", "--json", "--top-k", 3).output)
    assert (as_json["status"], as_json["top_k"], as_json["collections"]) == ("succeeded", 3, ["handbook"])


def test_a_search_that_failed_says_why_and_ends_badly(asker: Tenant) -> None:
    asker.collection()
    failed = hopnode(asker, "search", LOST)
    assert failed.exit_code == ExitCode.FAILED
    assert "The model said no." in failed.output


def test_a_search_of_a_workspace_without_collections_says_how_to_fill_one(asker: Tenant) -> None:
    error = refused(hopnode(asker, "search", "Where?"))
    assert error.exit_code == ExitCode.REFUSED
    assert "hopnode add" in error.mend


def test_more_collections_than_one_search_may_ask_must_be_named(asker: Tenant) -> None:
    for number in range(11):
        asker.collection(f"c{number}")
    error = refused(hopnode(asker, "search", "Where?"))
    assert error.exit_code == ExitCode.USAGE
    assert "--collection" in error.mend
    assert hopnode(asker, "search", "Where?", "--collection", "c3").exit_code == ExitCode.OK


@pytest.mark.parametrize("given", [[], ["https://example.com/", "--list"], ["--source", "a", "--list"]])
def test_a_sync_needs_exactly_one_thing_to_sync(asker: Tenant, given: list[str]) -> None:
    assert refused(hopnode(asker, "sync", *given)).exit_code == ExitCode.USAGE


def test_a_sync_of_a_source_that_is_not_there_is_refused(asker: Tenant) -> None:
    assert refused(hopnode(asker, "sync", "--source", "none")).exit_code == ExitCode.REFUSED
    assert json.loads(hopnode(asker, "sync", "--list", "--json").output) == []


def test_a_key_that_the_node_does_not_know_is_refused(asker: Tenant) -> None:
    environment = {"HOPNODE_URL": asker.node.url, "HOPNODE_API_KEY": "hn_none_none"}
    ended = CliRunner().invoke(app, ["collections", "list"], obj=Invocation(), env=environment)
    assert refused(ended).exit_code == ExitCode.REFUSED
