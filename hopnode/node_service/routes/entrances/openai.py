"""OpenAI's chat completions over the node's searches: a collection is a model, and its answer carries citations.

Knows OpenAI's form and what its clients do with a status; what a search is, it does not know.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from hopnode.node_service.http.auth import Identity
from hopnode.node_service.http.dependencies import (
    CollectionsReader,
    CurrentNode,
    Db,
    Node,
    NodeRoute,
    SearchReader,
    SearchWriter,
)
from hopnode.node_service.http.problems import field_errors, told
from hopnode.node_service.jobs import SearchOrder, stays
from hopnode.node_service.schemas.openai import (
    WAYS,
    ChatCompletionRead,
    ChatCompletionRequest,
    ModelList,
    ModelRead,
    OpenAIError,
    OpenAIErrorDetail,
    completion_id,
    piece,
)
from hopnode.node_service.schemas.results import ResultRead
from hopnode.node_service.schemas.searches import SearchCreate
from hopnode.worker.errors import InvalidField, NodeError
from hopnode.worker.logs import get_logger
from hopnode.worker.store import collections
from hopnode.worker.store.jobs.jobs import Job, JobStatus

PING_SECONDS = 15
_log = get_logger(__name__)
_WORTH_ANOTHER_TRY = {"answer-unavailable", "answer-too-late", "answer-outdated"}


class Refused(Exception):
    """No answer, and why. `again` says whether the same request may succeed later: OpenAI's clients then repeat it."""

    def __init__(self, status: int, code: str, message: str, *, param: str | None = None, again: bool = False) -> None:
        super().__init__(message)
        kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
        self.status, self.again = status, again
        self.body = OpenAIError(error=OpenAIErrorDetail(message=message, type=kind, param=param, code=code))

    def response(self) -> JSONResponse:
        """The answer, in OpenAI's form."""
        headers = {"X-Should-Retry": str(self.again).lower()}
        if self.status == HTTPStatus.UNAUTHORIZED:
            headers["WWW-Authenticate"] = 'Bearer realm="hopnode"'
        return JSONResponse(self.body.model_dump(), self.status, headers)


class OpenAIRoute(NodeRoute):
    """A `NodeRoute` whose errors have OpenAI's form. The status of a node's error is the one that other routes give."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler of a `NodeRoute`, with its errors told in the other form."""
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except Refused as refused:
                return refused.response()
            except NodeError as error:
                return _of_node(error).response()
            except RequestValidationError as error:
                first = field_errors(error.errors())[0]
                return Refused(400, "invalid_value", first.message, param=first.field or None).response()
            except HTTPException as error:
                return Refused(error.status_code, "invalid_request", str(error.detail)).response()

        return handled


def _of_node(error: NodeError) -> Refused:
    if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.error("openai_refused_by_node", code=error.code, message=str(error))
    if isinstance(error, InvalidField):
        return Refused(error.status, error.reason, str(error), param=error.field)
    codes = {"unauthorized": "invalid_api_key", "not-found": "model_not_found"}
    return Refused(error.status, codes.get(error.code, error.code), told(error), again=error.retryable)


def _refusals(**more: str) -> dict[int | str, dict[str, Any]]:
    known = {
        "401": "`invalid_api_key`: there is no key, or it is wrong.",
        "403": "`forbidden`: the key lacks a scope.",
        "503": "The database is not available, or the node stops; another try may help.",
    }
    return {status: {"model": OpenAIError, "description": text} for status, text in sorted((known | more).items())}


router = APIRouter(route_class=OpenAIRoute, tags=["openai"])


@router.get("/v1/models", summary="OpenAI: list models", responses=_refusals())
def list_models(identity: CollectionsReader, db: Db) -> ModelList:
    """The collections of the workspace, each as a model that answers from it."""
    known = collections.list_collections(db, identity.workspace.id)
    return ModelList(data=[ModelRead.of(collection) for collection in known])


