"""Sources and syncs over HTTP, against a real site on loopback; the test plays the worker."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.node.http_node import HttpNode, Tenant, serve_node
from support.servers.website import Site, html, serve_site

from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.jobs import JobStatus
from hopnode.worker.store.sources import sources
from hopnode.worker.store.sources.sources import SyncCounts


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serve_site() as served:
        served.put("/", html("Harbour", "Ships call here every week."))
        yield served


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpNode]:
    """A node that may reach loopback."""
    with serve_node(tmp_path_factory.mktemp("sources"), {"egress_allow_cidrs": ["127.0.0.0/8"]}) as served:
        yield served


@pytest.fixture
def owner(tenant: Tenant) -> Tenant:
    tenant.collection()
    return tenant


def create(owner: Tenant, config: dict[str, Any], **more: Any) -> Any:
    body = {"kind": "website", "name": "docs", "config": config} | more
    return owner.http.post("/v1/collections/handbook/sources", json=body)


@pytest.fixture
def source(owner: Tenant, site: Site) -> dict[str, Any]:
    made = create(owner, {"start_url": f"{site.url}/", "crawl_delay": 0})
    assert made.status_code == 201, made.text
    return made.json()


def test_a_source_is_kept_as_it_was_configured(owner: Tenant, site: Site) -> None:
    config = {"start_url": f"{site.url}/", "max_pages": 10}
    made = create(owner, config, sync_every_seconds=3600)
    assert made.status_code == 201
    read = owner.http.get(made.headers["location"]).json()
    assert read == made.json()
    assert (read["kind"], read["collection"], read["config"]) == ("website", "handbook", config)
    assert read["sync_every_seconds"] == 3600
    assert owner.http.get("/v1/collections/handbook/sources").json()["items"] == [read]


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({}, "config.start_urls"),
        ({"start_url": "ftp://example.com"}, "config.start_url"),
        ({"start_url": "https://example.com", "max_pages": 0}, "config.max_pages"),
        ({"start_url": "https://example.com", "depth": 3}, "config.depth"),
    ],
)
def test_a_configuration_that_is_wrong_is_refused_by_field(owner: Tenant, config: dict[str, Any], field: str) -> None:
    answer = create(owner, config)
    assert answer.status_code == 422
    named = [error["field"] for error in answer.json()["errors"]]
    assert [name for name in named if name.startswith(field)], named


def test_an_unknown_kind_is_refused(owner: Tenant) -> None:
    answer = create(owner, {}, kind="ftp")
    assert [error["field"] for error in answer.json()["errors"]] == ["kind"]


def test_a_source_that_could_not_be_synced_is_not_created(owner: Tenant, site: Site) -> None:
    for url in (f"{site.url}/missing", "http://169.254.169.254/"):
        answer = create(owner, {"start_url": url, "crawl_delay": 0})
        assert (answer.status_code, answer.json()["code"]) == (422, "source-check-failed"), answer.text
    assert owner.http.get("/v1/collections/handbook/sources").json()["items"] == []


def test_a_taken_name_is_a_conflict(owner: Tenant, site: Site, source: dict[str, Any]) -> None:
    assert create(owner, source["config"]).status_code == 409


def test_a_change_is_tried_before_it_is_kept(owner: Tenant, site: Site, source: dict[str, Any]) -> None:
    path = f"/v1/sources/{source['id']}"
    assert owner.http.patch(path, json={"config": {"start_url": f"{site.url}/missing"}}).status_code == 422
    changed = owner.http.patch(path, json={"name": "site", "sync_every_seconds": 86400})
    assert (changed.json()["name"], changed.json()["config"]) == ("site", source["config"])
    config = {"start_url": f"{site.url}/", "max_pages": 3}
    assert owner.http.patch(path, json={"config": config}).json()["config"] == config
    assert owner.http.patch(path, json={"sync_every_seconds": None}).json()["sync_every_seconds"] is None


def test_a_sync_is_queued_once_and_followed_to_its_end(node: HttpNode, owner: Tenant, source: dict[str, Any]) -> None:
    started = owner.http.post(f"/v1/sources/{source['id']}/syncs")
    assert started.status_code == 202
    sync = started.json()
    assert started.headers["location"] == sync["url"] == f"/v1/syncs/{sync['id']}"
    assert (sync["status"], sync["source_id"], sync["counts"]["listed"]) == ("queued", source["id"], 0)
    again = owner.http.post(f"/v1/sources/{source['id']}/syncs")
    assert (again.status_code, again.json()["code"]) == (409, "conflict")
    job = node.claim(sources.get_sync(node.db, owner.workspace.id, sync["id"]).job_id, role="sync")

    def end() -> None:
        sources.end_sync(node.db, sync["id"], SyncCounts(listed=3, added=2, skipped=1), None)
        jobs.finish(node.db, job, JobStatus.SUCCEEDED)

    timer = threading.Timer(0.2, end)
    timer.start()
    done = owner.http.get(sync["url"], params={"wait": 5}).json()
    timer.join()
    assert done["status"] == "succeeded"
    assert (done["counts"]["listed"], done["counts"]["added"], done["counts"]["skipped"]) == (3, 2, 1)
    assert owner.http.get(f"/v1/sources/{source['id']}/syncs").json()["items"] == [owner.http.get(sync["url"]).json()]


def test_a_sync_is_cancelled(owner: Tenant, source: dict[str, Any]) -> None:
    sync = owner.http.post(f"/v1/sources/{source['id']}/syncs").json()
    assert owner.http.post(f"{sync['url']}/cancel").json()["status"] == "cancelled"
    assert owner.http.post(f"{sync['url']}/cancel").status_code == 409
    assert owner.http.post(f"/v1/sources/{source['id']}/syncs").status_code == 202


def test_a_sync_is_no_search(node: HttpNode, owner: Tenant, source: dict[str, Any]) -> None:
    sync = owner.http.post(f"/v1/sources/{source['id']}/syncs").json()
    job_id = sources.get_sync(node.db, owner.workspace.id, sync["id"]).job_id
    assert owner.http.get(f"/v1/searches/{job_id}").status_code == 404
    assert owner.http.post(f"/v1/searches/{job_id}/cancel").status_code == 404
    assert owner.http.get("/v1/searches").json()["items"] == []


def test_a_deleted_source_is_gone_with_its_syncs(owner: Tenant, source: dict[str, Any]) -> None:
    sync = owner.http.post(f"/v1/sources/{source['id']}/syncs").json()
    assert owner.http.delete(f"/v1/sources/{source['id']}").status_code == 204
    for path in (f"/v1/sources/{source['id']}", f"/v1/sources/{source['id']}/syncs", sync["url"]):
        assert owner.http.get(path).status_code == 404


def test_the_default_node_reaches_no_private_network(tmp_path: Path, site: Site) -> None:
    with serve_node(tmp_path) as closed:
        owner = closed.tenant()
        owner.collection()
        answer = create(owner, {"start_url": f"{site.url}/"})
        assert answer.json()["code"] == "source-check-failed"
        assert "HOPNODE_EGRESS" in answer.json()["detail"]
