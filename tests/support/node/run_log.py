"""What probe jobs wrote about their lives, and whether that could have happened in a queue that keeps its promises."""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import sqlalchemy as sa

from hopnode.worker.store.database import Database
from hopnode.worker.store.tables import deliveries
from hopnode.worker.store.tables import jobs as jobs_table


@dataclass(frozen=True)
class Run:
    """One attempt as its handler saw it: from its first to its last sign of life."""

    job: str
    token: str
    first: float
    last: float
    ended: bool


@dataclass(frozen=True)
class Audit:
    """The figures of a run under fire; all that must be zero is in `violations`."""

    jobs: int
    statuses: dict[str, int]
    attempts: dict[int, int]
    runs: int
    broken_off: int
    finish_lines: int
    lost: int
    finished_twice: int
    overlapping: int
    wrong_deliveries: int
    deliveries: int

    @property
    def violations(self) -> int:
        """Broken promises of any kind."""
        return self.lost + self.finished_twice + self.overlapping + self.wrong_deliveries


def write_line(path: Path, **fields: object) -> None:
    """Appends one line in one write, so that processes can share a file and a kill leaves whole lines."""
    line = json.dumps(fields) + "\n"
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


def read_runs(path: Path) -> list[Run]:
    """All attempts in the log."""
    events: dict[tuple[str, str], list[dict[str, object]]] = defaultdict(list)
    for line in path.read_text().splitlines():
        event = json.loads(line)
        events[event["job"], event["token"]].append(event)
    return [
        Run(job, token, seen[0]["at"], seen[-1]["at"], seen[-1]["event"] == "end")  # type: ignore[arg-type]
        for (job, token), seen in events.items()
    ]


def count_finished(logs: Iterable[Path]) -> Counter[str]:
    """How often the workers' own logs (JSON lines) say that a job was finished, by job."""
    finished: Counter[str] = Counter()
    for path in logs:
        for line in path.read_text(errors="replace").splitlines():
            if line.startswith("{") and '"job_finished"' in line:
                finished[json.loads(line)["job"]] += 1
    return finished


def audit(db: Database, job_ids: Iterable[str], run_log: Path, logs: Iterable[Path]) -> Audit:
    """Compares the table with what the handlers and the workers wrote."""
    wanted = set(job_ids)
    with db.read() as connection:
        rows = {row.id: row for row in connection.execute(sa.select(jobs_table)) if row.id in wanted}
        owed = Counter(connection.execute(sa.select(deliveries.c.job_id)).scalars())
    runs = read_runs(run_log)
    by_job: dict[str, list[Run]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: run.first):
        by_job[run.job].append(run)
    pairs = [pair for mine in by_job.values() for pair in pairwise(mine)]
    finished = count_finished(logs)
    open_jobs = [job for job in wanted if job not in rows or rows[job].status in ("queued", "running")]
    return Audit(
        jobs=len(wanted),
        statuses=dict(Counter(row.status for row in rows.values())),
        attempts=dict(sorted(Counter(row.attempt for row in rows.values()).items())),
        runs=len(runs),
        broken_off=sum(not run.ended for run in runs),
        finish_lines=finished.total(),
        lost=len(open_jobs),
        finished_twice=sum(count > 1 for count in finished.values()),
        overlapping=sum(earlier.last > later.first for earlier, later in pairs),
        wrong_deliveries=sum(owed[job] != (row.callback is not None) for job, row in rows.items()),
        deliveries=sum(owed[job] for job in wanted),
    )