@router.post(
    "/v1/chat/completions",
    response_model=ChatCompletionRead,
    summary="OpenAI: answer a question",
    responses=_refusals(
        **{
            "400": "The request asks for what a node cannot do; `param` names the field.",
            "404": "`model_not_found`: there is no such collection.",
            "413": "The body is too large.",
            "422": "`no_answer_endpoint`: no model of this node writes answers.",
            "500": "The search failed.",
            "502": "The answer model refused, or wrote nothing.",
        }
    ),
)
async def create_chat_completion(
    _: SearchReader, identity: SearchWriter, body: ChatCompletionRequest, node: CurrentNode, request: Request
) -> Response:
    """Searches for the last message and has an answer written from the passages, with citations as `[n]`.

    With `stream` the answer comes as server-sent events once it is there; until then comments keep the connection open.
    The search ends when the client hangs up.
    """
    order = _order(body)
    job = (await run_in_threadpool(node.jobs.start_search, identity.workspace.id, order, join=False)).job
    if body.stream:
        pieces = _stream(node, identity, job, body)
        return EventSourceResponse(pieces, ping=PING_SECONDS, sep="\n", headers={"Cache-Control": "no-store"})
    answer = _answer(await _ended(node, identity, job, request.is_disconnected), body.model)
    return Response(answer.model_dump_json(), media_type="application/json")


def _order(asked: ChatCompletionRequest) -> SearchOrder:
    """The search that the conversation asks for. Raises Refused."""
    if name := asked.unsupported:
        raise Refused(400, "unsupported_parameter", f"A node cannot do this: {name}. Leave it out.", param=name)
    if asked.way not in WAYS:
        raise Refused(404, "model_not_found", f"Behind the colon stands one of {', '.join(WAYS)}.", param="model")
    if asked.question is None:
        message = "The last message must be the user's, and text alone: it is the question."
        raise Refused(400, "invalid_value", message, param="messages")
    try:
        search = SearchCreate.model_validate(
            {
                "query": asked.question,
                "collections": asked.collections,
                "mode": asked.way,
                "answer": True,
                "metadata": {"asked_by": "openai"},
            }
        )
    except ValidationError as error:
        wrong = field_errors(error.errors(include_input=False), place="body")[0]
        if wrong.field.startswith("query"):
            raise Refused(400, "invalid_value", f"The question: {wrong.message}.", param="messages") from error
        message = f"There is no model {asked.model!r}; `GET /v1/models` lists them."
        raise Refused(404, "model_not_found", message, param="model") from error
    return SearchOrder.model_validate(search.job_request())


async def _ended(node: Node, identity: Identity, job: Job, gone: Callable[[], Awaitable[bool]]) -> Job:
    """The job when it has ended. Raises Refused when the node stops, and ClientDisconnect when the caller is gone; then the
    search is cancelled.
    """
    while not job.status.final:
        if node.stopping.is_set():
            raise Refused(503, "stopping", "The node stops; ask again.", again=True)
        job = await node.jobs.wait_or_cancel(
            identity.workspace.id, job.id, seconds=node.settings.max_wait_seconds, gone=gone
        )
        if not job.status.final and await gone():
            raise ClientDisconnect
    return job


def _answer(job: Job, model: str) -> ChatCompletionRead:
    """The answer of a search that has ended. Raises Refused where it has none."""
    if job.status is not JobStatus.SUCCEEDED:
        reason = job.error or {}
        message = f"The search {job.id} brought nothing. {reason.get('message', f'It is {job.status}.')}"
        raise Refused(500, str(reason.get("code", "internal-error")), message)
    result = ResultRead.model_validate(job.result)
    if result.answer is None:
        code = next((name for name in reversed(result.degraded) if name.startswith("answer-")), "answer-unavailable")
        message = f"No answer could be had ({code}). The passages are in `GET /v1/searches/{job.id}`."
        again = code in _WORTH_ANOTHER_TRY
        raise Refused(503 if again else 502, code, message, again=again)
    return ChatCompletionRead.of(job, result, model)


async def _stream(
    node: Node, identity: Identity, job: Job, asked: ChatCompletionRequest
) -> AsyncIterator[ServerSentEvent]:
    """Opens at once, and goes on when the answer is there. What goes wrong meanwhile is the last event but one."""

    with node.metrics.open_streams.track_inprogress():
        head = completion_id(job), int(job.created_at), asked.model
        yield ServerSentEvent(piece(*head, {"role": "assistant", "content": ""}))
        try:
            answer = _answer(await _ended(node, identity, job, stays), asked.model)  # who hangs up cancels this task
            for text in answer.pieces(with_usage=asked.wants_usage):
                yield ServerSentEvent(text)
        except (Refused, NodeError) as error:
            refused = error if isinstance(error, Refused) else _of_node(error)
            yield ServerSentEvent(json.dumps(refused.body.model_dump()))
        yield ServerSentEvent("[DONE]")
