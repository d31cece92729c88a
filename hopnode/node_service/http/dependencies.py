"""What routes ask for by type: the node's parts, the caller's key, and the caller's own things by their names in the path.

Nothing here returns a thing of another workspace: whatever is not the caller's is `NotFound`, as if it did not exist.
"""

import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar, cast

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, Path, Query, Request, Response, Security
from fastapi.routing import APIRoute
from pydantic import AwareDatetime, BeforeValidator
from pydantic_core import PydanticCustomError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from hopnode.node_service.http import auth
from hopnode.node_service.http.auth import Identity
from hopnode.node_service.http.paging import PAGE_DEFAULT, PAGE_MOST
from hopnode.node_service.http.rate_limits import RateLimits, headers_of
from hopnode.node_service.http.request_metrics import NodeMetrics
from hopnode.node_service.jobs import JobDesk
from hopnode.node_service.schemas.documents import KEY_CHARACTERS, KEY_PATTERN
from hopnode.node_service.settings import ServiceSettings
from hopnode.worker.corpus.corpus import Corpus
from hopnode.worker.errors import Unauthorized
from hopnode.worker.queue.dispatch import Dispatcher
from hopnode.worker.runtime import Runtime
from hopnode.worker.store import collections
from hopnode.worker.store.collections import Collection
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs.jobs import Job
from hopnode.worker.store.sources import sources
from hopnode.worker.store.sources.sources import Source, Sync

T = TypeVar("T")

SLOW_THREADS = 8


@dataclass
class Node:
    """What one app serves: a runtime, its settings, who wakes the workers, and whether the server is stopping."""

    runtime: Runtime
    settings: ServiceSettings
    dispatcher: Dispatcher
    metrics: NodeMetrics
    stopping: threading.Event = field(default_factory=threading.Event)
    slow_threads: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(SLOW_THREADS))
    limits: RateLimits = field(init=False)

    def __post_init__(self) -> None:
        self.limits = RateLimits(self.settings.key_requests_per_minute, self.settings.workspace_requests_per_minute)

    @property
    def jobs(self) -> JobDesk:
        """Where the jobs of this node are started, waited for and cancelled."""
        return JobDesk(
            self.runtime.db,
            self.dispatcher,
            index_versions=lambda workspace, found: self.runtime.corpora.open(workspace).index_versions(found),
            writes_answers=self.runtime.answers is not None,
            most_waiting=self.settings.workspace_queue_limit or None,
            stopping=self.stopping,
            longest_wait_seconds=self.settings.max_wait_seconds,
        )

    async def apart(self, work: Callable[[], T]) -> T:
        """Runs what may take seconds (parsing, embedding, other hosts) on threads of its own.

        The pool that serves all other routes stays free: uploads alone cannot make a node look dead.
        """
        return await to_thread.run_sync(work, limiter=self.slow_threads)


def node_of(request: Request) -> Node:
    """The node of the app that serves this request."""
    return cast(Node, request.app.state.node)


