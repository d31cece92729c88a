"""What a job and its steps look like when they are read from the job table; knows no statement and changes nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from pydantic import JsonValue

JsonObject = Mapping[str, JsonValue]


class JobStatus(StrEnum):
    """The life of a job: `queued` and `running` may alternate; the other three are final."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether nothing can change this status any more."""
        return self not in (JobStatus.QUEUED, JobStatus.RUNNING)


OPEN_STATUSES = (str(JobStatus.QUEUED), str(JobStatus.RUNNING))
"""What the column `status` holds of a job that has not ended."""


@dataclass(frozen=True)
class Job:
    """One row of the queue of record, as it was when it was read; times are seconds since the epoch.

    `attempt` counts claims, so it is 0 before the first one, and no two claims have the same. `lease_token` is the fencing
    token of the worker that holds the job until `lease_until`. `priority`: smaller numbers run first. `last_step` is the
    newest step's number. `origin` joins the job with the request that ordered it, see `tracing.origin`.
    """

    id: str
    workspace_id: str
    kind: str
    role: str
    status: JobStatus
    priority: int
    attempt: int
    max_attempts: int
    request: JsonObject
    result: JsonValue
    error: JsonObject | None
    callback: JsonObject | None
    lease_token: str | None
    lease_until: float | None
    next_at: float
    deadline_at: float | None
    last_step: int
    created_at: float
    started_at: float | None
    ended_at: float | None
    origin: JsonObject | None


@dataclass(frozen=True)
class JobFilter:
    """Which jobs a list shows: of any of `statuses` (none named: all), created in a span of seconds since the epoch."""

    statuses: tuple[JobStatus, ...] = ()
    created_from: float | None = None
    created_before: float | None = None


@dataclass(frozen=True)
class Step:
    """One recorded step of a job; `seq` counts from 1 over all attempts of the job, `attempt` is the one that wrote it."""

    job_id: str
    seq: int
    attempt: int
    kind: str
    data: JsonObject
    created_at: float


_JOB_FIELDS = tuple(field.name for field in fields(Job))


def to_job(row: sa.RowMapping) -> Job:
    """The record of a row that holds all columns of the job table."""
    values: dict[str, Any] = {name: row[name] for name in _JOB_FIELDS}
    values["status"] = JobStatus(row["status"])
    return Job(**values)


def json_or_null(value: JsonValue | JsonObject) -> Any:
    """None as SQL NULL; SQLAlchemy would store the JSON text `null` instead."""
    return sa.null() if value is None else value
