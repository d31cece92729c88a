"""Worker processes of a server-mode node from start to stop: they run what is kicked, and leave no job hanging."""

import signal
import time
from collections.abc import Generator
from pathlib import Path

import psutil
import pytest
from support.node.programs import LEASE_SECONDS, Program, probe_environment
from support.node.queue import CALLBACK, new_workspace, queue_probe, wait_until, worker_settings
from support.node.run_log import read_runs
from support.servers.redis_server import RedisServer

from hopnode.worker.queue.dispatch import CeleryDispatcher
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.jobs import Job, JobStatus

pytestmark = pytest.mark.slow


@pytest.fixture
def redis_server(tmp_path: Path) -> Generator[RedisServer]:
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["agent", "sync"])
def role(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def supervisor(role: str, sqlite_url: str, redis_server: RedisServer, tmp_path: Path) -> Generator[Program]:
    environment = probe_environment(tmp_path, sqlite_url, redis_url=redis_server.url)
    program = Program(["supervisor", role], environment, tmp_path / "worker.log")
    yield program
    program.close()


def _read(db: Database, job: Job) -> Job:
    return jobs.get_job(db, job.workspace_id, job.id)


def _running(db: Database, job: Job, tmp_path: Path) -> bool:
    log = tmp_path / "runs.jsonl"
    return _read(db, job).status is JobStatus.RUNNING and log.exists() and bool(read_runs(log))


def test_a_kick_starts_a_job_at_once_and_the_end_of_one_starts_the_next(
    supervisor: Program, role: str, sqlite_database: Database, redis_server: RedisServer, tmp_path: Path
) -> None:
    db = sqlite_database
    workspace = new_workspace(db)
    first = queue_probe(db, workspace, role=role, request={"seconds": 0})
    wait_until(lambda: _read(db, first).status is JobStatus.SUCCEEDED, 20, "the worker is up; its supervisor kicked it")
    dispatcher = CeleryDispatcher(worker_settings(tmp_path, redis_url=redis_server.url))
    dispatcher.start()
    kicked = [queue_probe(db, workspace, role=role, request={"seconds": 0}) for _ in range(12)]
    dispatcher.kick(role)
    took = wait_until(lambda: all(_read(db, job).status is JobStatus.SUCCEEDED for job in kicked), 10, "all ran")
    dispatcher.stop(2)
    print(f"\n{role}: 12 jobs of no length after one kick: {took:.2f} s")


def test_a_worker_that_is_told_to_stop_ends_in_time_and_its_job_can_be_claimed_again(
    supervisor: Program, role: str, sqlite_database: Database, tmp_path: Path
) -> None:
    db = sqlite_database
    job = queue_probe(db, new_workspace(db), role=role, request={"seconds": 60}, callback=CALLBACK)
    wait_until(lambda: _running(db, job, tmp_path), 20, "the job runs")
    family = supervisor.family()
    start = time.monotonic()
    supervisor.process.send_signal(signal.SIGTERM)
    code = supervisor.process.wait(15)
    stopped_after = time.monotonic() - start
    left = _read(db, job)
    print(f"\n{role}: stopped after {stopped_after:.1f} s with code {code}; job {left.status}, attempt {left.attempt}")
    assert 1.5 < stopped_after < 8
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in family)
    wait_until(lambda: jobs.count_claimable(db, role) == 1, LEASE_SECONDS + 1, "the job can be claimed again")


def test_a_worker_that_has_nothing_to_do_stops_at_once(
    supervisor: Program, role: str, sqlite_database: Database
) -> None:
    db = sqlite_database
    job = queue_probe(db, new_workspace(db), role=role, request={"seconds": 0})
    wait_until(lambda: _read(db, job).status is JobStatus.SUCCEEDED, 20, "the worker is up")
    start = time.monotonic()
    supervisor.process.send_signal(signal.SIGINT)
    supervisor.process.wait(15)
    print(f"\n{role}: stopped after {time.monotonic() - start:.1f} s")
    assert time.monotonic() - start < 6
