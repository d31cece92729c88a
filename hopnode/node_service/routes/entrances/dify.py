"""Dify's External Knowledge API over the node's searches: an answer within the five seconds that Dify waits.

Dify gives up after 5 s, asks the same up to three times more, and shows no failure inside a workflow. So each attempt joins the
search of the one before. The last brings the best that is known. Knows Dify's habits; what a search is, it does not know.
"""

import json
import time
from dataclasses import dataclass
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import JsonValue, ValidationError
from starlette.concurrency import run_in_threadpool

from hopnode.node_service.http import auth
from hopnode.node_service.http.auth import Identity
from hopnode.node_service.http.dependencies import Node, node_of
from hopnode.node_service.jobs import SearchOrder
from hopnode.node_service.schemas.dify import RetrievalError, RetrievalRead, RetrievalRequest, record_of
from hopnode.worker.errors import Forbidden, InvalidRequest, NodeError, NotFound, TooManyRequests, Unauthorized
from hopnode.worker.logs import get_logger
from hopnode.worker.store.collections import get_collection
from hopnode.worker.store.jobs.jobs import Job, JobStatus

ANSWER_SECONDS = 3.5
"""What an answer may take of Dify's 5 s; the rest is for the network and for proxies."""
JOIN_SECONDS = 20.0
"""An attempt joins a search that succeeded so lately: it ended between two attempts of one caller."""
LAST_ATTEMPT_SECONDS = 6.0
"""A search that is older when an attempt begins is asked for the third time: Dify pauses 0.5 s, 1 s and 2 s."""
DEADLINE_SECONDS = 30.0
"""No attempt waits for a search longer than this."""
HEADER, KEY, KNOWLEDGE, REQUEST, SEARCH, BUSY = 1001, 1002, 2001, 3001, 3002, 3003
"""Codes of errors: the first three are Dify's convention, the others are ours."""

router = APIRouter(tags=["dify"])
_log = get_logger(__name__)
_REQUEST = "#/components/schemas/RetrievalRequest"
SPELLINGS = ("/v1/dify/retrieval/", "/v1/dify//retrieval", "/v1/dify/retrieval/retrieval")
"""Dify adds `/retrieval` to whatever its user typed."""


@dataclass(frozen=True)
class Refused(Exception):
    """No records, and why: in Dify's form, with a status that makes Dify try again only where that may help."""

    status: int
    code: int
    message: str


def _error(text: str) -> dict[str, Any]:
    return {"model": RetrievalError, "description": text}


@router.post(
    "/v1/dify/retrieval",
    summary="Dify: retrieve",
    response_model=RetrievalRead,
    responses={
        400: _error("The request cannot be understood. Dify sends an empty one to try the key."),
        403: _error("There is no key, the key is wrong, or it may not search. Dify takes a 401 for success."),
        404: _error("There is no such knowledge (collection)."),
        413: _error("The body is too large."),
        424: _error("The search failed; asking again does not help."),
        503: _error("Not ready yet. Asking the same again joins the search under way."),
    },
    openapi_extra={
        "security": [{"key": ["search:read", "search:write"]}],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/RetrievalRequest"}}},
        },
    },
)
async def retrieve(request: Request) -> JSONResponse:
    """Dify's External Knowledge API. Enter `https://your-node/v1/dify` as its endpoint."""
    node = node_of(request)
    try:
        found = await _retrieve(node, request)
    except Refused as refused:
        node.metrics.retrieved(f"error-{refused.code}")
        _log.warning("dify_refused", code=refused.code, status=refused.status, message=refused.message)
        body = RetrievalError(error_code=refused.code, error_msg=refused.message)
        headers = {"Retry-After": "1"} if refused.status == 503 else None
        return JSONResponse(body.model_dump(), refused.status, headers)
    node.metrics.retrieved("partial" if any("partial" in one.metadata for one in found.records) else "found")
    return JSONResponse(found.model_dump(mode="json"))


for _spelling in SPELLINGS:
    router.add_api_route(_spelling, retrieve, methods=["POST"], include_in_schema=False)


async def _retrieve(node: Node, request: Request) -> RetrievalRead:
    """The key before the body: Dify tries a key with an empty body, and believes anything but a 403."""
    identity = await _admitted(node, request)
    asked = _parsed(await _body(request, node.settings.max_body_bytes))
    deadline = time.monotonic() + ANSWER_SECONDS
    try:
        job, notes = await (_by_agent if asked.way == "agent" else _fast)(node, identity, asked, deadline)
        return await run_in_threadpool(_read, node, job, asked, notes)
    except NotFound as error:
        raise Refused(404, KNOWLEDGE, str(error)) from error
    except InvalidRequest as error:
        raise Refused(400, REQUEST, str(error)) from error
    except NodeError as error:
        raise Refused(503, BUSY, f"The node cannot search now: {error}") from error


