"""Workspaces and probe jobs for the tests of the queue; the jobs do nothing by themselves."""

import secrets
import time
from collections.abc import Callable

from pydantic import JsonValue

from worker.store import jobs
from worker.store.database import Database
from worker.store.tables import workspaces

CALLBACK: dict[str, JsonValue] = {"url": "https://receiver.example/hook", "metadata": {"run": 7}}


def new_workspace(db: Database) -> str:
    """A fresh workspace; returns its id."""
    workspace_id = secrets.token_hex(8)
    with db.write() as connection:
        connection.execute(
            workspaces.insert().values(id=workspace_id, name=f"w{workspace_id}", created_at=db.now(connection))
        )
    return workspace_id


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
