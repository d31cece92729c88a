"""A website through the whole node: real crawler, guard, queue, parser, embedder, corpus and search."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from pydantic import JsonValue
from support.node.queue import wait_until
from support.servers.website import Site, article, docs_site, hostile_site, html, serve_site, urlset

from hopnode.connectors.base import CheckResult
from hopnode.worker.job_handlers import make_runner
from hopnode.worker.runtime import Runtime, open_runtime
from hopnode.worker.settings import WorkerSettings
from hopnode.worker.store.collections import Collection, create_collection
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.jobs import Job, JobStatus
from hopnode.worker.store.sources import sources
from hopnode.worker.store.sources.sources import Source
from hopnode.worker.store.workspaces import find_workspace

pytestmark = pytest.mark.slow


@pytest.fixture
def site() -> Generator[Site]:
    with serve_site() as running:
        yield running


class Node:
    """An embedded node with one collection and one website source."""

    def __init__(self, folder: Path, site: Site, *, egress: list[str] | None = None, **config: JsonValue) -> None:
        self.settings = settings_of(folder, [site.host] if egress is None else egress)
        self.runtime: Runtime = open_runtime(self.settings, embedded=True)
        workspace = find_workspace(self.runtime.db, "default")
        assert workspace is not None
        self.workspace_id = workspace.id
        self.collection: Collection = create_collection(self.runtime.db, workspace.id, "web", embedder="minilm")
        values: Mapping[str, JsonValue] = {"start_urls": [f"{site.url}/"], "crawl_delay": 0, **config}
        self.source: Source = sources.create_source(
            self.runtime.db, workspace.id, self.collection.id, kind="website", name="site", config=values
        )

    def queue(self) -> str:
        return sources.create_sync(self.runtime.db, self.workspace_id, self.source.id).job_id

    def sync(self) -> Job:
        """Queues a sync and lets a runner do it."""
        job_id = self.queue()
        assert make_runner(self.runtime).run_next("sync")
        return jobs.get_job(self.runtime.db, self.workspace_id, job_id)

    @property
    def counts(self) -> dict[str, int]:
        last = sources.list_syncs(self.runtime.db, self.workspace_id, self.source.id)[0]
        return {name: n for name, n in last.counts.to_json().items() if n and name != "bytes"}  # type: ignore[misc]

    def documents(self) -> dict[str, str]:
        """Titles by key."""
        corpus = self.runtime.corpora.open(self.workspace_id)
        return {one.key: one.title for one in corpus.documents(self.collection, limit=10_000)}

    def text(self, key: str) -> str:
        corpus = self.runtime.corpora.open(self.workspace_id)
        return corpus.document_text(corpus.document(self.collection, key).id)

    def found(self, query: str) -> list[str]:
        """Keys of the passages that a search gives, best first."""
        hits = self.runtime.corpora.open(self.workspace_id).search([self.collection], query, k=5).hits
        return [hit.chunk.key for hit in hits]


def settings_of(folder: Path, egress: list[str]) -> WorkerSettings:
    return WorkerSettings(  # type: ignore[call-arg]
        _env_file=None, data_dir=folder, egress_allow_hosts=egress, lease_seconds=3
    )


@pytest.fixture
def closing() -> Generator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def open_node(closing: ExitStack, folder: Path, site: Site, **more: object) -> Node:
    node = Node(folder, site, **more)  # type: ignore[arg-type]
    closing.callback(node.runtime.close)
    return node


def test_a_hostile_site_becomes_cited_documents_and_stays_in_step(
    site: Site, tmp_path: Path, closing: ExitStack
) -> None:
    hostile_site(site)
    node = open_node(closing, tmp_path, site)
    first = node.sync()
    assert first.status == JobStatus.SUCCEEDED
    assert isinstance(first.result, dict)
    assert first.result["complete"] is True
    assert first.result["note"] == "needs-js"
    assert first.result["skipped"] == {
        "moved": 1, "needs-js": 1, "noindex": 1, "not-found": 1, "redirect-leaves-site": 1, "redirect-loop": 1, "robots": 1,
        "too-large": 1,
    }  # fmt: skip
    assert first.result["failed"] == {"corrupt": 1}
    documents = node.documents()
    assert {f"{site.url}/docs/{n}" for n in range(30)} <= set(documents)
    assert documents[f"{site.url}/docs/7"] == "Document 7"
    assert "Grüße aus Köln" in node.text(f"{site.url}/latin")
    assert "Imprint" not in node.text(f"{site.url}/docs/7")
    assert node.found("Who rotates the keys of Document 7?")[0] == f"{site.url}/docs/7"
    assert f"{site.url}/hidden" not in documents
    assert not any("10.0.0.7" in seen.headers["host"] for seen in site.requests)

    site.requests.clear()
    site.put("/docs/3", html("Document 3", article("The new lighthouse")))
    site.remove("/docs/7")
    second = node.sync()
    assert second.status == JobStatus.SUCCEEDED
    assert node.counts["changed"] == 1
    assert node.counts["deleted"] == 1
    assert node.counts["unchanged"] == len(documents) - 2
    assert "The new lighthouse" in node.text(f"{site.url}/docs/3")
    assert f"{site.url}/docs/7" not in node.documents()
    assert f"{site.url}/docs/7" not in node.found("Who rotates the keys of Document 7?")
    conditional = [seen for seen in site.requests if "if-none-match" in seen.headers]
    assert len(conditional) > 30


def test_a_page_that_nothing_leads_to_any_more_goes_after_two_complete_crawls(
    site: Site, tmp_path: Path, closing: ExitStack
) -> None:
    docs_site(site, 5)
    site.put("/sitemap.xml", urlset([f"{site.url}/island"]), "text/xml")
    site.put("/island", html("Island"))
    node = open_node(closing, tmp_path, site)
    node.sync()
    assert f"{site.url}/island" in node.documents()
    site.put("/sitemap.xml", urlset([f"{site.url}/"]), "text/xml")
    site.fail("/robots.txt", 503)
    assert node.sync().status == JobStatus.FAILED
    site.remove("/robots.txt")
    node.sync()
    assert f"{site.url}/island" in node.documents(), (
        "one complete crawl is not enough, and the failed one does not count"
    )
    node.sync()
    assert f"{site.url}/island" not in node.documents()


def test_a_crawl_that_ran_out_of_its_budget_says_so_and_deletes_nothing(
    site: Site, tmp_path: Path, closing: ExitStack
) -> None:
    docs_site(site, 12)
    node = open_node(closing, tmp_path, site)
    node.sync()
    sources.update_source(
        node.runtime.db,
        node.workspace_id,
        node.source.id,
        config={"start_urls": [f"{site.url}/"], "crawl_delay": 0, "max_pages": 4},
    )
    for _ in range(3):
        job = node.sync()
    assert isinstance(job.result, dict)
    assert (job.result["complete"], job.result["note"]) == (False, "incomplete-page-budget")
    assert len(node.documents()) == 13


def test_a_private_site_is_refused_and_the_error_names_the_setting(
    site: Site, tmp_path: Path, closing: ExitStack
) -> None:
    docs_site(site, 2)
    node = open_node(closing, tmp_path, site, egress=[])
    job = node.sync()
    assert job.status == JobStatus.FAILED
    assert job.error is not None
    assert "HOPNODE_EGRESS_ALLOW_HOSTS" in str(job.error["message"])
    assert site.requests == []
    checked = node.runtime.connector_for(node.source)
    assert checked.check() == CheckResult(False, str(job.error["message"]))
    checked.close()


CHILD = """
from pathlib import Path
import sys
from hopnode.worker.job_handlers import make_runner
from hopnode.worker.runtime import open_runtime
from hopnode.worker.settings import WorkerSettings
settings = WorkerSettings(_env_file=None, data_dir=Path(sys.argv[1]), egress_allow_hosts=[sys.argv[2]], lease_seconds=3)
runtime = open_runtime(settings, embedded=True)
make_runner(runtime).run_next("sync")
"""


def test_after_kill_9_the_next_worker_goes_on_and_no_page_is_lost_or_doubled(
    site: Site, tmp_path: Path, closing: ExitStack
) -> None:
    docs_site(site, 140)
    node = Node(tmp_path, site, crawl_delay=0.01)
    job_id = node.queue()
    node.runtime.close()
    child = subprocess.Popen([sys.executable, "-c", CHILD, str(tmp_path), site.host])
    closing.callback(child.wait)
    closing.callback(child.kill)
    wait_until(lambda: len(site.requests) > 100, 60, "a hundred pages fetched")
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    before = len(site.requests)

    runtime = open_runtime(node.settings, embedded=True)
    closing.callback(runtime.close)
    node.runtime = runtime
    runner = make_runner(runtime)
    wait_until(lambda: runner.run_next("sync"), 20, "the lease of the killed worker has ended")
    job = jobs.get_job(runtime.db, node.workspace_id, job_id)
    assert (job.status, job.attempt) == (JobStatus.SUCCEEDED, 2)
    assert len(node.documents()) == 141
    assert node.counts["listed"] == 141
    assert len(site.requests) - before < 110, "the crawl went on from its token and did not start over"
