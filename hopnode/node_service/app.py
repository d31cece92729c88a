"""Puts the face together: edge, error form, routes, description. Opens and closes nothing of what it is given."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from fastapi.routing import APIRoute

from hopnode.node_service.http import problems
from hopnode.node_service.http.dependencies import Node
from hopnode.node_service.http.request_log import RequestLogMiddleware
from hopnode.node_service.http.request_metrics import NodeMetrics
from hopnode.node_service.mcp.server import serving
from hopnode.node_service.reference.openapi_document import describe
from hopnode.node_service.routes import (
    collections,
    documents,
    evaluations,
    health,
    search_steps,
    searches,
    sources,
    syncs,
    webhooks,
    workspaces,
)
from hopnode.node_service.routes.entrances import dify, mcp, openai
from hopnode.node_service.settings import ServiceSettings
from hopnode.worker.queue.dispatch import Dispatcher
from hopnode.worker.runtime import Runtime

ROUTERS = (
    searches.router,
    searches.keyless,
    search_steps.router,
    evaluations.router,
    collections.router,
    documents.uploads,
    documents.router,
    sources.router,
    syncs.router,
    webhooks.router,
    workspaces.router,
    dify.router,
    mcp.router,
    openai.router,
    health.router,
)


def create_app(runtime: Runtime, service_settings: ServiceSettings, dispatcher: Dispatcher) -> FastAPI:
    """The HTTP face of an open runtime. The caller starts and stops the runtime and the dispatcher.

    Serve it with `hopnode.node_service.http.server.NodeServer`, so that waiting requests and event streams end with the server.
    """
    metrics = NodeMetrics()
    app = build_api(metrics)
    app.state.node = Node(runtime, service_settings, dispatcher, metrics)
    metrics.watch_jobs(runtime.db)
    return app


def build_api(metrics: NodeMetrics | None = None) -> FastAPI:
    """The routes without a node behind them: enough for the OpenAPI document."""
    app = FastAPI(
        title="Hopnode",
        version=version("hopnode"),
        docs_url=None,  # FastAPI's own pages load scripts from other hosts
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        strict_content_type=False,  # a body without a content type is JSON; keys, not cookies, let callers in
        generate_unique_id_function=_operation_id,
        lifespan=_lifespan,
    )
    problems.install(app, _methods_of)
    for router in ROUTERS:
        app.include_router(router)
    app.add_middleware(RequestLogMiddleware, metrics=metrics or NodeMetrics())
    app.openapi = lambda: describe(app)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncGenerator[None]:
    """What is open as long as the server runs, beyond what `create_app` was given."""
    node: Node = app.state.node
    async with serving(node.settings.max_body_bytes) as app.state.mcp:
        yield


def _methods_of(path: str) -> set[str]:
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    return {method for route in routes if route.path_regex.match(path) for method in route.methods or ()}


def _operation_id(route: APIRoute) -> str:
    return route.name
