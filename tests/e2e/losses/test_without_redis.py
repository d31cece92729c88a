"""Searches go on while Redis is away: a real worker, and a real Redis that is killed, frozen and started again."""

from collections.abc import Generator
from pathlib import Path

import pytest
from support.node.programs import Program, probe_environment
from support.node.queue import new_workspace, queue_probe, wait_until
from support.node.run_log import read_runs
from support.servers.redis_server import RedisServer

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


@pytest.fixture
def worker(sqlite_url: str, redis_server: RedisServer, tmp_path: Path) -> Generator[Program]:
    environment = probe_environment(tmp_path, sqlite_url, redis_url=redis_server.url)
    program = Program(["supervisor", "agent"], environment, tmp_path / "worker.log")
    yield program
    program.close()


def _done(db: Database, *asked: Job) -> bool:
    return all(jobs.get_job(db, job.workspace_id, job.id).status is JobStatus.SUCCEEDED for job in asked)


@pytest.mark.usefixtures("worker")
def test_searches_go_on_at_the_polling_pace_while_redis_is_killed_or_frozen_and_after(
    sqlite_database: Database, redis_server: RedisServer, tmp_path: Path
) -> None:
    db = sqlite_database
    workspace = new_workspace(db)

    def ask(count: int) -> list[Job]:
        return [queue_probe(db, workspace, request={"seconds": 0.3}) for _ in range(count)]

    first = ask(2)
    wait_until(lambda: _done(db, *first), 30, "the worker is up")
    for name, harm, mend in (
        ("killed", redis_server.kill, redis_server.start),
        ("frozen", redis_server.freeze, redis_server.thaw),
    ):
        harm()
        asked = ask(8)
        took = wait_until(lambda asked=asked: _done(db, *asked), 30, f"searches go on while Redis is {name}")
        print(f"\nRedis {name}: 8 jobs of 0.3 s in {took:.1f} s")
        mend()
        asked = ask(4)
        wait_until(lambda asked=asked: _done(db, *asked), 30, "searches go on when Redis is back")
    ended = [run.job for run in read_runs(tmp_path / "runs.jsonl") if run.ended]
    assert len(ended) == len(set(ended)) == 2 + 2 * (8 + 4), "each job came to its end once"


@pytest.mark.usefixtures("worker")
def test_a_worker_without_redis_runs_no_more_at_once_than_it_has_slots(
    sqlite_database: Database, redis_server: RedisServer
) -> None:
    redis_server.kill()
    db = sqlite_database
    asked = [queue_probe(db, new_workspace(db), request={"seconds": 1}) for _ in range(6)]
    most = 0

    def done() -> bool:
        nonlocal most
        most = max(most, jobs.job_counts(db).get(("probe", JobStatus.RUNNING), 0))
        return _done(db, *asked)

    wait_until(done, 60, "all ran without Redis")
    assert 2 <= most <= 3
