"""The worker's side of the queue, on both engines: who gets a job, who may write about it, and how it ends."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from support.node.queue import CALLBACK, claim, new_workspace, queue_probe, wait_until

from hopnode.worker.errors import LeaseLost
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.claims import end_in
from hopnode.worker.store.jobs.deliveries import deliveries_of, pending
from hopnode.worker.store.jobs.jobs import JobStatus
from hopnode.worker.store.tables import jobs as jobs_table


def _now(db: Database) -> float:
    with db.read() as connection:
        return db.now(connection)


def _run_out(db: Database, job: jobs.Job) -> None:
    """As if the worker of this job had been silent for longer than its lease."""
    with db.write() as connection:
        past = db.now(connection) - 1
        connection.execute(jobs_table.update().where(jobs_table.c.id == job.id).values(lease_until=past))


def test_a_claim_gives_a_token_a_lease_and_an_attempt(database: Database) -> None:
    created = queue_probe(database, new_workspace(database))
    before = _now(database)
    job = claim(database, lease=30)
    assert job is not None
    assert job.id == created.id
    assert (job.status, job.attempt) == (JobStatus.RUNNING, 1)
    assert job.lease_token
    assert job.lease_until is not None
    assert before + 29 < job.lease_until <= _now(database) + 30
    assert claim(database) is None


def test_roles_and_kinds_keep_jobs_apart(database: Database) -> None:
    queue_probe(database, new_workspace(database), role="sync")
    assert claim(database, role="agent") is None
    wrong_kind = jobs.claim_next(database, role="sync", lease_seconds=60, workspace_limit=1, kinds=["search"])
    assert wrong_kind is None
    assert claim(database, role="sync") is not None


def test_each_job_is_claimed_once_by_claimers_that_race(database: Database) -> None:
    workspace = new_workspace(database)
    expected = {queue_probe(database, workspace).id for _ in range(40)}
    claimed: list[str] = []
    start = threading.Barrier(8)

    def claim_all() -> None:
        start.wait()
        while job := claim(database):
            claimed.append(job.id)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(claim_all) for _ in range(8)]:
            done.result()
    assert Counter(claimed) == Counter(expected)


def test_the_cap_of_a_workspace_holds_under_racing_claimers(database: Database) -> None:
    workspaces = [new_workspace(database) for _ in range(3)]
    for workspace in workspaces:
        for _ in range(6):
            queue_probe(database, workspace)
    start = threading.Barrier(8)

    def claim_two() -> list[jobs.Job | None]:
        start.wait()
        return [claim(database, limit=2) for _ in range(2)]

    for round_number in range(3):
        with ThreadPoolExecutor(8) as pool:
            results = [done.result() for done in [pool.submit(claim_two) for _ in range(8)]]
        claimed = [job for pair in results for job in pair if job]
        assert Counter(job.workspace_id for job in claimed) == dict.fromkeys(workspaces, 2), round_number
        for job in claimed:
            assert jobs.finish(database, job, JobStatus.SUCCEEDED)


def test_the_workspace_with_the_fewest_running_jobs_comes_first(database: Database) -> None:
    greedy, small = new_workspace(database), new_workspace(database)
    for _ in range(5):
        queue_probe(database, greedy)
    late = queue_probe(database, small)
    order = [claim(database) for _ in range(3)]
    assert [job.workspace_id for job in order if job] == [greedy, small, greedy]
    assert order[1] is not None
    assert order[1].id == late.id


def test_within_a_workspace_smaller_priorities_then_older_jobs_come_first(database: Database) -> None:
    workspace = new_workspace(database)
    first, second = queue_probe(database, workspace), queue_probe(database, workspace)
    urgent = queue_probe(database, workspace, priority=-1)
    idle = queue_probe(database, workspace, priority=5)
    order = [job.id for _ in range(4) if (job := claim(database))]
    assert order == [urgent.id, first.id, second.id, idle.id]


def _overdue(db: Database, job: jobs.Job) -> None:
    """As if this job had been due for a minute already."""
    with db.write() as connection:
        past = db.now(connection) - 60
        connection.execute(jobs_table.update().where(jobs_table.c.id == job.id).values(next_at=past))


def test_a_job_is_in_the_way_of_what_goes_before_it_and_waits_for_long(database: Database) -> None:
    workspace, other = new_workspace(database), new_workspace(database)
    queue_probe(database, workspace, priority=10)
    held = claim(database)
    assert held is not None

    def in_the_way(limit: int = 1) -> bool:
        return jobs.is_in_the_way(database, held, 5, limit)

    _overdue(database, queue_probe(database, workspace, priority=10))
    _overdue(database, queue_probe(database, other, role="sync"))
    early = queue_probe(database, other)
    assert not in_the_way(), "equals, other roles and what has only just come are no reason"
    _overdue(database, early)
    assert in_the_way()


def test_a_job_is_in_the_way_of_its_own_workspace_but_not_of_one_at_its_cap(database: Database) -> None:
    workspace, full = new_workspace(database), new_workspace(database)
    queue_probe(database, workspace, priority=10)
    held = claim(database)
    assert held is not None
    queue_probe(database, full)
    assert claim(database) is not None
    _overdue(database, queue_probe(database, full))
    assert not jobs.is_in_the_way(database, held, 5, 1), "its end would not help a workspace that may not run more"
    _overdue(database, queue_probe(database, workspace))
    assert jobs.is_in_the_way(database, held, 5, 1), "its end makes room below the cap of its own workspace"


def test_beating_extends_the_lease(database: Database) -> None:
    queue_probe(database, new_workspace(database))
    job = claim(database, lease=5)
    assert job is not None
    jobs.beat(database, job, 500)
    jobs.look(database, job)
    extended = jobs.get_job(database, job.workspace_id, job.id)
    assert extended.lease_until is not None
    assert extended.lease_until > _now(database) + 400


def test_a_silent_worker_loses_its_job_and_can_write_nothing_more(database: Database) -> None:
    queue_probe(database, new_workspace(database), callback=CALLBACK)
    old = claim(database)
    assert old is not None
    _run_out(database, old)
    new = claim(database)
    assert new is not None
    assert (new.id, new.attempt) == (old.id, 2)
    for write in (
        lambda: jobs.beat(database, old, 60),
        lambda: jobs.look(database, old),
        lambda: jobs.add_step(database, old, "late", {}),
    ):
        with pytest.raises(LeaseLost):
            write()
    assert not jobs.finish(database, old, JobStatus.SUCCEEDED, result={"from": "old"})
    assert not jobs.release(database, old, error={"code": "x"}, delay_seconds=0)
    assert not jobs.give_back(database, old)
    assert jobs.finish(database, new, JobStatus.SUCCEEDED, result={"from": "new"})
    ended = jobs.get_job(database, new.workspace_id, new.id)
    assert (ended.result, ended.lease_token) == ({"from": "new"}, None)
    assert len(deliveries_of(database, new.id)) == 1


def test_a_silent_job_is_taken_over_although_its_workspace_is_at_the_cap(database: Database) -> None:
    workspace = new_workspace(database)
    queue_probe(database, workspace)
    queue_probe(database, workspace)
    silent = claim(database, limit=1)
    assert silent is not None
    assert claim(database, limit=1) is None
    _run_out(database, silent)
    again = claim(database, limit=1)
    assert again is not None
    assert again.id == silent.id
    assert claim(database, limit=1) is None


def test_a_job_is_finished_once_with_one_delivery_in_the_same_transaction(database: Database) -> None:
    queue_probe(database, new_workspace(database), callback=CALLBACK)
    job = claim(database)
    assert job is not None
    with ThreadPoolExecutor(4) as pool:
        ends = list(pool.map(lambda _: jobs.finish(database, job, JobStatus.SUCCEEDED, result={"n": 1}), range(4)))
    assert sorted(ends) == [False, False, False, True]
    [delivery] = pending(database)
    assert (delivery.job_id, delivery.url, delivery.event) == (job.id, CALLBACK["url"], "probe.succeeded")
    assert delivery.payload["type"] == "probe.succeeded"
    assert delivery.payload["data"] == {
        "id": job.id,
        "kind": "probe",
        "status": "succeeded",
        "metadata": CALLBACK["metadata"],
    }


def test_a_callback_that_asks_for_some_events_is_owed_only_those(database: Database) -> None:
    workspace = new_workspace(database)
    callback = {"url": "https://receiver.example/hook", "events": ["probe.failed"]}
    for status in (JobStatus.SUCCEEDED, JobStatus.FAILED):
        queue_probe(database, workspace, callback=callback)
        job = claim(database)
        assert job is not None
        assert jobs.finish(database, job, status)
    assert [delivery.event for delivery in pending(database)] == ["probe.failed"]


def test_a_delivery_that_cannot_be_written_leaves_the_job_unfinished(database: Database) -> None:
    queue_probe(database, new_workspace(database), callback={"headers": {}})  # no URL
    job = claim(database)
    assert job is not None
    with pytest.raises(KeyError):
        jobs.finish(database, job, JobStatus.SUCCEEDED)
    assert jobs.get_job(database, job.workspace_id, job.id).status is JobStatus.RUNNING


def test_a_released_job_waits_for_its_delay_and_fails_when_attempts_are_used_up(database: Database) -> None:
    queue_probe(database, new_workspace(database), max_attempts=2, callback=CALLBACK)
    job = claim(database)
    assert job is not None
    assert jobs.release(database, job, error={"code": "model-unavailable"}, delay_seconds=0.2)
    assert claim(database) is None
    waiting = jobs.get_job(database, job.workspace_id, job.id)
    assert (waiting.status, waiting.error) == (JobStatus.QUEUED, {"code": "model-unavailable"})
    again: list[jobs.Job] = []
    wait_until(lambda: again.extend(job for job in [claim(database)] if job) or again, 5, "the delay is over")
    assert again[0].attempt == 2
    assert jobs.release(database, again[0], error={"code": "model-unavailable"}, delay_seconds=0)
    assert jobs.get_job(database, job.workspace_id, job.id).status is JobStatus.FAILED
    assert [delivery.event for delivery in deliveries_of(database, job.id)] == ["probe.failed"]


def test_a_job_that_is_given_back_has_as_many_attempts_left_as_before_and_no_two_have_one_number(
    database: Database,
) -> None:
    queue_probe(database, new_workspace(database), max_attempts=1)
    for number in (1, 2, 3):
        job = claim(database)
        assert job is not None
        assert (job.attempt, job.max_attempts) == (number, number)
        assert jobs.give_back(database, job)


def test_a_claim_that_meets_a_cancellation_half_way_never_brings_the_job_back_to_life(database: Database) -> None:
    workspace = new_workspace(database)
    cancelled = queue_probe(database, workspace)
    with ThreadPoolExecutor(1) as pool:
        with database.write() as connection:
            end_in(connection, jobs_table.c.id == cancelled.id, JobStatus.CANCELLED, now=database.now(connection))
            meanwhile = pool.submit(claim, database)
            wait(
                [meanwhile], timeout=0.3
            )  # it looks while the cancellation is not committed yet, or waits for its turn
        assert meanwhile.result(10) is None
    assert jobs.get_job(database, workspace, cancelled.id).status is JobStatus.CANCELLED


def test_steps_are_numbered_from_one_over_all_attempts(database: Database) -> None:
    queue_probe(database, new_workspace(database))
    first = claim(database)
    assert first is not None
    assert [jobs.add_step(database, first, "turn", {"n": n}) for n in range(3)] == [1, 2, 3]
    assert jobs.release(database, first, error={"code": "x"}, delay_seconds=0)
    second = claim(database)
    assert second is not None
    assert second.last_step == 3
    with ThreadPoolExecutor(4) as pool:
        numbers = list(pool.map(lambda n: jobs.add_step(database, second, "turn", {"n": n}), range(12)))
    assert sorted(numbers) == list(range(4, 16))
    steps = jobs.list_steps(database, second.id, after=2, limit=3)
    assert [(step.seq, step.attempt) for step in steps] == [(3, 1), (4, 2), (5, 2)]
    assert (steps[0].kind, steps[0].data) == ("turn", {"n": 2})


def test_reaping_requeues_silent_jobs_and_fails_those_without_attempts(database: Database) -> None:
    workspace = new_workspace(database)
    queue_probe(database, workspace, max_attempts=2, callback=CALLBACK)
    alive = queue_probe(database, workspace, priority=9)
    silent, healthy = claim(database), claim(database)
    assert silent is not None
    assert healthy is not None
    assert healthy.id == alive.id
    _run_out(database, silent)
    assert jobs.reap(database) == jobs.Reaped(requeued=1, failed=0)
    assert jobs.reap(database) == jobs.Reaped(requeued=0, failed=0)
    again = claim(database)
    assert again is not None
    assert again.attempt == 2
    _run_out(database, again)
    assert claim(database) is None
    assert jobs.reap(database) == jobs.Reaped(requeued=0, failed=1)
    ended = jobs.get_job(database, workspace, silent.id)
    assert ended.status is JobStatus.FAILED
    assert ended.error is not None
    assert ended.error["code"] == "worker-lost"
    assert [delivery.event for delivery in deliveries_of(database, silent.id)] == ["probe.failed"]
    assert jobs.get_job(database, workspace, healthy.id).status is JobStatus.RUNNING


def test_a_job_whose_deadline_passed_in_the_queue_is_failed_not_run(database: Database) -> None:
    workspace = new_workspace(database)
    late = queue_probe(database, workspace, deadline_at=_now(database) - 1)
    assert jobs.count_claimable(database, "agent") == 0
    assert claim(database) is None
    assert jobs.reap(database) == jobs.Reaped(requeued=0, failed=1)
    ended = jobs.get_job(database, workspace, late.id)
    assert ended.error is not None
    assert ended.error["code"] == "deadline-exceeded"


@pytest.mark.slow
def test_a_claim_stays_fast_behind_ten_thousand_queued_jobs(database: Database) -> None:
    workspaces = [new_workspace(database) for _ in range(20)]
    with database.write() as connection:
        now = database.now(connection)
        row = {
            "kind": "probe",
            "role": "agent",
            "status": "queued",
            "max_attempts": 3,
            "request": {"query": "x" * 1000},
        }
        rows = [
            row | {"id": str(n), "workspace_id": workspaces[n % 20], "next_at": now, "created_at": now + n * 1e-6}
            for n in range(10_000)
        ]
        connection.execute(jobs_table.insert(), rows)
    times: list[float] = []
    for _ in range(50):
        start = time.perf_counter()
        assert claim(database, limit=4) is not None
        times.append(time.perf_counter() - start)
    times.sort()
    print(
        f"\nclaim behind 10,000 jobs on {database.dialect}: median {times[25] * 1e3:.1f} ms, worst {times[-1] * 1e3:.1f} ms"
    )
    assert times[25] < 0.5  # a bound against claims that grow with the square, on a machine that is busy
