"""Searches over HTTP: ask, wait, list, look, cancel. A search is a job; who runs it is not known here."""

import hashlib
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response
from pydantic import Field, ValidationError
from starlette.concurrency import run_in_threadpool

from hopnode.node_service.http.dependencies import (
    LIMIT_DEFAULT,
    CurrentNode,
    Cursor,
    Db,
    Limit,
    Node,
    NodeRoute,
    OwnSearch,
    SearchReader,
    SearchWriter,
    Wait,
    ZonedTime,
)
from hopnode.node_service.http.job_requests import (
    REPLAYED,
    REPLAYED_HEADER,
    RETRY_AFTER_SECONDS,
    accepted_headers,
    idempotency_header,
    page_of_jobs,
    preferred_wait,
    replay_headers,
    until_final,
)
from hopnode.node_service.http.problems import (
    InvalidFields,
    Problem,
    field_errors,
    problem_of,
    refusals,
    request_id_of,
)
from hopnode.node_service.jobs import Callback, PartOfBatch, SearchOrder, Started
from hopnode.node_service.schemas.base import Outgoing, Page
from hopnode.node_service.schemas.searches import (
    SearchBatch,
    SearchCreate,
    SearchEnd,
    SearchRead,
    SearchStarted,
    SearchSummary,
)
from hopnode.node_service.schemas.webhooks import CallbackCreate
from hopnode.worker.errors import NodeError, NotFound
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.jobs import Job, JobFilter, JobStatus
from hopnode.worker.store.secrets.vault import HiddenFields

router = APIRouter(route_class=NodeRoute, tags=["searches"])
keyless = APIRouter(tags=["searches"])

JOINED = "Hopnode-Joined"
_SHOWN_TO_SECONDS = 1.2e-6  # a microsecond, and what a number of 64 bits cannot hold of it
_HEADERS = accepted_headers("The search.") | {
    JOINED: {"description": "`true` when the search was there before this request.", "schema": {"type": "string"}}
}
_ACCEPTED: dict[int | str, dict[str, Any]] = {
    201: {
        "model": SearchStarted,
        "description": "Done within the preferred wait.",
        "headers": {
            "Location": _HEADERS["Location"],
            JOINED: _HEADERS[JOINED],
            "Preference-Applied": {"schema": {"type": "string"}},
            REPLAYED: REPLAYED_HEADER,
        },
    },
    202: {"headers": _HEADERS},
}


@router.post(
    "/v1/searches",
    status_code=202,
    response_model=SearchStarted,
    summary="Start a search",
    response_description="Queued, or running already; `Location` is where to ask.",
    responses=_ACCEPTED | refusals("not-found", "idempotency-mismatch", "too-large", "queue-full"),
)
async def create_search(
    identity: SearchWriter,
    body: SearchCreate,
    node: CurrentNode,
    request: Request,
    prefer: Annotated[str | None, Header(description="`wait=n`: wait up to n seconds for the end.")] = None,
    idempotency_key: Annotated[str | None, idempotency_header("search")] = None,
) -> Response:
    """Queues a search and answers at once with where to ask for it, or waits a little when `Prefer: wait=n` asks so."""
    order = SearchOrder.model_validate(body.job_request())
    started = await run_in_threadpool(
        node.jobs.start_search,
        identity.workspace.id,
        order,
        idempotency_key=idempotency_key,
        callback=_callback(node, body.callback) if body.callback else None,
        join=body.join,
    )
    job = started.job
    found = replay_headers(started) if idempotency_key or started.is_new else {JOINED: "true"}
    headers = {"Location": SearchRead.address(job)} | found
    cancel_url = await run_in_threadpool(_cancel_url, node, job)
    if (seconds := preferred_wait(prefer)) is not None:
        seconds = min(seconds, node.settings.max_wait_seconds)
        job = await until_final(node, job.workspace_id, job.id, seconds, request)
        headers["Preference-Applied"] = f"wait={seconds:g}"
        if job.status.final:
            return _answer(job, 201, headers, cancel_url)
    return _answer(job, 202, headers, cancel_url)


