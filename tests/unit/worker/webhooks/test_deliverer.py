"""Deliveries to a real receiver, over the guarded transport, from a real table: every whim of a receiver, and lost processes."""

import json
import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from standardwebhooks import Webhook as Verifier
from support.node.queue import new_workspace, wait_until
from support.servers.receiver import Answer, Receiver, receiving

from hopnode.connectors.egress import WEBHOOK_SETTINGS, EgressPolicy
from hopnode.connectors.http import open_client
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.deliveries import Delivery, deliveries_of
from hopnode.worker.store.jobs.jobs import Job, JobStatus
from hopnode.worker.store.secrets.keyring import Keyring
from hopnode.worker.store.secrets.vault import HiddenFields, Vault
from hopnode.worker.store.tables import deliveries
from hopnode.worker.store.webhooks.outbox import attempts_of, claim_due, record, replay
from hopnode.worker.store.webhooks.subscriptions import list_webhooks, put_webhook, rotate_callback_secret
from hopnode.worker.webhooks.deliverer import LEASE_SECONDS, Deliverer
from hopnode.worker.webhooks.sending import RESULT_BYTES, Sender
from hopnode.worker.webhooks.signing import new_secret

SECRET = new_secret()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as one:
        yield one


class Post:
    """A workspace that owes calls to a receiver."""

    def __init__(self, db: Database, key_file: Path, receiver: Receiver) -> None:
        self.db, self.receiver = db, receiver
        self.vault = Vault(db, Keyring(key_file))
        self.workspace = new_workspace(db)
        self.policy = EgressPolicy([receiver.address], (), WEBHOOK_SETTINGS)

    def end_search(self, *, url: str | None = None, result: Any = None, headers: dict[str, str] | None = None) -> Job:
        job, _ = jobs.create_job(
            self.db,
            workspace_id=self.workspace,
            kind="search",
            role="agent",
            request={"query": "q"},
            callback={"url": url or self.receiver.url, "metadata": {"run": 7}},
            hidden=HiddenFields(self.vault, headers or {}),
        )
        claimed = jobs.claim_next(self.db, role="agent", lease_seconds=60, workspace_limit=1000)
        assert claimed is not None and claimed.id == job.id
        assert jobs.finish(self.db, claimed, JobStatus.SUCCEEDED, result=result or {"passages": []})
        return job

    def delivery(self, job: Job) -> Delivery:
        [one] = deliveries_of(self.db, job.id)
        return one

    def ends(self, job: Job, status: str, seconds: float = 10) -> Delivery:
        wait_until(lambda: self.delivery(job).status == status, seconds, f"the delivery is {status}")
        return self.delivery(job)

    def tried(self, job: Job) -> Delivery:
        """The delivery when it has been tried once."""
        wait_until(lambda: bool(attempts_of(self.db, [self.delivery(job).id])), 10, "one attempt is written down")
        return self.delivery(job)

    @contextmanager
    def sending(self) -> Iterator[None]:
        deliverer = Deliverer(self.db, self.vault, self.policy)
        deliverer.start()
        try:
            yield
        finally:
            deliverer.stop()


@pytest.fixture
def post(sqlite_database: Database, tmp_path: Path, receiver: Receiver) -> Post:
    return Post(sqlite_database, tmp_path / "secret_key", receiver)


def test_an_event_arrives_signed_with_its_result_links_and_metadata(post: Post) -> None:
    rotate_callback_secret(post.db, post.vault, post.workspace, SECRET)
    job = post.end_search(result={"passages": [{"text": "Zürich"}]}, headers={"X-Token": "planted-header"})
    with post.sending():
        post.ends(job, "delivered")
    [call] = post.receiver.calls
    body = Verifier(SECRET).verify(call.body, dict(call.headers))
    assert (body["type"], body["data"]["id"], body["data"]["status"]) == ("search.succeeded", job.id, "succeeded")
    assert body["data"]["result"] == {"passages": [{"text": "Zürich"}]}
    assert body["data"]["metadata"] == {"run": 7}
    assert body["data"]["links"]["self"] == f"/v1/searches/{job.id}"
    assert call.headers["x-token"] == "planted-header"
    assert call.id == post.delivery(job).id


def test_a_result_that_is_too_large_stays_behind_its_link(post: Post) -> None:
    job = post.end_search(result={"passages": ["x" * RESULT_BYTES]})
    with post.sending():
        post.ends(job, "delivered")
    data = json.loads(post.receiver.calls[0].body)["data"]
    assert (data["result"], data["result_omitted"]) == (None, True)
    assert len(post.receiver.calls[0].body) < 20_000


