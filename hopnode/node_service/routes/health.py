"""The node itself over HTTP, without a key: is it up, is it ready, what does it count, what can it do."""

from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import Field

from hopnode.node_service.http.dependencies import CurrentNode, Node
from hopnode.node_service.reference.openapi_page import PAGE, POLICY
from hopnode.node_service.schemas.base import Outgoing
from hopnode.worker.errors import NodeError
from hopnode.worker.logs import get_logger
from hopnode.worker.queue.dispatch import ping_broker

BROKER_SECONDS = 2.0
router = APIRouter(tags=["node"])
_log = get_logger(__name__)


class Health(Outgoing):
    """A sign of life."""

    status: str = Field(examples=["ok"])
    version: str = Field(examples=["0.1.0"])


class Part(Outgoing):
    """One part that the node needs."""

    ok: bool
    code: str | None = Field(default=None, description="What is wrong, see docs/errors.md.")


class Readiness(Outgoing):
    """Whether the node can do its work now."""

    ready: bool
    parts: dict[str, Part] = Field(description="`database`, `schema`, `vectors`, and `broker` in server mode.")


@router.get("/healthz", summary="Is the process up")
def health() -> Health:
    """Answers while the process serves requests; looks at nothing else."""
    return Health(status="ok", version=version("hopnode"))


@router.get(
    "/readyz",
    summary="Is the node ready",
    responses={503: {"model": Readiness, "description": "Not ready; `parts` says which part is missing."}},
)
def readiness(node: CurrentNode, response: Response) -> Readiness:
    """Asks every part that the node needs. Workers that are away are not a part: their jobs wait and are not lost."""
    parts = {name: _ask(name, check) for name, check in _checks(node).items()}
    ready = all(part.ok for part in parts.values())
    response.status_code = 200 if ready else 503
    return Readiness(ready=ready, parts=parts)


@router.get(
    "/metrics",
    summary="Numbers for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(node: CurrentNode) -> Response:
    """Jobs by kind and status from the database, and the request times of this process. No workspace is named."""
    return Response(generate_latest(node.metrics.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/openapi.json", include_in_schema=False)
def openapi(request: Request) -> JSONResponse:
    """The description of the HTTP interface."""
    document: dict[str, Any] = request.app.openapi()
    return JSONResponse(document)


@router.get("/docs", include_in_schema=False)
def docs() -> HTMLResponse:
    """The description of the HTTP interface, to read."""
    return HTMLResponse(PAGE, headers={"Content-Security-Policy": POLICY, "Referrer-Policy": "no-referrer"})


def _checks(node: Node) -> Mapping[str, Callable[[], object]]:
    runtime = node.runtime
    checks: dict[str, Callable[[], object]] = {
        "database": runtime.db.ping,
        "schema": lambda: _check_schema(node),
        "vectors": runtime.corpora.check_vectors,
    }
    if runtime.settings.redis_url:
        checks["broker"] = lambda: ping_broker(runtime.settings, BROKER_SECONDS)
    return checks


class _SchemaBehind(NodeError):
    """The database has another schema than this version needs."""

    code = "schema-behind"


def _check_schema(node: Node) -> None:
    if not node.runtime.db.at_head():
        raise _SchemaBehind("The database needs `hopnode migrate`.")


def _ask(name: str, check: Callable[[], object]) -> Part:
    try:
        check()
    except NodeError as error:
        _log.warning("part_not_ready", part=name, code=error.code, message=str(error))
        return Part(ok=False, code=error.code)
    return Part(ok=True)
