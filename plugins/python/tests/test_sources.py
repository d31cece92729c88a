"""Sources with their syncs, and evaluations, on a running node."""

from typing import Any

import pytest
from running_node import Site

from hopnode_client import Conflict, JobCancelled, NotFound, SourceCheckFailed, WaitTimedOut


def test_a_website_is_synced_and_found(client: Any, name: str, site: Site) -> None:
    config = {"start_urls": [site.url], "crawl_delay": 0, "use_sitemaps": False, "respect_robots": False}
    source = client.sources.create(name, "website", "site", config, sync_every_seconds=3600)
    assert (source.collection, source.kind, source.sync_every_seconds) == (name, "website", 3600)
    assert client.sources.update(source.id, name="our site", sync_every_seconds=None).sync_every_seconds is None
    assert [one.name for one in client.sources.list(name)] == ["our site"]

    started = client.syncs.start(source.id)
    done = client.syncs.wait_for(started.id, timeout=60)
    assert done.counts.added == 2 and done.source_id == source.id and done.note is None
    assert [one.id for one in client.syncs.list(source.id)] == [started.id]
    assert client.search("How long is the quay?", name).passages[0].url == site.url + "quay"

    client.sources.delete(source.id)
    with pytest.raises(NotFound):
        client.sources.get(source.id)


def test_a_source_that_cannot_be_read_is_not_made(client: Any, name: str, site: Site) -> None:
    with pytest.raises(SourceCheckFailed, match=r"Correct the source's `config`"):
        client.sources.create(name, "website", "site", {"start_urls": [site.url + "missing"]})
    assert list(client.sources.list(name)) == []


def test_a_sync_that_takes_too_long_goes_on_until_it_is_cancelled(client: Any, name: str, site: Site) -> None:
    config = {"start_urls": [site.url], "crawl_delay": 30, "use_sitemaps": False, "respect_robots": False}
    source = client.sources.create(name, "website", "slow", config)
    started = client.syncs.start(source.id, confirm_deletes=True)
    with pytest.raises(Conflict):
        client.syncs.start(source.id)
    with pytest.raises(WaitTimedOut, match="It goes on"):
        client.syncs.wait_for(started.id, timeout=0.2)
    client.syncs.cancel(started.id)
    with pytest.raises(JobCancelled):
        client.syncs.wait_for(started.id)
    assert client.syncs.get(started.id).status == "cancelled"


def test_an_evaluation_measures_and_compares(client: Any) -> None:
    questions = [
        {"id": "tower", "question": "Who built the tower of Lindholm?", "gold": ["tower.md"]},
        {"question": "Where is the harbour?", "gold": {"harbour.md": 2, "tower.md": 1}},
    ]
    first = client.evaluations.start("facts", questions, mode="one_shot", name="ours", top_k=5)
    done = client.evaluations.wait_for(first.id, timeout=60)
    assert done.name == "ours" and done.progress.asked == done.progress.questions == 2
    assert done.report["questions"] == 2 and done.report["mrr"] > 0
    second = client.evaluations.start("facts", questions, mode="agent", compare_with=first.id, idempotency_key=first.id)
    assert client.evaluations.wait_for(second.id, timeout=60).comparison["questions"] == 2
    again = client.evaluations.start("facts", questions, mode="agent", compare_with=first.id, idempotency_key=first.id)
    assert again.id == second.id
    assert [one.id for one in client.evaluations.list()][:2] == [second.id, first.id]
    with pytest.raises(Conflict):
        client.evaluations.cancel(second.id)