def test_a_receiver_that_is_not_ready_yet_is_asked_again_under_the_same_id(post: Post) -> None:
    post.receiver.answers.extend([Answer(409), Answer(200, b"n8n is starting up. Please wait")])
    job = post.end_search()
    with post.sending():
        post.ends(job, "delivered", 20)
    calls = post.receiver.calls
    assert [call.id for call in calls] == [post.delivery(job).id] * 3
    assert len({call.headers["webhook-timestamp"] for call in calls}) == 3
    attempts = attempts_of(post.db, [post.delivery(job).id])[post.delivery(job).id]
    assert [(one.number, one.status, one.error is None) for one in attempts] == [
        (1, 409, False),
        (2, 200, False),
        (3, 200, True),
    ]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (Answer(500), "pending"),
        (Answer(404), "pending"),
        (Answer(429, headers={"retry-after": "900"}), "pending"),
        (Answer(200, b"half", cut=True), "pending"),
        (Answer(302, headers={"location": "http://169.254.169.254/latest"}), "dead"),
        (Answer(400), "dead"),
        (Answer(410), "dead"),
        (Answer(200, b"x" * 5_000_000), "delivered"),
    ],
)
def test_each_answer_has_its_consequence(post: Post, answer: Answer, status: str) -> None:
    post.receiver.answers.extend([answer] * 9)
    job = post.end_search()
    with post.sending():
        delivery = post.tried(job)
    assert delivery.status == status
    assert {call.path for call in post.receiver.calls} == {"/hook"}
    if answer.status == 429:
        assert delivery.next_at - delivery.created_at > 890


def test_a_receiver_that_hangs_is_cut_off_and_asked_again(post: Post) -> None:
    post.receiver.answers.append(Answer(hold=True))
    job = post.end_search()
    claim = claim_due(post.db, LEASE_SECONDS)
    assert claim is not None
    with open_client(post.policy, user_agent="t") as client:
        attempt, verdict = Sender(post.db, post.vault, client, timeout_seconds=0.5).send(claim)
    assert 0.4 < attempt.seconds < 5
    assert record(post.db, claim, attempt, verdict.outcome, 0)
    with post.sending():
        post.ends(job, "delivered")
    assert len({call.id for call in post.receiver.calls}) == 1


def test_nobody_listening_is_tried_again(post: Post) -> None:
    post.receiver.server.server_close()
    job = post.end_search()
    with post.sending():
        assert post.tried(job).status == "pending"


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9/hook",
        "http://localhost:9/hook",
        "http://169.254.169.254/latest/meta-data",
        "http://[::1]:9/",
        "http://2130706433:9/",
        "http://10.0.0.8/hook",
        "http://[::ffff:10.0.0.8]/hook",
        "http://100.64.0.1/",
        "http://0.0.0.0:9/",
    ],
)
def test_no_call_leaves_for_a_private_or_metadata_address(post: Post, url: str) -> None:
    job = post.end_search(url=url)
    with post.sending():
        delivery = post.ends(job, "dead")
    assert post.receiver.calls == []
    assert "HOPNODE_WEBHOOK_ALLOW_HOSTS" in (delivery.last_error or "") or "never allowed" in (
        delivery.last_error or ""
    )


def test_the_allow_list_of_sources_opens_nothing_for_webhooks(post: Post) -> None:
    post.policy = EgressPolicy((), (), WEBHOOK_SETTINGS)
    job = post.end_search()
    with post.sending():
        post.ends(job, "dead")
    assert post.receiver.calls == []


def test_a_webhook_is_told_of_what_it_wants_and_signed_with_its_own_secret(post: Post) -> None:
    told, not_told = f"http://{post.receiver.address}/told", f"http://{post.receiver.address}/other"
    put_webhook(post.db, post.vault, post.workspace, told, ["search.succeeded"], new_secret=SECRET)
    put_webhook(post.db, post.vault, post.workspace, not_told, ["sync.failed"], new_secret=new_secret())
    job = post.end_search()
    with post.sending():
        wait_until(lambda: len(post.receiver.calls) == 2, 10, "callback and webhook are called")
        wait_until(lambda: {one.status for one in deliveries_of(post.db, job.id)} == {"delivered"}, 10, "both are told")
    calls = {call.path: call for call in post.receiver.calls}
    assert set(calls) == {"/hook", "/told"}
    Verifier(SECRET).verify(calls["/told"].body, dict(calls["/told"].headers))


