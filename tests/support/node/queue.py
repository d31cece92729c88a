"""Workspaces and probe jobs for the tests of the queue; the jobs do nothing by themselves."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from hopnode.worker.queue.job_context import JobContext
from hopnode.worker.queue.runner import QueueRunner
from hopnode.worker.settings import WorkerSettings
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.workspaces import create_workspace

CALLBACK: dict[str, JsonValue] = {"url": "https://receiver.example/hook", "metadata": {"run": 7}}


Handler = Callable[["Probe", JobContext], JsonValue]


@dataclass(frozen=True)
class Probe:
    """What a runner needs around it, and nothing else of a node."""

    db: Database
    settings: WorkerSettings


def worker_settings(folder: Path, **values: object) -> WorkerSettings:
    """Settings of a test's own, whatever the environment says."""
    defaults: dict[str, object] = {"data_dir": folder, "poll_seconds": 0.1, "lease_seconds": 4, "shutdown_seconds": 2}
    return WorkerSettings(_env_file=None, **(defaults | values))  # type: ignore[arg-type, call-arg]


def make_runner(db: Database, settings: WorkerSettings, **handlers: Handler) -> QueueRunner[Probe]:
    """A runner with handlers by kind of job."""
    return QueueRunner(Probe(db, settings), handlers)


def new_workspace(db: Database) -> str:
    """A fresh workspace; returns its id."""
    return create_workspace(db, f"w{secrets.token_hex(6)}").id


def queue_probe(db: Database, workspace_id: str, *, role: str = "agent", **more: object) -> jobs.Job:
    """Queues one job of kind `probe`."""
    values: dict[str, object] = {"kind": "probe", "request": {}} | more
    job, created = jobs.create_job(db, workspace_id=workspace_id, role=role, **values)  # type: ignore[arg-type]
    assert created
    return job


def claim(db: Database, *, role: str = "agent", lease: float = 60, limit: int = 100) -> jobs.Job | None:
    """The next probe job, claimed."""
    return jobs.claim_next(db, role=role, lease_seconds=lease, workspace_limit=limit)


def wait_until(condition: Callable[[], object], seconds: float, what: str) -> float:
    """Polls until `condition` holds and returns how long that took; fails the test after `seconds`."""
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < seconds, f"not within {seconds} s: {what}"
        time.sleep(0.01)
    return time.monotonic() - start
