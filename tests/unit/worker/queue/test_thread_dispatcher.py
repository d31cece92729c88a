"""Embedded mode: threads run what the job table holds, kicked or not, and stop in an orderly way."""

import sqlite3
import threading
import time
from pathlib import Path

from pydantic import JsonValue
from structlog.testing import capture_logs
from support.node.queue import Probe, make_runner, new_workspace, queue_probe, wait_until, worker_settings

from hopnode.worker.queue.dispatch import ThreadDispatcher
from hopnode.worker.queue.job_context import JobContext
from hopnode.worker.queue.runner import QueueRunner
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.jobs import JobStatus


def _quick(_: Probe, context: JobContext) -> JsonValue:
    return {"thread": threading.current_thread().name}


def _stubborn(_: Probe, context: JobContext) -> JsonValue:
    while True:
        time.sleep(0.01)
        context.check()


def _ended(db: Database, workspace: str) -> int:
    return sum(job.status.final for job in jobs.list_jobs(db, workspace, kind="probe", limit=1000))


def test_kicks_wake_threads_long_before_they_would_look_by_themselves(database: Database, tmp_path: Path) -> None:
    workspace = new_workspace(database)
    settings = worker_settings(tmp_path, workspace_job_limit=100)
    dispatcher = ThreadDispatcher(make_runner(database, settings, probe=_quick), {"agent": 3, "sync": 1}, 60)
    dispatcher.start()
    try:
        latencies: list[float] = []
        for n in range(20):
            queue_probe(database, workspace, role=("agent", "agent", "sync")[n % 3])
            dispatcher.kick(("agent", "agent", "sync")[n % 3])
            latencies.append(wait_until(lambda n=n: _ended(database, workspace) == n + 1, 5, "the job ran"))
        latencies.sort()
        print(
            f"\nkick to end on {database.dialect}: median {latencies[10] * 1e3:.0f} ms, worst {latencies[-1] * 1e3:.0f} ms"
        )
    finally:
        dispatcher.stop(5)


def test_jobs_that_nobody_kicked_are_found(sqlite_database: Database, tmp_path: Path) -> None:
    db = sqlite_database
    workspace = new_workspace(db)
    dispatcher = ThreadDispatcher(make_runner(db, worker_settings(tmp_path), probe=_quick), {"agent": 2}, 0.05)
    dispatcher.start()
    try:
        for _ in range(10):
            queue_probe(db, workspace)
        wait_until(lambda: _ended(db, workspace) == 10, 5, "all jobs ran")
    finally:
        dispatcher.stop(5)


def test_more_threads_do_not_look_more_often(sqlite_database: Database, tmp_path: Path) -> None:
    runner = make_runner(sqlite_database, worker_settings(tmp_path), probe=_quick)
    looked: list[float] = []
    looks = threading.Semaphore(0)

    class Counting(QueueRunner[Probe]):
        def run_next(self, role: str) -> bool:
            looked.append(time.monotonic())
            looks.release()
            return runner.run_next(role)

    dispatcher = ThreadDispatcher(Counting(Probe(sqlite_database, worker_settings(tmp_path)), {}), {"agent": 20}, 0.05)
    dispatcher.start()
    try:
        for _ in range(20 + 10):
            assert looks.acquire(timeout=10)
    finally:
        dispatcher.stop(5)
    assert looked[29] - looked[19] > 0.3, "ten looks more of twenty threads take about ten times the poll"


def test_a_small_workspace_does_not_wait_behind_a_greedy_one(sqlite_database: Database, tmp_path: Path) -> None:
    db = sqlite_database
    greedy, small = new_workspace(db), new_workspace(db)
    for _ in range(30):
        queue_probe(db, greedy)
    queue_probe(db, small)
    order: list[str] = []

    def note(_: Probe, context: JobContext) -> JsonValue:
        order.append(context.job.workspace_id)
        time.sleep(0.01)
        return None

    dispatcher = ThreadDispatcher(make_runner(db, worker_settings(tmp_path), probe=note), {"agent": 4}, 0.05)
    dispatcher.start()
    try:
        wait_until(lambda: _ended(db, greedy) == 30, 10, "all jobs ran")
    finally:
        dispatcher.stop(5)
    assert order.index(small) < 4


def test_stopping_waits_for_jobs_that_end_and_gives_back_those_that_do_not(
    sqlite_database: Database, tmp_path: Path
) -> None:
    db = sqlite_database
    workspace = new_workspace(db)
    release, entered = threading.Event(), threading.Event()

    def short(_: Probe, context: JobContext) -> JsonValue:
        entered.set()
        release.wait(5)
        return None

    runner = make_runner(db, worker_settings(tmp_path), short=short, stubborn=_stubborn)
    dispatcher = ThreadDispatcher(runner, {"agent": 2}, 0.05)
    for kind in ("stubborn", "short"):
        queue_probe(db, workspace, kind=kind)
    dispatcher.start()
    assert entered.wait(5)
    wait_until(lambda: jobs.count_claimable(db, "agent") == 0, 5, "both were claimed")
    threading.Timer(0.1, release.set).start()
    dispatcher.stop(0.5)
    [stubborn] = jobs.list_jobs(db, workspace, kind="stubborn", limit=1)
    [ended] = jobs.list_jobs(db, workspace, kind="short", limit=1)
    assert (ended.status, stubborn.status) == (JobStatus.SUCCEEDED, JobStatus.QUEUED)
    assert stubborn.max_attempts - stubborn.attempt == ended.max_attempts, "the claim cost it no attempt"


def test_threads_outlive_a_database_that_is_away_for_a_while(sqlite_url: str, tmp_path: Path) -> None:
    db = Database(sqlite_url)
    workspace = new_workspace(db)
    dispatcher = ThreadDispatcher(make_runner(db, worker_settings(tmp_path), probe=_quick), {"agent": 2}, 0.02)
    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as outside:
        outside.execute("ALTER TABLE jobs RENAME TO gone")
    with capture_logs() as lines:
        dispatcher.start()
        wait_until(lambda: len(lines) >= 4, 5, "both threads failed")
    assert {line["event"] for line in lines} == {"claim_failed"}
    with sqlite3.connect(sqlite_url.removeprefix("sqlite:///")) as outside:
        outside.execute("ALTER TABLE gone RENAME TO jobs")
    outside.close()
    try:
        queue_probe(db, workspace)
        wait_until(lambda: _ended(db, workspace) == 1, 15, "the job ran after all")
    finally:
        dispatcher.stop(5)
        db.close()