class SearchOutcome(Outgoing):
    """What became of one search of a batch: a search, or a problem."""

    status: int = Field(description="202, or the status of the problem.", examples=[202])
    joined: bool = Field(description="Whether the search was there before.")
    search: SearchRead | None = None
    problem: Problem | None = None


class SearchOutcomes(Outgoing):
    """The outcomes of a batch, in its order."""

    outcomes: list[SearchOutcome]


@router.post(
    "/v1/searches:batch",
    summary="Start several searches",
    responses=refusals("idempotency-mismatch", "too-large"),
)
def create_searches(
    identity: SearchWriter,
    body: SearchBatch,
    node: CurrentNode,
    request: Request,
    idempotency_key: Annotated[str | None, idempotency_header("searches")] = None,
) -> SearchOutcomes:
    """Queues up to 100 searches in one go. Each stands for itself: one that cannot be carried out is told in its outcome."""
    read: dict[int, SearchCreate] = {}
    refused: dict[int, NodeError] = {}
    for number, one in enumerate(body.bodies()):
        try:
            read[number] = SearchCreate.model_validate(one)
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_input=False)
            refused[number] = InvalidFields(field_errors(wrong, place="body", prefix=f"searches.{number}"))
    started = node.jobs.start_searches(
        identity.workspace.id,
        [_part(node, one) for one in read.values()],
        idempotency=(idempotency_key, body.model_dump(mode="json")) if idempotency_key else None,
    )
    found = refused | dict(zip(read, started, strict=True))
    request_id = request_id_of(request)
    return SearchOutcomes(outcomes=[_outcome(found[number], request_id) for number in sorted(found)])


@router.get("/v1/searches", summary="List searches", responses=refusals("invalid-request"))
def list_searches(
    identity: SearchReader,
    db: Db,
    limit: Limit = LIMIT_DEFAULT,
    cursor: Cursor = None,
    status: Annotated[
        list[JobStatus] | None, Query(max_length=5, description="Only of these; repeat it for several.")
    ] = None,
    created_from: Annotated[ZonedTime | None, Query(description="Only those of this moment and later.")] = None,
    created_before: Annotated[ZonedTime | None, Query(description="Only those before this moment.")] = None,
) -> Page[SearchSummary]:
    """The searches of the workspace without their results, newest first; with the same filters on every page."""
    wanted = JobFilter(tuple(status or ()), _seconds(created_from), _seconds(created_before))
    shown, next_cursor = page_of_jobs(db, identity.workspace.id, "search", limit, cursor, wanted)
    return Page[SearchSummary](items=[SearchSummary.of(job) for job in shown], next_cursor=next_cursor)


@router.get(
    "/v1/searches/{search_id}",
    response_model=SearchRead,
    summary="Get a search",
    responses={
        200: {"headers": {"ETag": {"schema": {"type": "string"}}}},
        304: {"description": "Nothing changed since the answer with this ETag."},
    }
    | refusals("not-found"),
)
async def get_search(
    _: SearchReader,
    job: OwnSearch,
    node: CurrentNode,
    request: Request,
    wait: Wait = 0,
    if_none_match: Annotated[str | None, Header(description="ETags of earlier answers.")] = None,
) -> Response:
    """The state of a search, and its result once it succeeded; `?wait=n` answers when it ends, after n seconds at most."""
    if wait > 0:
        job = await until_final(node, job.workspace_id, job.id, wait, request)
    answer = _answer(job, 200, {"Cache-Control": "private, no-cache"})
    answer.headers["ETag"] = tag = f'"{hashlib.sha256(answer.body).hexdigest()[:32]}"'
    if _matches(tag, if_none_match):
        return Response(status_code=304, headers={"ETag": tag, "Cache-Control": "private, no-cache"})
    return answer