async def _admitted(node: Node, request: Request) -> Identity:
    header = request.headers.get("authorization")
    if not header or not header.lower().startswith("bearer "):
        raise Refused(403, HEADER, "Send the header `Authorization: Bearer hn_…`: enter a key of the node as API key.")
    try:
        identity = await run_in_threadpool(auth.identify, node.runtime.db, header)
        for scope in ("search:read", "search:write"):
            auth.require(identity, scope)
        node.limits.admit(identity.key.id, identity.workspace.id)
    except TooManyRequests as error:
        raise Refused(503, BUSY, str(error)) from error
    except (Unauthorized, Forbidden) as error:
        raise Refused(403, KEY, str(error)) from error
    except NodeError as error:
        raise Refused(503, BUSY, f"The node cannot check the key now: {error}") from error
    return identity


async def _body(request: Request, limit: int) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > limit:
            raise Refused(413, REQUEST, f"The body is larger than {limit:,} bytes.")
    return bytes(body)


def _parsed(body: bytes) -> RetrievalRequest:
    try:
        asked = RetrievalRequest.model_validate(json.loads(body))
        _ = asked.filter
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise Refused(400, REQUEST, f"The field {place or 'body'} is wrong: {first['msg']}.") from error
    except (ValueError, RecursionError) as error:
        told = "The body is no JSON." if isinstance(error, json.JSONDecodeError) else str(error)
        raise Refused(400, REQUEST, told) from error
    if asked.way not in ("fast", "agent"):
        raise Refused(400, REQUEST, "Behind the colon of the knowledge ID stands `fast` or `agent`.")
    if not asked.collections:
        raise Refused(404, KNOWLEDGE, "The knowledge ID names no collection.")
    return asked


def _order(asked: RetrievalRequest, mode: Literal["one_shot", "agent"]) -> SearchOrder:
    return SearchOrder(
        query=asked.question,
        collections=asked.collections,
        mode=mode,
        top_k=asked.top_k,
        filter=asked.filter,
        min_score=min(max(asked.threshold, 0.0), 1.0),
        deadline_seconds=DEADLINE_SECONDS,
        metadata={"asked_by": "dify"},
    )


async def _fast(
    node: Node, identity: Identity, asked: RetrievalRequest, deadline: float
) -> tuple[Job, dict[str, JsonValue]]:
    job = await _joined(node, identity, _order(asked, "one_shot"))
    return await _ended(node, job, deadline), {}


async def _by_agent(
    node: Node, identity: Identity, asked: RetrievalRequest, deadline: float
) -> tuple[Job, dict[str, JsonValue]]:
    """The agent's search when it ends in time; at the last attempt what one query finds, which says that it is partial."""
    job = await _joined(node, identity, _order(asked, "agent"))
    if time.time() - job.created_at < LAST_ATTEMPT_SECONDS or job.status.final:
        return await _ended(node, job, deadline), {}
    meanwhile = await _joined(node, identity, _order(asked, "one_shot"))
    try:
        return await _ended(node, job, deadline), {}
    except Refused as late:
        if late.status != 503:
            raise
    return await _ended(node, meanwhile, deadline), {"partial": True}


async def _joined(node: Node, identity: Identity, order: SearchOrder) -> Job:
    started = await run_in_threadpool(
        node.jobs.join_search, identity.workspace.id, order, ended_within_seconds=JOIN_SECONDS
    )
    return started.job


async def _ended(node: Node, job: Job, deadline: float) -> Job:
    seconds = max(0.0, deadline - time.monotonic())
    job = await node.jobs.wait_for_end(job.workspace_id, job.id, seconds=seconds)
    if not job.status.final:
        raise Refused(503, BUSY, "The search goes on; asking the same again joins it.")
    if job.status is not JobStatus.SUCCEEDED:
        told = (job.error or {}).get("message", f"It is {job.status}.")
        raise Refused(424, SEARCH, f"The search {job.id} brought nothing. {told}")
    return job


def _read(node: Node, job: Job, asked: RetrievalRequest, notes: dict[str, JsonValue]) -> RetrievalRead:
    """The passages that are still there, best score first: a search that was joined may have ended a while ago."""
    result: Any = job.result
    collections = [get_collection(node.runtime.db, job.workspace_id, name) for name in asked.collections]
    corpus = node.runtime.corpora.open(job.workspace_id)
    there = {chunk.id for chunk in corpus.chunks(collections, [one["chunk_id"] for one in result["passages"]])}
    about: dict[str, JsonValue] = {**notes, "search_id": job.id, "degraded": list(result["degraded"])}
    records = [record_of(one, about) for one in result["passages"] if one["chunk_id"] in there]
    records.sort(key=lambda record: -record.score)
    return RetrievalRead(records=records[: asked.top_k])
