"""From claim to end: what becomes of a job when its handler returns, fails, is cancelled, is stopped or loses its lease."""

import threading
from pathlib import Path

import pytest
from pydantic import JsonValue
from structlog.testing import capture_logs
from support.node.queue import (
    CALLBACK,
    Handler,
    Probe,
    claim,
    make_runner,
    new_workspace,
    queue_probe,
    wait_until,
    worker_settings,
)

from hopnode.worker.errors import DeadlineExceeded, InvalidRequest, LeaseLost, ModelUnavailable
from hopnode.worker.queue.job_context import JobContext
from hopnode.worker.queue.runner import BACKOFF_MOST_SECONDS, QueueRunner, backoff_seconds
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.deliveries import deliveries_of
from hopnode.worker.store.jobs.jobs import Job, JobStatus
from hopnode.worker.store.tables import jobs as jobs_table


class Gate:
    """A handler that runs until it is let go, or has to stop, and remembers how it ended."""

    def __init__(self) -> None:
        self.entered, self.open = threading.Event(), threading.Event()
        self.stopped_by: BaseException | None = None

    def __call__(self, _: Probe, context: JobContext) -> JsonValue:
        self.entered.set()
        try:
            while not self.open.wait(0.01):
                context.check()
        except Exception as error:
            self.stopped_by = error
            raise
        return {"done": True}


def run_one(db: Database, tmp_path: Path, handler: Handler, **settings: object) -> bool:
    return make_runner(db, worker_settings(tmp_path, **settings), probe=handler).run_next("agent")


def in_thread(runner: QueueRunner[Probe]) -> threading.Thread:
    thread = threading.Thread(target=runner.run_next, args=("agent",), daemon=True)
    thread.start()
    return thread


def read(db: Database, job: Job) -> Job:
    return jobs.get_job(db, job.workspace_id, job.id)


def fail_with(error: Exception) -> Handler:
    def handler(_: Probe, context: JobContext) -> JsonValue:
        raise error

    return handler


def test_what_a_handler_returns_is_the_result_and_its_steps_are_kept(database: Database, tmp_path: Path) -> None:
    job = queue_probe(database, new_workspace(database), request={"n": 2}, callback=CALLBACK)

    def handler(_: Probe, context: JobContext) -> JsonValue:
        context.check()
        numbers = [context.step("turn", {"n": n}) for n in range(2)]
        return {"numbers": numbers, "asked": context.job.request["n"]}

    with capture_logs() as lines:
        assert run_one(database, tmp_path, handler)
        assert not run_one(database, tmp_path, handler)
    ended = read(database, job)
    assert (ended.status, ended.result) == (JobStatus.SUCCEEDED, {"numbers": [1, 2], "asked": 2})
    assert len(deliveries_of(database, job.id)) == 1
    assert [line["event"] for line in lines] == ["job_claimed", "job_finished"]


def test_log_lines_of_a_job_carry_its_ids(sqlite_database: Database, tmp_path: Path) -> None:
    import structlog

    job = queue_probe(sqlite_database, new_workspace(sqlite_database))
    seen: dict[str, object] = {}

    def handler(_: Probe, context: JobContext) -> JsonValue:
        seen.update(structlog.contextvars.get_contextvars())
        return None

    assert run_one(sqlite_database, tmp_path, handler)
    assert seen == {"job": job.id, "workspace": job.workspace_id, "kind": "probe", "attempt": 1}
    assert structlog.contextvars.get_contextvars() == {}


def test_an_error_that_a_retry_can_mend_sends_the_job_back_until_attempts_are_used_up(
    sqlite_database: Database, tmp_path: Path
) -> None:
    job = queue_probe(sqlite_database, new_workspace(sqlite_database), max_attempts=2)
    fail = fail_with(ModelUnavailable("The model did not answer."))
    with capture_logs() as lines:
        assert run_one(sqlite_database, tmp_path, fail)
        waiting = read(sqlite_database, job)
        assert (waiting.status, waiting.attempt) == (JobStatus.QUEUED, 1)
        assert waiting.error == {"code": "model-unavailable", "message": "The model did not answer."}
        wait_until(lambda: run_one(sqlite_database, tmp_path, fail), 5, "the backoff is over")
    assert read(sqlite_database, job).status is JobStatus.FAILED
    ends = [line["event"] for line in lines if line["event"] != "job_claimed"]
    assert ends == ["job_released", "job_finished"]


def test_an_error_that_no_retry_can_mend_fails_the_job_at_once(sqlite_database: Database, tmp_path: Path) -> None:
    job = queue_probe(sqlite_database, new_workspace(sqlite_database))
    assert run_one(sqlite_database, tmp_path, fail_with(InvalidRequest("No such collection.")))
    ended = read(sqlite_database, job)
    assert ended.status is JobStatus.FAILED
    assert ended.error == {"code": "invalid-request", "message": "No such collection."}


def test_a_crash_fails_the_job_without_telling_its_text_and_without_ending_the_worker(
    sqlite_database: Database, tmp_path: Path
) -> None:
    job = queue_probe(sqlite_database, new_workspace(sqlite_database))
    with capture_logs() as lines:
        assert run_one(sqlite_database, tmp_path, fail_with(RuntimeError("secret path /home/x")))
    ended = read(sqlite_database, job)
    assert ended.error is not None
    assert ended.error["code"] == "internal-error"
    assert "secret" not in str(ended.error)
    assert "job_crashed" in [line["event"] for line in lines]


