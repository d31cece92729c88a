"""What the routes of jobs share: an idempotency key's meaning, waiting for the end, the headers of what was accepted.

Knows jobs as rows of the queue, and no kind of them.
"""

import hashlib
import json
from typing import Any

from fastapi import Request
from pydantic import JsonValue

from hopnode.node_service.http.dependencies import Node
from hopnode.node_service.http.waiting import wait_until
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.jobs import Idempotency, Job

RETRY_AFTER_SECONDS = 1


def accepted_headers(where: str) -> dict[str, Any]:
    """The headers of a 202, for the OpenAPI document; `where` says what the location is."""
    return {
        "Location": {"description": where, "schema": {"type": "string"}},
        "Retry-After": {"description": "Seconds until it makes sense to ask.", "schema": {"type": "integer"}},
    }


def idempotency_of(key: str | None, request: dict[str, JsonValue]) -> Idempotency | None:
    """The key with a hash of what the request means, so that a client may order and space its JSON as it likes."""
    if not key:
        return None
    return Idempotency(key, hashlib.sha256(json.dumps(request, sort_keys=True).encode()).hexdigest())


async def until_final(node: Node, job: Job, seconds: float, request: Request) -> Job:
    """The job when it ends, or as it is after `seconds`, when the caller leaves or when the server stops."""
    return await wait_until(
        lambda: jobs.get_job(node.runtime.db, job.workspace_id, job.id),
        lambda seen: seen.status.final,
        seconds=seconds,
        stopping=node.stopping,
        gone=request.is_disconnected,
    )