def test_a_410_disables_the_webhook_and_what_it_is_owed(post: Post) -> None:
    url = f"http://{post.receiver.address}/told"
    put_webhook(post.db, post.vault, post.workspace, url, [], new_secret=SECRET)
    post.receiver.answers.extend([Answer(410)] * 2)
    job = post.end_search()
    with post.sending():
        wait_until(lambda: {one.status for one in deliveries_of(post.db, job.id)} == {"dead"}, 10, "all is dead")
    [webhook] = list_webhooks(post.db, post.workspace)
    assert webhook.disabled_reason == "gone"
    again = post.end_search()
    assert [one.webhook_id for one in deliveries_of(post.db, again.id)] == [None]
    put_webhook(post.db, post.vault, post.workspace, url, [], new_secret=None)
    last = post.end_search()
    assert len(deliveries_of(post.db, last.id)) == 2


def test_a_dead_delivery_is_replayed_under_its_id_with_all_its_tries(post: Post) -> None:
    post.receiver.answers.append(Answer(400))
    job = post.end_search()
    with post.sending():
        dead = post.ends(job, "dead")
        replay(post.db, post.workspace, dead.id)
        post.ends(job, "delivered")
    assert [call.id for call in post.receiver.calls] == [dead.id] * 2


def test_many_deliverers_make_each_attempt_once(post: Post) -> None:
    made = [post.end_search() for _ in range(30)]
    with post.sending(), post.sending(), post.sending():
        for job in made:
            post.ends(job, "delivered", 30)
    counts = Counter(call.id for call in post.receiver.calls)
    assert len(counts) == 30
    assert set(counts.values()) == {1}


def test_a_secret_key_that_is_lost_keeps_the_delivery_until_it_is_back(post: Post, tmp_path: Path) -> None:
    job = post.end_search(headers={"x": "y"})
    (tmp_path / "secret_key").rename(tmp_path / "elsewhere")
    with post.sending():
        assert post.tried(job).status == "pending"
        assert post.receiver.calls == []
        (tmp_path / "elsewhere").rename(tmp_path / "secret_key")
        post.ends(job, "delivered", 20)


def _end_and_die(url: str, key_file: Path, receiver_url: str, workspace: str) -> None:
    """Ends a search, and is killed before anything is sent."""
    db = Database(url)
    vault = Vault(db, Keyring(key_file))
    jobs.create_job(
        db,
        workspace_id=workspace,
        kind="search",
        role="agent",
        request={},
        callback={"url": receiver_url},
        hidden=HiddenFields(vault, {}),
    )
    claimed = jobs.claim_next(db, role="agent", lease_seconds=60, workspace_limit=1000)
    assert claimed is not None
    jobs.finish(db, claimed, JobStatus.SUCCEEDED, result={"passages": []})
    os.kill(os.getpid(), signal.SIGKILL)


def _send_and_wait(url: str, key_file: Path, address: str) -> None:
    """Sends what is due until it is killed."""
    db = Database(url)
    Deliverer(db, Vault(db, Keyring(key_file)), EgressPolicy([address], (), WEBHOOK_SETTINGS)).start()
    signal.pause()


def test_an_event_survives_kill_9_before_and_while_it_is_sent(post: Post, sqlite_url: str, tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    arguments = (sqlite_url, tmp_path / "secret_key", post.receiver.url, post.workspace)
    dying = [spawn.Process(target=_end_and_die, args=arguments) for _ in range(3)]
    for process in dying:
        process.start()
        process.join(60)
        assert process.exitcode == -signal.SIGKILL
    post.receiver.answers.extend([Answer(hold=True)] * 3)
    sending = spawn.Process(target=_send_and_wait, args=(sqlite_url, tmp_path / "secret_key", post.receiver.address))
    sending.start()
    wait_until(lambda: len(post.receiver.calls) == 3, 30, "three calls are under way")
    sending.kill()
    sending.join(10)
    with post.db.write() as connection:  # the time of the leases passes
        connection.execute(deliveries.update().values(lease_until=0))
    with post.sending():
        wait_until(lambda: _all_delivered(post.db, 3), 30, "all three are delivered")
    assert set(Counter(call.id for call in post.receiver.calls).values()) == {2}
    with post.db.read() as connection:
        known = set(connection.execute(sa.select(deliveries.c.id)).scalars())
    assert {call.id for call in post.receiver.calls} == known


def _all_delivered(db: Database, count: int) -> bool:
    with db.read() as connection:
        statuses = connection.execute(sa.select(deliveries.c.status)).scalars().all()
    return statuses == ["delivered"] * count
