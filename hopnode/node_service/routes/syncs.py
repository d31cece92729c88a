"""Syncs over HTTP: start, look, wait, list, cancel. A sync is a job of its source."""

from fastapi import APIRouter, Request, Response
from starlette.concurrency import run_in_threadpool

from hopnode.node_service.http.dependencies import (
    LIMIT_DEFAULT,
    CurrentNode,
    Db,
    Limit,
    NodeRoute,
    OwnSource,
    OwnSync,
    SourcesReader,
    SourcesWriter,
    Wait,
)
from hopnode.node_service.http.job_requests import until_final
from hopnode.node_service.http.problems import refusals
from hopnode.node_service.schemas.base import Page
from hopnode.node_service.schemas.syncs import SyncCreate, SyncRead
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.sources import sources
from hopnode.worker.store.sources.sources import Sync

router = APIRouter(route_class=NodeRoute, tags=["sources"])

AS_USUAL = SyncCreate()


@router.post(
    "/v1/sources/{source_id}/syncs",
    status_code=202,
    summary="Start a sync",
    response_description="Queued; `Location` is where to ask.",
    responses={202: {"headers": {"Location": {"description": "The sync.", "schema": {"type": "string"}}}}}
    | refusals("not-found", "conflict", "too-large"),
)
def create_sync(
    identity: SourcesWriter,
    source: OwnSource,
    node: CurrentNode,
    response: Response,
    body: SyncCreate = AS_USUAL,
) -> SyncRead:
    """Queues a run of the source; one at a time. The body may be left out."""
    sync = node.jobs.start_sync(identity.workspace.id, source.id, confirm_deletes=body.confirm_deletes)
    read = _read(node.runtime.db, sync)
    response.headers["Location"] = read.url
    response.headers["Retry-After"] = "1"
    return read


@router.get("/v1/sources/{source_id}/syncs", summary="List syncs", responses=refusals("not-found"))
def list_syncs(identity: SourcesReader, source: OwnSource, db: Db, limit: Limit = LIMIT_DEFAULT) -> Page[SyncRead]:
    """The newest runs of a source, the newest first."""
    found = sources.list_syncs(db, identity.workspace.id, source.id, limit=limit)
    return Page[SyncRead](items=[_read(db, sync) for sync in found])


@router.get("/v1/syncs/{sync_id}", summary="Get a sync", responses=refusals("not-found"))
async def get_sync(_: SourcesReader, sync: OwnSync, node: CurrentNode, request: Request, wait: Wait = 0) -> SyncRead:
    """The state of a sync and its counts so far; `?wait=n` answers when it ends, after n seconds at most."""
    db = node.runtime.db
    if wait > 0:
        await until_final(node, sync.workspace_id, sync.job_id, wait, request)
    return await run_in_threadpool(lambda: _read(db, sources.get_sync(db, sync.workspace_id, sync.id)))


@router.post("/v1/syncs/{sync_id}/cancel", summary="Cancel a sync", responses=refusals("not-found", "conflict"))
def cancel_sync(identity: SourcesWriter, sync: OwnSync, node: CurrentNode) -> SyncRead:
    """Ends a sync that is queued or running; documents that it has brought stay, and the next one goes on from there."""
    node.jobs.cancel(identity.workspace.id, sync.job_id, "sync")
    return _read(node.runtime.db, sync)


def _read(db: Database, sync: Sync) -> SyncRead:
    return SyncRead.of(sync, jobs.get_job(db, sync.workspace_id, sync.job_id))
