"""Evaluations over HTTP: start, look, wait, list, cancel. An evaluation is a job; who runs it is not known here."""

from typing import Annotated

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from hopnode.node_service.http.dependencies import (
    LIMIT_DEFAULT,
    CurrentNode,
    Cursor,
    Db,
    Limit,
    NodeRoute,
    OwnEvaluation,
    SearchReader,
    SearchWriter,
    Wait,
)
from hopnode.node_service.http.job_requests import (
    RETRY_AFTER_SECONDS,
    accepted_headers,
    idempotency_header,
    page_of_jobs,
    replay_headers,
    until_final,
)
from hopnode.node_service.http.problems import refusals
from hopnode.node_service.schemas.base import Page
from hopnode.node_service.schemas.evaluations import EvaluationCreate, EvaluationRead, EvaluationSummary
from hopnode.worker.evaluation.job import EvaluationRequest, questions_asked
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs.jobs import Job

router = APIRouter(route_class=NodeRoute, tags=["evaluations"])


@router.post(
    "/v1/evaluations",
    status_code=202,
    summary="Start an evaluation",
    response_description="Queued; `Location` is where to ask.",
    responses={202: {"headers": accepted_headers("The evaluation.")}}
    | refusals("not-found", "conflict", "idempotency-mismatch", "too-large", "queue-full"),
)
def create_evaluation(
    identity: SearchWriter,
    body: EvaluationCreate,
    node: CurrentNode,
    response: Response,
    idempotency_key: Annotated[str | None, idempotency_header("evaluation")] = None,
) -> EvaluationRead:
    """Queues the questions of an evaluation: they are searched one after the other, and the results held against the gold."""
    order = EvaluationRequest.model_validate(body.job_request())
    started = node.jobs.start_evaluation(identity.workspace.id, order, idempotency_key=idempotency_key)
    job = started.job
    response.headers.update(replay_headers(started))
    response.headers["Location"] = EvaluationRead.address(job)
    response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return _read(node.runtime.db, job)


@router.get("/v1/evaluations", summary="List evaluations", responses=refusals("invalid-request"))
def list_evaluations(
    identity: SearchReader, db: Db, limit: Limit = LIMIT_DEFAULT, cursor: Cursor = None
) -> Page[EvaluationSummary]:
    """The evaluations of the workspace without their reports, newest first."""
    shown, next_cursor = page_of_jobs(db, identity.workspace.id, "evaluation", limit, cursor)
    asked = questions_asked(db, [job.id for job in shown])
    return Page[EvaluationSummary](
        items=[EvaluationSummary.of(job, asked.get(job.id, 0)) for job in shown],
        next_cursor=next_cursor,
    )


@router.get("/v1/evaluations/{evaluation_id}", summary="Get an evaluation", responses=refusals("not-found"))
async def get_evaluation(
    _: SearchReader, job: OwnEvaluation, node: CurrentNode, request: Request, response: Response, wait: Wait = 0
) -> EvaluationRead:
    """How far an evaluation is, and its report once it succeeded; `?wait=n` answers when it ends, after n seconds at most."""
    if wait > 0:
        job = await until_final(node, job.workspace_id, job.id, wait, request)
    if not job.status.final:
        response.headers["Retry-After"] = str(RETRY_AFTER_SECONDS)
    return await run_in_threadpool(_read, node.runtime.db, job)


@router.post(
    "/v1/evaluations/{evaluation_id}/cancel",
    summary="Cancel an evaluation",
    responses=refusals("not-found", "conflict"),
)
def cancel_evaluation(identity: SearchWriter, job: OwnEvaluation, node: CurrentNode) -> EvaluationRead:
    """Ends an evaluation that is queued or running, also within a question; there is no report of a part of the questions."""
    return _read(node.runtime.db, node.jobs.cancel(identity.workspace.id, job.id, "evaluation"))


def _read(db: Database, job: Job) -> EvaluationRead:
    return EvaluationRead.of(job, questions_asked(db, [job.id]).get(job.id, 0))
