"""A long queue costs a claim nothing: what the database reads for it is counted, not timed."""

import json
from typing import Any

import pytest
import sqlalchemy as sa
from support.node.queue import claim, new_workspace, queue_probe

from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.turns import next_in_turn, turn_statement
from hopnode.worker.store.tables import jobs as jobs_table

WORKSPACES, FULL = 4, 10_000


def fill(db: Database, count: int) -> None:
    """Queues jobs of several workspaces in turn, and lets the database take stock of them where it would by itself."""
    owners = [new_workspace(db) for _ in range(WORKSPACES)]
    row = {"kind": "probe", "role": "agent", "status": "queued", "max_attempts": 3, "request": {"query": "x" * 1000}}
    with db.write() as connection:
        now = db.now(connection) - 60
        rows = [
            row | {"id": f"{n}", "workspace_id": owners[n % WORKSPACES], "next_at": now, "created_at": now + n * 1e-6}
            for n in range(count)
        ]
        connection.execute(jobs_table.insert(), rows)
        if db.dialect == "postgresql":  # as its own vacuum does; on SQLite nothing does
            connection.exec_driver_sql("ANALYZE jobs")


def nodes(plan: dict[str, Any]) -> Any:
    yield plan
    for part in plan.get("Plans", []):
        yield from nodes(part)


def read_for_a_turn(db: Database) -> int:
    """Rows that PostgreSQL touched, or instructions of SQLite's machine, to find whose turn it is."""
    with db.read() as connection:
        now = db.now(connection)
        if db.dialect == "postgresql":
            turn = turn_statement(of_kinds=True).params(role="agent", now=now, most=4, kinds=["probe"])
            statement = turn.compile(connection.engine, compile_kwargs={"literal_binds": True})
            told = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}").scalar_one()
            (plan,) = told if isinstance(told, list) else json.loads(told)
            found = list(nodes(plan["Plan"]))
            filtered = sum(one.get("Rows Removed by Filter", 0) * one["Actual Loops"] for one in found)
            return int(filtered + sum(one["Actual Rows"] * one["Actual Loops"] for one in found))
        steps = 0

        def step() -> int:
            nonlocal steps
            steps += 1
            return 0

        raw: Any = connection.connection.dbapi_connection
        raw.set_progress_handler(step, 1)
        try:
            assert next_in_turn(connection, "agent", now, 4, ["probe"]) == "0"
        finally:
            raw.set_progress_handler(None, 0)
        return steps


def test_finding_whose_turn_it_is_reads_as_much_behind_ten_thousand_jobs_as_behind_a_few(database: Database) -> None:
    fill(database, 2 * WORKSPACES)
    short = read_for_a_turn(database)
    with database.write() as connection:
        connection.execute(jobs_table.delete())
    fill(database, FULL)
    assert short > 0
    assert read_for_a_turn(database) <= 1.5 * short


def test_claims_behind_ten_thousand_jobs_still_take_turns(database: Database) -> None:
    fill(database, FULL)
    claimed = [claim(database, limit=2) for _ in range(2 * WORKSPACES)]
    assert [job.id for job in claimed if job] == [str(number) for number in range(2 * WORKSPACES)]
    assert claim(database, limit=2) is None
    assert not jobs.has_claimable(database, "agent", 2)
    assert jobs.has_claimable(database, "agent", 3)


def test_a_job_that_waits_for_its_delay_does_not_hold_up_those_behind_it(database: Database) -> None:
    workspace = new_workspace(database)
    first, second = queue_probe(database, workspace), queue_probe(database, workspace)
    tried = claim(database)
    assert tried is not None and tried.id == first.id
    assert jobs.release(database, tried, error={"code": "x", "message": "Later."}, delay_seconds=600)
    following = claim(database)
    assert following is not None and following.id == second.id
    assert claim(database) is None


@pytest.mark.parametrize("statement", ["running", "queued"])
def test_reaping_and_counting_read_no_job_that_has_ended(sqlite_database: Database, statement: str) -> None:
    query = sa.select(jobs_table.c.id).where(jobs_table.c.status == statement, jobs_table.c.lease_until < 1.0)
    with sqlite_database.read() as connection:
        text = str(query.compile(connection.engine, compile_kwargs={"literal_binds": True}))
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}").all()
    assert "ix_jobs_turn (status=?)" in plan[0][3], plan