def test_a_result_that_is_no_json_fails_the_job_instead_of_running_it_for_ever(
    sqlite_database: Database, tmp_path: Path
) -> None:
    job = queue_probe(sqlite_database, new_workspace(sqlite_database))
    with capture_logs() as lines:
        assert run_one(sqlite_database, tmp_path, lambda *_: {"bad": object()})  # type: ignore[dict-item]
    assert [line["event"] for line in lines] == ["job_claimed", "job_crashed", "job_finished"]
    assert read(sqlite_database, job).status is JobStatus.FAILED


def test_a_running_job_learns_of_its_cancellation_within_a_second(database: Database, tmp_path: Path) -> None:
    job = queue_probe(database, new_workspace(database), callback=CALLBACK)
    gate = Gate()
    thread = in_thread(make_runner(database, worker_settings(tmp_path, lease_seconds=60), probe=gate))
    assert gate.entered.wait(5)
    jobs.cancel(database, job.workspace_id, job.id)
    took = wait_until(lambda: gate.stopped_by, 3, "the handler was told")
    thread.join(5)
    print(f"\ncancel learnt after {took:.2f} s on {database.dialect}")
    assert took < 1
    assert read(database, job).status is JobStatus.CANCELLED
    assert [delivery.event for delivery in deliveries_of(database, job.id)] == ["probe.cancelled"]


def test_the_heartbeat_keeps_a_job_longer_than_its_lease(database: Database, tmp_path: Path) -> None:
    job = queue_probe(database, new_workspace(database))
    gate = Gate()
    thread = in_thread(make_runner(database, worker_settings(tmp_path, lease_seconds=0.6), probe=gate))
    assert gate.entered.wait(5)
    first = read(database, job).lease_until
    assert first is not None
    wait_until(lambda: (read(database, job).lease_until or 0) > first + 0.7, 5, "the lease was extended past its end")
    assert claim(database) is None
    gate.open.set()
    thread.join(5)
    assert (read(database, job).status, read(database, job).attempt) == (JobStatus.SUCCEEDED, 1)


def test_a_job_that_another_worker_took_over_stops_and_writes_nothing(
    sqlite_database: Database, tmp_path: Path
) -> None:
    db = sqlite_database
    job = queue_probe(db, new_workspace(db))
    gate = Gate()
    thread = in_thread(make_runner(db, worker_settings(tmp_path), probe=gate))
    assert gate.entered.wait(5)
    with db.write() as connection:
        connection.execute(jobs_table.update().values(lease_until=0))
    other = claim(db)
    assert other is not None
    wait_until(lambda: isinstance(gate.stopped_by, LeaseLost), 3, "the first worker noticed")
    thread.join(5)
    assert read(db, job).lease_token == other.lease_token
    assert jobs.finish(db, other, JobStatus.SUCCEEDED, result="other")
    assert read(db, job).result == "other"


def test_a_lease_that_cannot_be_kept_stops_the_job_before_another_may_have_it(
    sqlite_database: Database, tmp_path: Path
) -> None:
    db = sqlite_database
    queue_probe(db, new_workspace(db))
    settings = worker_settings(tmp_path, lease_seconds=0.4)
    gate = Gate()
    thread = in_thread(make_runner(db, settings, probe=gate))
    assert gate.entered.wait(5)
    with db.write():  # holds up every beat, as a frozen disk would
        wait_until(lambda: isinstance(gate.stopped_by, LeaseLost), 3, "the handler was stopped")
    thread.join(5)
    assert not thread.is_alive()


def test_a_deadline_ends_a_job_that_runs(sqlite_database: Database, tmp_path: Path) -> None:
    db = sqlite_database
    with db.read() as connection:
        soon = db.now(connection) + 0.2
    job = queue_probe(db, new_workspace(db), deadline_at=soon)
    gate = Gate()
    assert run_one(db, tmp_path, gate)
    assert isinstance(gate.stopped_by, DeadlineExceeded)
    ended = read(db, job)
    assert ended.error is not None
    assert (ended.status, ended.error["code"]) == (JobStatus.FAILED, "deadline-exceeded")


def test_an_interrupted_job_goes_back_untried_and_nothing_more_is_claimed(
    sqlite_database: Database, tmp_path: Path
) -> None:
    db = sqlite_database
    workspace = new_workspace(db)
    job, other = queue_probe(db, workspace), queue_probe(db, workspace)
    gate = Gate()
    runner = make_runner(db, worker_settings(tmp_path), probe=gate)
    thread = in_thread(runner)
    assert gate.entered.wait(5)
    assert runner.more("agent")
    runner.interrupt()
    thread.join(5)
    assert (read(db, job).status, read(db, job).max_attempts) == (JobStatus.QUEUED, job.max_attempts + 1)
    assert not runner.run_next("agent")
    assert not runner.more("agent")
    assert read(db, other).attempt == 0


def test_jobs_of_an_unknown_kind_are_left_for_a_worker_that_knows_them(
    sqlite_database: Database, tmp_path: Path
) -> None:
    queue_probe(sqlite_database, new_workspace(sqlite_database), kind="future")
    assert not run_one(sqlite_database, tmp_path, Gate())


@pytest.mark.parametrize("attempt", [1, 2, 5, 40])
def test_the_backoff_is_full_jitter_with_a_limit(attempt: int) -> None:
    most = min(BACKOFF_MOST_SECONDS, 2.0 * 2 ** (attempt - 1))
    delays = [backoff_seconds(attempt) for _ in range(200)]
    assert 0 <= min(delays) < most / 4
    assert most * 3 / 4 < max(delays) <= most
