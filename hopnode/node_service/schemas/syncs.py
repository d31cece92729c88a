"""The JSON of syncs: how to run a source, and how far a run of it is."""

from datetime import datetime
from typing import Self

from pydantic import ConfigDict, Field

from hopnode.node_service.schemas.base import Flag, Incoming, Outgoing
from hopnode.node_service.schemas.jobs import ErrorRead, Status
from hopnode.worker.store.jobs.jobs import Job
from hopnode.worker.store.sources.sources import Sync


class SyncCountsRead(Outgoing):
    """How many items a sync met, by what became of them."""

    listed: int
    unchanged: int
    added: int
    changed: int
    deleted: int
    skipped: int
    failed: int
    bytes: int


class SyncCreate(Incoming):
    """How to run a source this time."""

    model_config = ConfigDict(json_schema_extra={"example": {"confirm_deletes": False}})

    confirm_deletes: Flag = Field(
        default=False,
        description="Forget what the source no longer has, however much that is. A sync that would forget more than "
        "30 % and more than 20 items at once forgets nothing and ends with the note `needs-confirmation`.",
    )


class SyncRead(Outgoing):
    """One run of a source."""

    id: str
    source_id: str
    status: Status
    counts: SyncCountsRead
    note: str | None = Field(description="Why it ended otherwise than complete.")
    skipped: dict[str, int] = Field(description="Items left out on purpose, by reason; once it has ended.")
    failed: dict[str, int] = Field(description="Items that failed, by reason; once it has ended.")
    error: ErrorRead | None
    attempt: int
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    url: str = Field(description="Where to ask for its state.", examples=["/v1/syncs/5c0d…"])

    @classmethod
    def of(cls, sync: Sync, job: Job) -> Self:
        """The sync with the state of the job that runs it."""
        row = {name: getattr(job, name) for name in ("status", "error", "attempt", "started_at", "ended_at")}
        result = job.result if isinstance(job.result, dict) else {}
        reasons = {name: result.get(name) or {} for name in ("skipped", "failed")}
        return cls.model_validate(vars(sync) | row | reasons | {"url": f"/v1/syncs/{sync.id}"})