@router.post("/v1/searches/{search_id}/cancel", summary="Cancel a search", responses=refusals("not-found", "conflict"))
def cancel_search(identity: SearchWriter, job: OwnSearch, node: CurrentNode) -> SearchRead:
    """Ends a search that is queued or running; the agent stops at its next step, and nothing it found is kept."""
    return SearchRead.of(node.jobs.cancel(identity.workspace.id, job.id, "search"))


@keyless.post(
    "/v1/searches/{search_id}/cancel/{token}",
    summary="Cancel by cancel_url",
    responses=refusals("not-found", "conflict"),
)
def cancel_by_url(
    search_id: Annotated[str, Path(max_length=64, description="Id of the search.")],
    token: Annotated[str, Path(max_length=128, description="As `cancel_url` has it.")],
    node: CurrentNode,
) -> SearchEnd:
    """Ends a search that is queued or running. The URL itself is the permission, for this search and nothing else."""
    allowed = node.runtime.vault.keyring.stamped(token, _cancelling(search_id))
    if not allowed or (job := jobs.find_job(node.runtime.db, search_id)) is None:
        raise NotFound("There is no search that this URL cancels.")
    return SearchEnd.of(node.jobs.cancel(job.workspace_id, job.id, "search"))


@router.post(
    "/v1/searches/{search_id}/callback",
    response_model=SearchRead,
    summary="Be told when a search ends",
    responses={202: {"model": SearchRead, "description": "It has not ended: the URL is called when it does."}}
    | refusals("not-found", "too-large"),
)
def call_back(identity: SearchWriter, job: OwnSearch, body: CallbackCreate, node: CurrentNode) -> Response:
    """The search with its result if it has ended. Else the URL is called when it does, in place of an earlier callback."""
    job = node.jobs.call_back(identity.workspace.id, job.id, _callback(node, body))
    return _answer(job, 200 if job.status.final else 202, {})


def _seconds(moment: datetime | None) -> float | None:
    """Stored times are finer than the microseconds that answers show: half of one back, and what was shown finds itself."""
    return moment.timestamp() - _SHOWN_TO_SECONDS / 2 if moment is not None else None


def _callback(node: Node, body: CallbackCreate) -> Callback:
    return Callback(body.model_dump(mode="json", exclude={"headers"}), HiddenFields(node.runtime.vault, body.headers))


def _cancel_url(node: Node, job: Job) -> str | None:
    token = node.runtime.vault.capability(*_cancelling(job.id))
    return None if token is None else f"{SearchRead.address(job)}/cancel/{token}"


def _cancelling(search_id: str) -> tuple[str, str]:
    return "cancel", search_id


def _part(node: Node, one: SearchCreate) -> PartOfBatch:
    callback = _callback(node, one.callback) if one.callback else None
    return PartOfBatch(SearchOrder.model_validate(one.job_request()), callback, one.join)


def _outcome(found: Started | NodeError, request_id: str) -> SearchOutcome:
    if isinstance(found, NodeError):
        return SearchOutcome(status=found.status, joined=False, problem=problem_of(request_id, found))
    return SearchOutcome(status=202, joined=not found.is_new, search=SearchRead.of(found.job))


def _answer(job: Job, status: int, headers: dict[str, str], cancel_url: str | None = None) -> Response:
    """The search; with the status of a start, also what only the one who started it is told."""
    read = SearchRead.of(job)
    started = status == 201 or "Location" in headers
    body = (SearchStarted(**dict(read), cancel_url=cancel_url) if started else read).model_dump_json()
    if not job.status.final:
        headers = headers | {"Retry-After": str(RETRY_AFTER_SECONDS)}
    return Response(body, status, headers, "application/json")


def _matches(tag: str, if_none_match: str | None) -> bool:
    """RFC 9110 section 13.1.2: weak comparison with any of the tags in the list, or `*`."""
    given = [part.strip().removeprefix("W/") for part in (if_none_match or "").split(",")]
    return tag in given or given == ["*"]
