"""The tools that language models call, one row each: what a model is told, which scopes it takes, and what is done.

Every tool works for one caller, in the workspace of its key. Knows no protocol: arguments come in, a text and data go out.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, JsonValue, ValidationError
from starlette.concurrency import run_in_threadpool

from hopnode.node_service.http import auth
from hopnode.node_service.http.auth import Identity
from hopnode.node_service.http.dependencies import Node
from hopnode.node_service.http.problems import field_errors, told
from hopnode.node_service.jobs import SearchOrder
from hopnode.node_service.mcp import texts
from hopnode.node_service.schemas.tools import (
    COLLECTIONS_SHOWN,
    CollectionsFound,
    CollectionShown,
    DocumentNamed,
    DocumentPart,
    NothingAsked,
    SearchAwaited,
    SearchFound,
    SearchNamed,
    SearchOrdered,
)
from hopnode.worker.errors import NodeError
from hopnode.worker.logs import get_logger
from hopnode.worker.store import collections
from hopnode.worker.store.jobs.jobs import Job, JobStatus

DESCRIPTION_CHARACTERS = 500
"""Most of a collection's description that a model is shown."""
_log = get_logger(__name__)


@dataclass(frozen=True)
class Caller:
    """Who calls a tool, on which node, and whether they have hung up meanwhile."""

    node: Node
    identity: Identity
    gone: Callable[[], Awaitable[bool]]

    @property
    def workspace_id(self) -> str:
        """The workspace of the caller's key."""
        return self.identity.workspace.id


@dataclass(frozen=True)
class Told:
    """What a tool gives back: a text for the model and the same as data, or with `failed` only why there is nothing."""

    text: str
    data: BaseModel | None = None
    failed: bool = False


@dataclass(frozen=True)
class Tool:
    """One tool. `changes` says whether it starts anything."""

    name: str
    title: str
    description: str
    scopes: tuple[str, ...]
    takes: type[BaseModel]
    gives: type[BaseModel]
    work: Callable[[Caller, Any], Awaitable[Told]]
    changes: bool = False


async def call(tool: Tool, caller: Caller, arguments: Mapping[str, JsonValue]) -> Told:
    """What comes of a call. Nothing is raised: whatever goes wrong is told to the model, which may try something else."""
    try:
        for scope in tool.scopes:
            auth.require(caller.identity, scope)
        answer = await tool.work(caller, tool.takes.model_validate(arguments))
    except ValidationError as error:
        wrong = field_errors(error.errors(include_input=False), place="body")
        lines = "; ".join(f"{one.field or 'arguments'}: {one.message}" for one in wrong)
        answer = Told(f"The arguments are wrong. {lines}", failed=True)
    except NodeError as error:
        answer = Told(told(error), failed=True)
    except Exception:  # noqa: BLE001 - boundary "tool call": a defect must reach the model as words, not as a broken line
        _log.exception("mcp_tool_crashed", tool=tool.name)
        answer = Told("The node failed; its log has the details.", failed=True)
    caller.node.metrics.called(tool.name, "failed" if answer.failed else "answered")
    return answer


async def _search(caller: Caller, asked: SearchAwaited) -> Told:
    """Starts a search of the caller's own and waits; the search ends when the caller hangs up, so nobody may share it."""
    job = await _started(caller, asked, join=False)
    jobs = caller.node.jobs
    return _result(await jobs.wait_or_cancel(caller.workspace_id, job.id, seconds=asked.wait_seconds, gone=caller.gone))


async def _start_search(caller: Caller, asked: SearchOrdered) -> Told:
    return _result(await _started(caller, asked, join=True))


async def _get_search(caller: Caller, asked: SearchNamed) -> Told:
    jobs = caller.node.jobs
    job = await run_in_threadpool(jobs.get, caller.workspace_id, asked.search_id, "search")
    return _result(await jobs.wait_for_end(caller.workspace_id, job.id, seconds=asked.wait_seconds, gone=caller.gone))


async def _started(caller: Caller, asked: SearchOrdered, *, join: bool) -> Job:
    order = SearchOrder.model_validate(asked.job_request() | {"metadata": {"asked_by": "mcp"}})
    return (await run_in_threadpool(caller.node.jobs.start_search, caller.workspace_id, order, join=join)).job


def _result(job: Job) -> Told:
    found = texts.found_by(job)
    failed = job.status.final and job.status is not JobStatus.SUCCEEDED
    return Told(texts.of_search(found, job), None if failed else found, failed)


async def _read_document(caller: Caller, asked: DocumentNamed) -> Told:
    part = await run_in_threadpool(_part, caller, asked)
    return Told(texts.of_document(part), part)


def _part(caller: Caller, asked: DocumentNamed) -> DocumentPart:
    collection = collections.get_collection(caller.node.runtime.db, caller.workspace_id, asked.collection)
    corpus = caller.node.runtime.corpora.open(caller.workspace_id)
    document = corpus.document(collection, asked.key)
    whole = corpus.document_text(document.id)
    text = whole[asked.start : asked.start + asked.characters]
    start = min(asked.start, len(whole))
    end = start + len(text)
    return DocumentPart(
        key=document.key,
        title=document.title,
        url=document.url,
        metadata=dict(document.metadata),
        text=text,
        start=start,
        end=end,
        characters=len(whole),
        next_start=end if end < len(whole) else None,
    )


async def _list_collections(caller: Caller, _: NothingAsked) -> Told:
    known = await run_in_threadpool(collections.list_collections, caller.node.runtime.db, caller.workspace_id)
    shown = [
        CollectionShown(name=one.name, description=one.description[:DESCRIPTION_CHARACTERS])
        for one in known[:COLLECTIONS_SHOWN]
    ]
    found = CollectionsFound(collections=shown, left_out=len(known) - len(shown))
    return Told(texts.of_collections(found), found)


TOOLS = (
    Tool(
        "search",
        "Search documents",
        "Finds the passages of the documents that answer a question, and waits for them. Returns numbered passages with "
        "title, key and place, to be cited as [1]. Call list_collections first if you do not know the collections. A long "
        "search may not be done in time: then the result has its id, and get_search waits on.",
        ("search:read", "search:write"),
        SearchAwaited,
        SearchFound,
        _search,
        changes=True,
    ),
    Tool(
        "start_search",
        "Start a search",
        "Starts a search and returns its id at once, for several questions side by side or for a long search. Call "
        "get_search with the id for the passages.",
        ("search:read", "search:write"),
        SearchOrdered,
        SearchFound,
        _start_search,
        changes=True,
    ),
    Tool(
        "get_search",
        "Get a search",
        "Waits for a search that was started before, and returns its numbered passages. If it is still not done, call again.",
        ("search:read",),
        SearchNamed,
        SearchFound,
        _get_search,
    ),
    Tool(
        "read_document",
        "Read a document",
        "Returns the text of one document, or of a part of it, by collection and key. Use it to see what stands around a "
        "passage: start a little before the passage's first character.",
        ("collections:read",),
        DocumentNamed,
        DocumentPart,
        _read_document,
    ),
    Tool(
        "list_collections",
        "List collections",
        "Returns the names and descriptions of the collections that can be searched.",
        ("collections:read",),
        NothingAsked,
        CollectionsFound,
        _list_collections,
    ),
)
