"""The steps of a search over HTTP: as a stream of events while it runs, and whole as a trajectory."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Header, Query, Response
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from hopnode.node_service.http.dependencies import CurrentNode, Db, Node, NodeRoute, OwnSearch, SearchReader
from hopnode.node_service.http.problems import FieldError, InvalidFields, refusals
from hopnode.node_service.schemas.searches import SearchEnd, StepRead, TrajectoryRead
from hopnode.node_service.waiting import naps
from hopnode.worker.errors import NotFound, StoreUnavailable
from hopnode.worker.harness.trajectory import FORMAT_VERSION
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.jobs import Job, Step

PING_SECONDS = 15
RECONNECT_MILLISECONDS = 1000
_STEPS_AT_ONCE = 200
router = APIRouter(route_class=NodeRoute, tags=["searches"])

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events: `id` is the step's `seq`, `event` its `kind`, `data` the step as in the "
        "trajectory. The last event is `end`, without an id, and its data are the search's id, status and last step.",
        "content": {
            "text/event-stream": {
                "schema": {
                    "type": "object",
                    "description": "One event, of which the stream has many.",
                    "properties": {name: {"type": "string"} for name in ("id", "event", "data")},
                    "required": ["event", "data"],
                },
                "example": "id: 1\nevent: action\n"
                'data: {"seq": 1, "attempt": 1, "kind": "action", "created_at": "…", "data": {}}\n\n'
                'event: end\ndata: {"search_id": "9b2f…", "status": "succeeded", "last_step": 1}\n\n',
            }
        },
    }
}


@router.get(
    "/v1/searches/{search_id}/events",
    response_class=Response,
    summary="Follow a search",
    responses=_STREAM | refusals("not-found", "invalid-request"),
)
async def follow_search(
    _: SearchReader,
    job: OwnSearch,
    node: CurrentNode,
    after: Annotated[int, Query(ge=0, description="Number of the last step that is known already.")] = 0,
    last_event_id: Annotated[
        str | None, Header(description="Goes before `after`; browsers send it by themselves.")
    ] = None,
) -> EventSourceResponse:
    """Streams the steps of a search, those that are there first and then each as it comes, and ends with the search.

    A connection that breaks off is resumed with the header Last-Event-ID, without a step lost or repeated.
    """
    return EventSourceResponse(
        _events(node, job, _position(after, last_event_id)),
        ping=PING_SECONDS,
        sep="\n",
        headers={"Cache-Control": "no-store"},
    )


@router.get("/v1/searches/{search_id}/trajectory", summary="Get all steps of a search", responses=refusals("not-found"))
def get_trajectory(_: SearchReader, job: OwnSearch, db: Db) -> TrajectoryRead:
    """Every action and observation of a search in order, also those whose chunks the agent pruned later."""
    return TrajectoryRead(
        format_version=FORMAT_VERSION,
        search_id=job.id,
        status=job.status.value,
        complete=job.status.final,
        steps=[StepRead.model_validate(step) for step in _all_steps(db, job)],
    )


def _all_steps(db: Database, job: Job) -> list[Step]:
    steps: list[Step] = []
    while len(page := jobs.list_steps(db, job.id, after=steps[-1].seq if steps else 0, limit=_STEPS_AT_ONCE)):
        steps += page
    return steps


def _position(after: int, last_event_id: str | None) -> int:
    if not last_event_id:
        return after
    if last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) <= 18:
        return int(last_event_id)
    wrong = FieldError(
        **{"in": "header"}, field="last-event-id", message="This is not the number of a step", code="bad_event_id"
    )
    raise InvalidFields([wrong])


async def _events(node: Node, job: Job, last: int) -> AsyncIterator[ServerSentEvent]:
    """Looks at the job row, and at the steps only when it says there are newer ones, until the job is over."""
    db = node.runtime.db
    with node.metrics.open_streams.track_inprogress():
        yield ServerSentEvent(retry=RECONNECT_MILLISECONDS, comment="ok")
        rests = naps()
        while not node.stopping.is_set():
            try:
                job = await run_in_threadpool(jobs.get_job, db, job.workspace_id, job.id)
            except (NotFound, StoreUnavailable):  # forgotten, or out of sight: a client that comes back will be told
                return
            for step in await _newer(db, job, last):
                yield _event(step)
                last, rests = step.seq, naps()
            if job.last_step > last:
                continue
            if job.status.final:
                yield ServerSentEvent(SearchEnd.of(job).model_dump_json(), event="end")
                return
            await anyio.sleep(next(rests))


async def _newer(db: Database, job: Job, last: int) -> list[Step]:
    if job.last_step <= last:
        return []
    return await run_in_threadpool(jobs.list_steps, db, job.id, after=last, limit=_STEPS_AT_ONCE)


def _event(step: Step) -> ServerSentEvent:
    return ServerSentEvent(StepRead.model_validate(step).model_dump_json(), id=str(step.seq), event=step.kind)
