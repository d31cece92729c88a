"""Secrets of a source over HTTP: they reach its connector, and nothing else: no answer, no file, no log, no argument."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.data.vault_source import KIND, VaultConnector, registered
from support.node.http_node import HttpNode, Tenant, serve_node

from hopnode.worker.job_handlers import HANDLERS
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.sources import sources
from hopnode.worker.store.sources.secret_config import take_apart
from hopnode.worker.store.sources.sources import Source

FIRST, SECOND, PASSWORD = "planted-token-one", "planted-token-two", "planted-password"
PLANTED = (FIRST, SECOND, PASSWORD)


@pytest.fixture
def connector() -> Iterator[type[VaultConnector]]:
    with registered() as kind:
        yield kind


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "node"


@pytest.fixture
def node(folder: Path, connector: type[VaultConnector]) -> Iterator[HttpNode]:
    with serve_node(folder, handlers=HANDLERS) as served:
        yield served


@pytest.fixture
def owner(node: HttpNode) -> Tenant:
    tenant = node.tenant()
    tenant.collection()
    return tenant


@pytest.fixture
def source(node: HttpNode, owner: Tenant) -> Source:
    """As the route makes it; the form of the route itself knows the kinds of the product only."""
    config = {"place": "mill", "token": FIRST, "login": {"user": "ann", "password": PASSWORD}}
    masked, hidden = take_apart(node.runtime.vault, KIND, config)
    collection = node.db_collection(owner, "handbook")
    return sources.create_source(
        node.db, owner.workspace.id, collection.id, kind=KIND, name="vault", config=masked, hidden=hidden
    )


def _change(owner: Tenant, source: Source, config: dict[str, Any]) -> Any:
    return owner.http.patch(f"/v1/sources/{source.id}", json={"config": config})


def _sync(node: HttpNode, owner: Tenant, source: Source) -> dict[str, Any]:
    started = owner.http.post(f"/v1/sources/{source.id}/syncs").json()
    return owner.http.get(started["url"], params={"wait": 20}).json()


def test_an_answer_shows_a_mask_in_place_of_each_secret(owner: Tenant, source: Source) -> None:
    read = owner.http.get(f"/v1/sources/{source.id}").json()
    assert read["config"] == {"place": "mill", "token": "***", "login": {"user": "ann", "password": "***"}}


def test_a_secret_that_a_change_leaves_out_or_masks_is_kept(
    owner: Tenant, source: Source, connector: type[VaultConnector]
) -> None:
    changed = _change(owner, source, {"place": "barn", "login": {"user": "bob", "password": "***"}})
    assert changed.status_code == 200, changed.text
    assert changed.json()["config"] == {"place": "barn", "token": "***", "login": {"user": "bob", "password": "***"}}
    assert connector.seen[-1] == {"place": "barn", "token": FIRST, "login": {"user": "bob", "password": PASSWORD}}


def test_a_new_secret_is_tried_before_it_takes_the_place_of_the_old_one(
    node: HttpNode, owner: Tenant, source: Source, connector: type[VaultConnector]
) -> None:
    assert _change(owner, source, {"place": "mill", "token": "so-wrong"}).json()["code"] == "source-check-failed"
    assert _sync(node, owner, source)["status"] == "succeeded"
    assert connector.seen[-1]["token"] == FIRST
    assert _change(owner, source, {"place": "mill", "token": SECOND}).status_code == 200
    assert _sync(node, owner, source)["status"] == "succeeded"
    assert connector.seen[-1]["token"] == SECOND


def test_null_takes_a_secret_away(
    node: HttpNode, owner: Tenant, source: Source, connector: type[VaultConnector]
) -> None:
    assert _change(owner, source, {"place": "mill", "token": None, "login": None}).status_code == 200
    assert connector.seen[-1] == {"place": "mill", "token": None, "login": None}
    assert node.runtime.vault.check().by_key == {}
    again = _change(owner, source, {"place": "mill", "token": "***"})
    assert (again.status_code, again.json()["errors"][0]["field"]) == (422, "config")


def test_a_source_whose_key_is_lost_fails_its_sync_alone_and_says_what_to_do(
    node: HttpNode, owner: Tenant, source: Source, folder: Path
) -> None:
    (folder / "secret_key").rename(folder / "elsewhere")
    failed = _sync(node, owner, source)
    assert (failed["status"], failed["error"]["code"]) == ("failed", "secret-unreadable")
    assert "secret_key" in failed["error"]["message"]
    assert "Put it back" in failed["error"]["message"]
    asked = _change(owner, source, {"place": "barn"})
    assert (asked.status_code, asked.json()["code"]) == (500, "secret-unreadable")
    assert str(folder) not in asked.text
    assert owner.http.get(f"/v1/sources/{source.id}").status_code == 200
    assert owner.put("a.md", "The mill stands.").status_code == 201
    (folder / "elsewhere").rename(folder / "secret_key")
    assert _sync(node, owner, source)["status"] == "succeeded"


def test_no_secret_is_found_in_files_logs_answers_or_arguments(
    node: HttpNode, owner: Tenant, source: Source, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    answers = [_change(owner, source, {"place": "mill", "token": SECOND}).text]
    answers.append(_change(owner, source, {"place": "mill", "token": FIRST + "wrong"}).text)
    answers.append(_change(owner, source, {"place": 7, "token": SECOND}).text)
    answers.append(json.dumps(_sync(node, owner, source)))
    answers += [owner.http.get(path).text for path in (f"/v1/sources/{source.id}", "/v1/collections/handbook/sources")]
    logged = "".join(capfd.readouterr())
    arguments = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert (folder / "hopnode.db") in files
    with node.db.read() as connection:
        dump = "\n".join(str(row) for row in connection.exec_driver_sql("SELECT * FROM sources, sealed_secrets"))
    assert jobs.list_jobs(node.db, owner.workspace.id, kind="sync", limit=1)
    for secret in PLANTED:
        assert [path for path, content in files.items() if secret.encode() in content] == []
        assert not any(secret in text for text in (*answers, logged, arguments, dump))
