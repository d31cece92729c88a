"""Claims of deliveries on both engines: one holder an attempt, fencing, five days of failures, replay and pages."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.node.queue import new_workspace, queue_probe

from hopnode.worker.errors import Conflict, InvalidRequest, NotFound
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.jobs import Job, JobStatus
from hopnode.worker.store.secrets.keyring import Keyring
from hopnode.worker.store.secrets.vault import Vault
from hopnode.worker.store.tables import deliveries, webhooks
from hopnode.worker.store.webhooks import outbox
from hopnode.worker.store.webhooks.outbox import Attempt, Claim, Outcome
from hopnode.worker.store.webhooks.subscriptions import (
    callback_secrets,
    delete_webhook,
    list_webhooks,
    owner_of,
    put_webhook,
    rotate_callback_secret,
)

URL = "https://receiver.example/hook"


@pytest.fixture
def vault(database: Database, tmp_path: Path) -> Vault:
    return Vault(database, Keyring(tmp_path / "secret_key"))


@pytest.fixture
def workspace(database: Database) -> str:
    return new_workspace(database)


def _end(db: Database, workspace: str, status: JobStatus = JobStatus.SUCCEEDED) -> Job:
    queue_probe(db, workspace, callback={"url": URL})
    job = jobs.claim_next(db, role="agent", lease_seconds=60, workspace_limit=1000)
    assert job is not None
    assert jobs.finish(db, job, status)
    return job


def _claim(db: Database) -> Claim:
    claim = outbox.claim_due(db, 60)
    assert claim is not None
    return claim


def _attempt(claim: Claim, error: str | None = "no answer") -> Attempt:
    return Attempt(claim.number, time.time(), 0.1, None, error)


def test_an_attempt_has_one_holder_however_many_ask(database: Database, workspace: str) -> None:
    for _ in range(3):
        _end(database, workspace)
    with ThreadPoolExecutor(6) as pool:
        claims = list(pool.map(lambda _: outbox.claim_due(database, 60), range(6)))
    held = [claim.delivery.id for claim in claims if claim]
    assert sorted(held) == sorted(set(held))
    while claim := outbox.claim_due(database, 60):
        held.append(claim.delivery.id)
    assert len(set(held)) == len(held) == 3


def test_a_claim_that_ran_out_is_taken_over_and_its_holder_can_say_nothing(database: Database, workspace: str) -> None:
    _end(database, workspace)
    slow = outbox.claim_due(database, 0)
    assert slow is not None
    next_one = _claim(database)
    assert (next_one.delivery.id, next_one.number) == (slow.delivery.id, 2)
    assert not outbox.record(database, slow, _attempt(slow), Outcome.DEAD, 0)
    assert outbox.record(database, next_one, _attempt(next_one, None), Outcome.DELIVERED, 0)
    assert [one.number for one in outbox.attempts_of(database, [slow.delivery.id])[slow.delivery.id]] == [2]


def test_a_delivery_that_failed_waits_for_its_next_try(database: Database, workspace: str) -> None:
    _end(database, workspace)
    claim = _claim(database)
    assert outbox.record(database, claim, _attempt(claim), Outcome.RETRY, 3600)
    assert outbox.claim_due(database, 60) is None
    with database.write() as connection:
        connection.execute(deliveries.update().values(next_at=0))
    assert _claim(database).round_number == 2


def test_five_days_of_nothing_but_failures_disable_a_webhook(database: Database, workspace: str, vault: Vault) -> None:
    webhook, _ = put_webhook(database, vault, workspace, URL + "2", [], new_secret="whsec_AAAA")
    _end(database, workspace)
    claims = [_claim(database), _claim(database)]
    mine = next(claim for claim in claims if claim.delivery.webhook_id == webhook.id)
    assert outbox.record(database, mine, _attempt(mine), Outcome.RETRY, 0)
    assert list_webhooks(database, workspace)[0].failing_since is not None
    with database.write() as connection:
        connection.execute(webhooks.update().values(failing_since=time.time() - 5.1 * 86_400))
    mine = _claim(database)
    assert outbox.record(database, mine, _attempt(mine), Outcome.RETRY, 0)
    assert list_webhooks(database, workspace)[0].disabled_reason == "failing"
    assert outbox.claim_due(database, 60) is None
    with pytest.raises(Conflict, match="disabled"):
        outbox.replay(database, workspace, mine.delivery.id)


def test_a_success_ends_a_run_of_failures(database: Database, workspace: str, vault: Vault) -> None:
    put_webhook(database, vault, workspace, URL + "2", [], new_secret="whsec_AAAA")
    _end(database, workspace)
    with database.write() as connection:
        connection.execute(webhooks.update().values(failing_since=1.0))
    for claim in (_claim(database), _claim(database)):
        assert outbox.record(database, claim, _attempt(claim, None), Outcome.DELIVERED, 0)
    assert list_webhooks(database, workspace)[0].failing_since is None


def test_a_replay_is_for_what_has_ended_and_for_its_own_workspace(database: Database, workspace: str) -> None:
    _end(database, workspace)
    claim = _claim(database)
    with pytest.raises(Conflict, match="pending"):
        outbox.replay(database, workspace, claim.delivery.id)
    assert outbox.record(database, claim, _attempt(claim), Outcome.DEAD, 0)
    with pytest.raises(NotFound):
        outbox.replay(database, new_workspace(database), claim.delivery.id)
    outbox.replay(database, workspace, claim.delivery.id)
    again = _claim(database)
    assert (again.delivery.id, again.number, again.round_number) == (claim.delivery.id, 2, 1)


def test_deliveries_are_listed_in_pages_newest_first(database: Database, workspace: str) -> None:
    made = [_end(database, workspace).id for _ in range(5)]
    first = outbox.list_deliveries(database, workspace, status=None, limit=3)
    rest = outbox.list_deliveries(database, workspace, status="pending", limit=3, before=outbox.position(first[-1]))
    assert [one.job_id for one in (*first, *rest)] == made[::-1]
    assert outbox.list_deliveries(database, workspace, status="dead", limit=3) == []
    assert outbox.list_deliveries(database, new_workspace(database), status=None, limit=3) == []
    with pytest.raises(InvalidRequest):
        outbox.list_deliveries(database, workspace, status=None, limit=3, before="nonsense")


def test_a_webhook_is_one_for_each_url_and_workspace(database: Database, workspace: str, vault: Vault) -> None:
    made, is_new = put_webhook(database, vault, workspace, URL, ["sync.failed"], new_secret="one")
    changed, again = put_webhook(database, vault, workspace, URL, [], new_secret="two")
    assert (is_new, again, changed.id, changed.events) == (True, False, made.id, [])
    assert vault.open(owner_of(made)) == {"current": "two", "previous": "one"}
    put_webhook(database, vault, workspace, URL, [], new_secret="three")
    assert vault.open(owner_of(made)) == {"current": "three", "previous": "two"}
    assert list_webhooks(database, new_workspace(database)) == []
    with pytest.raises(InvalidRequest, match="no such events"):
        put_webhook(database, vault, workspace, URL, ["search.begun"], new_secret=None)
    delete_webhook(database, workspace, URL)
    assert vault.check().by_key == {}
    with pytest.raises(NotFound):
        delete_webhook(database, workspace, URL)


def test_the_secret_of_callbacks_is_made_once_and_rotated(database: Database, workspace: str, vault: Vault) -> None:
    assert callback_secrets(database, vault, workspace, "one") == {"current": "one"}
    assert callback_secrets(database, vault, workspace, "other") == {"current": "one"}
    rotate_callback_secret(database, vault, workspace, "two")
    assert callback_secrets(database, vault, workspace, "other") == {"current": "two", "previous": "one"}
