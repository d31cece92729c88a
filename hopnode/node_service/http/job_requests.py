"""How HTTP speaks of jobs: idempotency keys, waits that a caller prefers and may break off, headers of what was accepted.

Knows no kind of job; `jobs` starts them and waits for them.
"""

import re
from collections.abc import Sequence
from typing import Any

from fastapi import Header, Request

from hopnode.node_service.http.dependencies import Node
from hopnode.node_service.http.paging import bad_cursor
from hopnode.node_service.jobs import JobKind, Started
from hopnode.worker.errors import InvalidRequest
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.jobs import Job, JobFilter

RETRY_AFTER_SECONDS = 1
REPLAYED = "Idempotency-Replayed"
_PREFERENCE = re.compile(r'\s*wait\s*=\s*"?(\d+(?:\.\d+)?)"?\s*', re.IGNORECASE)


REPLAYED_HEADER: dict[str, Any] = {
    "description": "`true`: the idempotency key was known, and this is the job that it made. Else there is no such header.",
    "schema": {"type": "string", "enum": ["true"]},
}


def idempotency_header(made: str) -> Any:
    """The header `Idempotency-Key`, for the signature of a route; `made` says what the same key gives again."""
    return Header(
        min_length=1, max_length=255, description=f"The same key and body give the same {made} while it is kept."
    )


def accepted_headers(where: str) -> dict[str, Any]:
    """The headers of a 202, for the OpenAPI document; `where` says what the location is."""
    return {
        "Location": {"description": where, "schema": {"type": "string"}},
        "Retry-After": {"description": "Seconds until it makes sense to ask.", "schema": {"type": "integer"}},
        REPLAYED: REPLAYED_HEADER,
    }


def replay_headers(started: Started) -> dict[str, str]:
    """The header that tells a caller with an idempotency key that the job was there before."""
    return {} if started.is_new else {REPLAYED: "true"}


def page_of_jobs(
    db: Database, workspace_id: str, kind: JobKind, limit: int, cursor: str | None, wanted: JobFilter | None = None
) -> tuple[Sequence[Job], str | None]:
    """The newest jobs behind `cursor`, at most `limit`, and the cursor of the next page. Raises InvalidFields for a bad one."""
    try:
        found = jobs.list_jobs(db, workspace_id, kind=kind, limit=limit + 1, before=cursor, wanted=wanted)
    except InvalidRequest as error:
        raise bad_cursor() from error
    shown = found[:limit]
    return shown, jobs.page_cursor(shown[-1]) if len(found) > limit else None


def preferred_wait(header: str | None) -> float | None:
    """The seconds of `Prefer: wait=n` (RFC 7240). Returns None where the header does not ask for it in this form."""
    for preference in (header or "").split(","):
        if found := _PREFERENCE.fullmatch(preference.split(";")[0]):
            return float(found.group(1))
    return None


async def until_final(node: Node, workspace_id: str, job_id: str, seconds: float, request: Request) -> Job:
    """The job when it ends, or as it is after `seconds`, when the caller leaves or when the server stops."""
    return await node.jobs.wait_for_end(workspace_id, job_id, seconds=seconds, gone=request.is_disconnected)
