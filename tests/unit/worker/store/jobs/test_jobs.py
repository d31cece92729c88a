"""The owner's side of the queue, on both engines: creating, reading, listing, cancelling and forgetting jobs."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from support.node.queue import CALLBACK, claim, new_workspace, queue_probe

from hopnode.worker.errors import Conflict, IdempotencyMismatch, InvalidRequest, JobCancelled, NotFound
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.deliveries import deliveries_of, pending
from hopnode.worker.store.jobs.jobs import Idempotency, JobStatus
from hopnode.worker.store.tables import idempotency_keys


def test_a_created_job_is_queued_and_reads_back_as_it_was_given(database: Database) -> None:
    workspace = new_workspace(database)
    request = {"query": "두 글자", "top_k": 3, "filter": None, "nested": {"a": [1.5, True]}}
    job, created = jobs.create_job(
        database, workspace_id=workspace, kind="search", role="agent", request=request, callback=CALLBACK
    )
    assert created
    assert job == jobs.get_job(database, workspace, job.id)
    assert (job.status, job.attempt, job.last_step) == (JobStatus.QUEUED, 0, 0)
    assert (job.request, job.callback, job.result, job.error) == (request, CALLBACK, None, None)


def test_a_job_of_another_workspace_does_not_exist(database: Database) -> None:
    job = queue_probe(database, new_workspace(database))
    other = new_workspace(database)
    with pytest.raises(NotFound):
        jobs.get_job(database, other, job.id)
    with pytest.raises(NotFound):
        jobs.cancel(database, other, job.id)
    assert jobs.list_jobs(database, other, kind="probe", limit=10) == []


def test_cancelling_ends_a_job_at_once_and_its_worker_is_told(database: Database) -> None:
    workspace = new_workspace(database)
    queued = queue_probe(database, workspace, callback=CALLBACK)
    assert jobs.cancel(database, workspace, queued.id).status is JobStatus.CANCELLED
    assert claim(database) is None
    queue_probe(database, workspace, callback=CALLBACK)
    running = claim(database)
    assert running is not None
    assert jobs.cancel(database, workspace, running.id).status is JobStatus.CANCELLED
    for told in (
        lambda: jobs.beat(database, running, 60),
        lambda: jobs.look(database, running),
        lambda: jobs.add_step(database, running, "late", {}),
    ):
        with pytest.raises(JobCancelled):
            told()
    assert not jobs.finish(database, running, JobStatus.SUCCEEDED)
    with pytest.raises(Conflict):
        jobs.cancel(database, workspace, running.id)
    assert [row.event for row in pending(database)] == ["probe.cancelled", "probe.cancelled"]


def test_the_same_idempotency_key_gives_the_same_job(database: Database) -> None:
    workspace = new_workspace(database)
    key = Idempotency("order-1", "a" * 64)

    def create(idempotency: Idempotency, workspace_id: str = workspace) -> tuple[jobs.Job, bool]:
        return jobs.create_job(
            database, workspace_id=workspace_id, kind="probe", role="agent", request={}, idempotency=idempotency
        )

    with ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda _: create(key), range(6)))
    assert len({job.id for job, _ in results}) == 1
    assert sum(created for _, created in results) == 1
    assert len(jobs.list_jobs(database, workspace, kind="probe", limit=10)) == 1
    with pytest.raises(IdempotencyMismatch):
        create(Idempotency("order-1", "b" * 64))
    assert len(jobs.list_jobs(database, workspace, kind="probe", limit=10)) == 1
    other, created = create(key, new_workspace(database))
    assert created
    assert other.id != results[0][0].id


def test_steps_are_counted_by_kind_for_many_jobs_at_once(database: Database) -> None:
    workspace = new_workspace(database)
    expected = dict[str, int]()
    for number in range(3):
        queue_probe(database, workspace)
        job = claim(database)
        assert job is not None
        for kind in ("start", *["turn"] * number):
            jobs.add_step(database, job, kind, {})
        expected |= {job.id: number} if number else {}
    assert jobs.count_steps(database, [*expected, "nothing"], "turn") == expected
    assert jobs.count_steps(database, [], "turn") == {}


def test_lists_are_newest_first_and_pages_neither_repeat_nor_miss(database: Database) -> None:
    workspace = new_workspace(database)
    with database.write() as connection:
        same_instant = database.now(connection)
        created = [
            jobs.create_job_in(
                connection, now=same_instant + n // 3, workspace_id=workspace, kind="probe", role="agent", request={}
            )
            for n in range(10)
        ]
    seen: list[str] = []
    cursor = None
    while page := jobs.list_jobs(database, workspace, kind="probe", limit=4, before=cursor):
        seen += [job.id for job in page]
        cursor = jobs.page_cursor(page[-1])
    newest_first = sorted(created, key=lambda job: (job.created_at, job.id), reverse=True)
    assert seen == [job.id for job in newest_first]
    for nonsense in ("x", "????", "Zm9v"):
        with pytest.raises(InvalidRequest):
            jobs.list_jobs(database, workspace, kind="probe", limit=4, before=nonsense)


def test_the_figures_of_the_queue_add_up(database: Database) -> None:
    assert jobs.oldest_queued_seconds(database) is None
    a, b = new_workspace(database), new_workspace(database)
    for workspace, count in ((a, 4), (b, 1)):
        for _ in range(count):
            queue_probe(database, workspace)
    assert claim(database) is not None
    assert jobs.job_counts(database) == {("probe", JobStatus.QUEUED): 4, ("probe", JobStatus.RUNNING): 1}
    assert jobs.count_claimable(database, "agent") == 4
    assert jobs.count_claimable(database, "agent", workspace_limit=2) == 2
    assert jobs.count_claimable(database, "agent", workspace_limit=1) == 1
    assert jobs.count_claimable(database, "sync") == 0
    age = jobs.oldest_queued_seconds(database)
    assert age is not None
    assert 0 <= age < 60


def test_old_jobs_are_forgotten_with_everything_that_hangs_on_them(database: Database) -> None:
    workspace = new_workspace(database)
    jobs.create_job(
        database,
        workspace_id=workspace,
        kind="probe",
        role="agent",
        request={},
        callback=CALLBACK,
        idempotency=Idempotency("k", "c" * 64),
    )
    ended = claim(database)
    assert ended is not None
    jobs.add_step(database, ended, "turn", {})
    assert jobs.finish(database, ended, JobStatus.SUCCEEDED)
    kept = queue_probe(database, workspace)
    assert jobs.delete_old(database, older_than_seconds=3600) == 0
    assert jobs.delete_old(database, older_than_seconds=-1) == 1
    assert [job.id for job in jobs.list_jobs(database, workspace, kind="probe", limit=10)] == [kept.id]
    assert jobs.list_steps(database, ended.id) == []
    assert deliveries_of(database, ended.id) == []
    with database.read() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(idempotency_keys)).scalar_one() == 0