class NodeRoute(APIRoute):
    """A route that needs a key: the key is checked before anything of the body is read, and the body is counted."""

    def body_limit(self, node: Node) -> int:
        """Most bytes a body may have here."""
        return node.settings.max_body_bytes

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler behind the two checks."""
        handle = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            node = node_of(request)
            header = request.headers.get("authorization")
            identity = await run_in_threadpool(auth.identify, node.runtime.db, header)
            request.state.identity = identity
            request.state.rate_limits = headers_of(node.limits.admit(identity.key.id, identity.workspace.id))
            return await handle(Request(request.scope, _counted(request, self.body_limit(node))))

        return guarded


class UploadRoute(NodeRoute):
    """A `NodeRoute` that takes documents: its bodies may be as large as a document."""

    def body_limit(self, node: Node) -> int:
        """Most bytes a body may have here."""
        return node.runtime.settings.max_document_bytes


def _counted(request: Request, limit: int) -> Receive:
    """Receives the body, and raises a 413 as soon as more than `limit` bytes came or were announced."""
    announced = request.headers.get("content-length", "")
    received = 0

    async def receive() -> Message:
        nonlocal received
        if announced.isdigit() and int(announced) > limit:
            raise _too_large(limit)
        message = await request.receive()
        received += len(message.get("body", b""))
        if received > limit:
            raise _too_large(limit)
        return message

    return receive


def _too_large(limit: int) -> HTTPException:
    """FastAPI lets only its own kind of exception through while it reads a body."""
    return HTTPException(413, f"The body is larger than the {limit:,} bytes that this route takes.")


def _identity(request: Request, _: Annotated[object, Security(auth.bearer)]) -> Identity:
    """The caller that `NodeRoute` let in; a route of another class lets nobody in."""
    identity = getattr(request.state, "identity", None)
    if not isinstance(identity, Identity):
        raise Unauthorized("Send the header `Authorization: Bearer hn_…` with a key of this node.")
    return identity


def _with_scope(scope: str) -> Callable[..., Identity]:
    def allowed(identity: Annotated[Identity, Depends(_identity)]) -> Identity:
        auth.require(identity, scope)
        return identity

    return allowed


def _scoped(scope: str) -> Any:
    """The dependency of a scope; it names the scope in the OpenAPI document too."""
    return Security(_with_scope(scope), scopes=[scope])


CurrentNode = Annotated[Node, Depends(node_of)]
AnyKey = Annotated[Identity, Depends(_identity)]
SearchReader = Annotated[Identity, _scoped("search:read")]
SearchWriter = Annotated[Identity, _scoped("search:write")]
CollectionsReader = Annotated[Identity, _scoped("collections:read")]
CollectionsWriter = Annotated[Identity, _scoped("collections:write")]
SourcesReader = Annotated[Identity, _scoped("sources:read")]
SourcesWriter = Annotated[Identity, _scoped("sources:write")]
WorkspaceAdmin = Annotated[Identity, _scoped("admin")]
NodeAdmin = Annotated[Identity, _scoped("node:admin")]


def _db(node: CurrentNode) -> Database:
    return node.runtime.db


def _own_corpus(node: CurrentNode, identity: AnyKey) -> Corpus:
    return node.runtime.corpora.open(identity.workspace.id)


Db = Annotated[Database, Depends(_db)]
OwnCorpus = Annotated[Corpus, Depends(_own_corpus)]
CollectionName = Annotated[str, Path(description="Name of the collection.", max_length=63, examples=["handbook"])]
DocumentKey = Annotated[
    str,
    Path(
        description="The document's own name in its collection; may hold slashes, percent-encode the rest.",
        min_length=1,
        max_length=KEY_CHARACTERS,
        pattern=KEY_PATTERN,
        examples=["guides/setup.md"],
    ),
]
Limit = Annotated[int, Query(ge=1, le=PAGE_MOST, description="Most items on this page.")]


def _true_or_false(value: object) -> object:
    """The words of JSON and no others: whoever writes `?text=maybe` or `?text=1` learns what to write."""
    if value not in ("true", "false", True, False) or (isinstance(value, int) and not isinstance(value, bool)):
        raise PydanticCustomError("true_or_false", "Write `true` or `false`")
    return value


def _written_time(value: object) -> object:
    """A bare number could be seconds or milliseconds."""
    if isinstance(value, str) and value.lstrip("+-").replace(".", "", 1).isdigit():
        raise PydanticCustomError("time_type", "Write a time as 2027-01-31T00:00:00Z")
    return value


ZonedTime = Annotated[AwareDatetime, BeforeValidator(_written_time)]
TrueOrFalse = Annotated[bool, BeforeValidator(_true_or_false)]
Cursor = Annotated[str | None, Query(max_length=4096, description="`next_cursor` of the page before.")]
Wait = Annotated[
    float,
    Query(ge=0, description="Seconds to wait for the end; the node may answer earlier (HOPNODE_MAX_WAIT_SECONDS)."),
]
LIMIT_DEFAULT = PAGE_DEFAULT


def _own_collection(name: CollectionName, identity: AnyKey, db: Db) -> Collection:
    return collections.get_collection(db, identity.workspace.id, name)


def _own_search(
    search_id: Annotated[str, Path(max_length=64, description="Id of the search.")], identity: AnyKey, node: CurrentNode
) -> Job:
    return node.jobs.get(identity.workspace.id, search_id, "search")


def _own_evaluation(
    evaluation_id: Annotated[str, Path(max_length=64, description="Id of the evaluation.")],
    identity: AnyKey,
    node: CurrentNode,
) -> Job:
    return node.jobs.get(identity.workspace.id, evaluation_id, "evaluation")


def _own_source(
    source_id: Annotated[str, Path(max_length=64, description="Id of the source.")], identity: AnyKey, db: Db
) -> Source:
    return sources.get_source(db, identity.workspace.id, source_id)


def _own_sync(
    sync_id: Annotated[str, Path(max_length=64, description="Id of the sync.")], identity: AnyKey, db: Db
) -> Sync:
    return sources.get_sync(db, identity.workspace.id, sync_id)


OwnSource = Annotated[Source, Depends(_own_source)]
OwnSync = Annotated[Sync, Depends(_own_sync)]
OwnSearch = Annotated[Job, Depends(_own_search)]
OwnEvaluation = Annotated[Job, Depends(_own_evaluation)]
OwnCollection = Annotated[Collection, Depends(_own_collection)]
