"""MaintenanceDuties: one doer at a time, succession, and what the queue's own duties do."""

import threading
from pathlib import Path

from support.node.queue import CALLBACK, claim, new_workspace, queue_probe, wait_until, worker_settings

from hopnode.worker.job_handlers import start_due_syncs
from hopnode.worker.queue.maintenance import MaintenanceDuty, MaintenanceThreads
from hopnode.worker.queue.queue_duties import forget_old_jobs, queue_duties, tend_queue
from hopnode.worker.store.collections import create_collection
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.jobs import JobStatus
from hopnode.worker.store.sources.sources import create_source
from hopnode.worker.store.tables import jobs as jobs_table


class CountingWaker:
    """Notes what the duties ask a dispatcher for."""

    def __init__(self) -> None:
        self.wanted: dict[str, int] = {}
        self.kicks: list[str] = []

    def kick(self, role: str) -> None:
        self.kicks.append(role)

    def top_up(self, role: str, wanted: int) -> None:
        self.wanted[role] = wanted


def test_one_process_does_a_duty_and_another_inherits_it(sqlite_database: Database) -> None:
    done: list[str] = []
    first = MaintenanceThreads(sqlite_database, [MaintenanceDuty("sweep", 0.02, lambda: done.append("first"))])
    second = MaintenanceThreads(sqlite_database, [MaintenanceDuty("sweep", 0.02, lambda: done.append("second"))])
    first.start()
    wait_until(lambda: len(done) > 3, 5, "the first is at work")
    second.start()
    before = len(done)
    wait_until(lambda: len(done) > before + 3, 5, "the work goes on")
    assert set(done) == {"first"}
    first.stop()
    wait_until(lambda: "second" in done, 5, "the second took over")
    second.stop()


def test_a_duty_that_fails_or_hangs_holds_up_no_other(sqlite_database: Database) -> None:
    done: list[str] = []
    hanging = threading.Event()

    def fail() -> None:
        done.append("failing")
        raise OSError("no such luck")

    duties = [
        MaintenanceDuty("failing", 0.02, fail),
        MaintenanceDuty("hanging", 0.02, lambda: bool(hanging.wait(5)) and None),
        MaintenanceDuty("healthy", 0.02, lambda: done.append("healthy")),
    ]
    keeping = MaintenanceThreads(sqlite_database, duties)
    keeping.start()
    try:
        wait_until(lambda: done.count("healthy") > 3 and done.count("failing") > 3, 5, "both go on")
    finally:
        hanging.set()
        keeping.stop()


def test_tending_the_queue_frees_silent_jobs_and_asks_for_as_many_kicks_as_there_are_slots(
    database: Database, tmp_path: Path
) -> None:
    settings = worker_settings(tmp_path, agent_slots=3, sync_slots=2, workspace_job_limit=2)
    waker = CountingWaker()
    tend_queue(database, settings, waker)
    assert waker.wanted == {}
    for _ in range(3):
        workspace = new_workspace(database)
        for _ in range(4):
            queue_probe(database, workspace)
    queue_probe(database, workspace, role="sync")
    tend_queue(database, settings, waker)
    assert waker.wanted == {"agent": 3, "sync": 1}
    silent = claim(database)
    assert silent is not None
    with database.write() as connection:
        connection.execute(jobs_table.update().where(jobs_table.c.id == silent.id).values(lease_until=0))
    tend_queue(database, settings, waker)
    assert jobs.get_job(database, silent.workspace_id, silent.id).status is JobStatus.QUEUED


def test_old_jobs_are_forgotten_in_batches_and_young_ones_kept(sqlite_database: Database) -> None:
    db = sqlite_database
    workspace = new_workspace(db)
    for _ in range(5):
        queue_probe(db, workspace, callback=CALLBACK)
    old = [claim(db) for _ in range(3)]
    for job in old:
        assert job is not None
        assert jobs.finish(db, job, JobStatus.SUCCEEDED)
    forget_old_jobs(db, 3600)
    assert len(jobs.list_jobs(db, workspace, kind="probe", limit=10)) == 5
    forget_old_jobs(db, -1)
    assert len(jobs.list_jobs(db, workspace, kind="probe", limit=10)) == 2


def test_a_source_is_synced_when_its_time_has_come_and_never_twice_at_once(sqlite_database: Database) -> None:
    db = sqlite_database
    workspace = new_workspace(db)
    collection = create_collection(db, workspace, "handbook")
    for name, period in (("often", 3600), ("by-hand", None)):
        create_source(db, workspace, collection.id, kind="website", name=name, config={}, sync_every_seconds=period)
    waker = CountingWaker()
    start_due_syncs(db, waker)
    start_due_syncs(db, waker)
    assert waker.kicks == ["sync"]
    job = claim(db, role="sync")
    assert job is not None
    start_due_syncs(db, waker)
    assert jobs.finish(db, job, JobStatus.SUCCEEDED)
    start_due_syncs(db, waker)
    assert claim(db, role="sync") is None


def test_the_names_of_duties_are_those_of_their_leases(sqlite_database: Database, tmp_path: Path) -> None:
    duties = queue_duties(sqlite_database, worker_settings(tmp_path), CountingWaker())
    assert [duty.name for duty in duties] == ["queue", "retention"]
