"""How HTTP speaks of jobs: idempotency keys, waits that a caller prefers and may break off, headers of what was accepted.

Knows no kind of job; `jobs` starts them and waits for them.
"""

import re
from typing import Any

from fastapi import Header, Request

from hopnode.node_service.http.dependencies import Node
from hopnode.worker.store.jobs.jobs import Job

RETRY_AFTER_SECONDS = 1
_PREFERENCE = re.compile(r'\s*wait\s*=\s*"?(\d+(?:\.\d+)?)"?\s*', re.IGNORECASE)


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
    }


def preferred_wait(header: str | None) -> float | None:
    """The seconds of `Prefer: wait=n` (RFC 7240). Returns None where the header does not ask for it in this form."""
    for preference in (header or "").split(","):
        if found := _PREFERENCE.fullmatch(preference.split(";")[0]):
            return float(found.group(1))
    return None


async def until_final(node: Node, workspace_id: str, job_id: str, seconds: float, request: Request) -> Job:
    """The job when it ends, or as it is after `seconds`, when the caller leaves or when the server stops."""
    return await node.jobs.wait_for_end(workspace_id, job_id, seconds=seconds, gone=request.is_disconnected)
