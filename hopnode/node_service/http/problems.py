"""Errors as RFC 9457 problem documents, for every way a request can go wrong; knows no route and no resource."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from hopnode.worker.errors import InvalidField, InvalidRequest, NodeError
from hopnode.worker.logs import get_logger

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:hopnode:problem:"
"""Problem types are names, not addresses: nothing has to be reachable for them to stay valid."""

_RETRY_AFTER_SECONDS = 2

TITLES: Mapping[str, str] = {
    "invalid-request": "The request is not valid",
    "unauthorized": "A valid key is needed",
    "forbidden": "The key lacks a scope",
    "not-found": "Not found",
    "method-not-allowed": "The route does not know this method",
    "conflict": "The request contradicts the present state",
    "idempotency-mismatch": "The idempotency key belongs to another request",
    "too-large": "Too large",
    "too-many-requests": "Too many requests",
    "queue-full": "Too many jobs wait",
    "document-rejected": "The document cannot be stored",
    "source-check-failed": "The source cannot be read",
    "cancelled": "Cancelled",
    "model-unavailable": "The model endpoint is not available",
    "model-refused": "The model endpoint refused the request",
    "vectors-unavailable": "The vector index is not available",
    "store-unavailable": "The database is not available",
    "broker-unavailable": "Redis is not available",
    "source-unavailable": "The source is not available",
    "secret-unreadable": "A stored secret cannot be opened",
    "sync-failed": "The sync failed",
    "deadline-exceeded": "The deadline has passed",
    "lease-lost": "The job moved to another worker",
    "interrupted": "The process was told to stop",
    "data-folder-in-use": "The data folder is in use",
    "configuration": "The node is not configured for this",
    "internal-error": "The node failed",
}
"""Every problem code that an answer can carry, with its title; `docs/errors.md` has a line for each."""

_WITHHELD: Mapping[str, str] = {
    "vectors-unavailable": "The vector index cannot be reached now; `GET /readyz` and the node's log say more.",
    "store-unavailable": "The database cannot be used now; `GET /readyz` and the node's log say more.",
    "broker-unavailable": "Redis cannot be reached now; jobs wait in the table and are not lost.",
    "configuration": "A setting of the node is missing or wrong; the node's log names it.",
    "secret-unreadable": "A stored secret of this source cannot be opened. Give it anew in `config`, or ask the node's operator, "
    "whose log says which key is missing.",
    "internal-error": "Something unexpected happened; the node's log has the details under the request id.",
}
"""What callers read instead of messages that name hosts, files or settings of the node."""

_HTTP_CODES = {404: "not-found", 405: "method-not-allowed", 413: "too-large"}

_log = get_logger(__name__)


class SourceCheckFailed(NodeError):
    """The configuration of a source is well formed, and a look at the outside world says that it will not work."""

    code, status = "source-check-failed", 422


class FieldError(BaseModel):
    """One thing that is wrong with the request."""

    model_config = ConfigDict(json_schema_extra={"example": {"in": "body", "field": "query", "code": "missing"}})

    place: str = Field(alias="in", description="`body`, `query`, `path` or `header`.")
    field: str = Field(description="Dotted name of the field, empty for the whole.", examples=["config.start_url"])
    message: str = Field(description="What is wrong, for people.")
    code: str = Field(description="What is wrong, for programs.", examples=["string_too_long"])


class Problem(BaseModel):
    """An error, in the form of RFC 9457 (`application/problem+json`)."""

    type: str = Field(description="Stable URN of the kind of problem.", examples=[TYPE_PREFIX + "not-found"])
    title: str = Field(description="The kind of problem, in words.")
    status: int = Field(description="The HTTP status.", examples=[404])
    code: str = Field(description="The last part of `type`.", examples=["not-found"])
    detail: str = Field(description="What happened here and what to do about it.")
    request_id: str = Field(description="Also in the header `X-Request-Id` and in the node's log.")
    errors: list[FieldError] | None = Field(default=None, description="For `invalid-request`: what is wrong, by field.")
    reason: str | None = Field(
        default=None, description="For `document-rejected`: why, as a stable word.", examples=["encrypted"]
    )


def told(error: NodeError) -> str:
    """What callers may read of an error: its message, unless that may name hosts, files or settings of the node."""
    code = error.code if error.code in TITLES else "internal-error"
    return _WITHHELD.get(code, str(error))


def problem_response(
    request_id: str,
    code: str,
    status: int,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    errors: Sequence[FieldError] | None = None,
) -> JSONResponse:
    """The answer for one problem; `code` is a key of `TITLES`."""
    problem = Problem(
        type=TYPE_PREFIX + code,
        title=TITLES[code],
        status=status,
        code=code,
        detail=detail,
        request_id=request_id,
        errors=list(errors) if errors is not None else None,
    )
    return _answer(problem, headers or {})


def _answer(problem: Problem, headers: Mapping[str, str]) -> JSONResponse:
    body = problem.model_dump(mode="json", by_alias=True, exclude_none=True)
    return JSONResponse(body, problem.status, headers=dict(headers), media_type=MEDIA_TYPE)


def internal_error(request_id: str) -> JSONResponse:
    """The answer to an exception that nobody expected; says nothing about it."""
    return problem_response(request_id, "internal-error", 500, _WITHHELD["internal-error"])


def refusals(*codes: str) -> dict[int | str, dict[str, Any]]:
    """The entry `responses=` of a route that may answer with these problems, for the OpenAPI document."""
    answers: dict[int | str, dict[str, Any]] = {}
    for code in codes:
        status = _status_of(code)
        answer = answers.setdefault(status, {"description": "", "content": {MEDIA_TYPE: {"examples": {}}}})
        answer["description"] = " · ".join(filter(None, (answer["description"], f"`{code}`: {TITLES[code]}.")))
        content = answer["content"][MEDIA_TYPE]
        content["schema"] = {"$ref": "#/components/schemas/Problem"}
        content["examples"][code] = {"value": _example(code, status)}
    return answers


def field_errors(
    errors: Sequence[Mapping[str, Any]], *, place: str | None = None, prefix: str = ""
) -> list[FieldError]:
    """Pydantic's errors in our form, without the offending input, which may be secret; `place` names where they lie."""
    found: list[FieldError] = []
    for error in errors:
        where = [str(part) for part in cast(Sequence[Any], error["loc"])]
        origin = place if place is not None else (where.pop(0) if where else "body")
        if error["type"] == "json_invalid":
            where = []
        field = ".".join(filter(None, (prefix, *where)))
        found.append(FieldError(**{"in": origin}, field=field, message=_message(error), code=str(error["type"])))
    return found


def _message(error: Mapping[str, Any]) -> str:
    if error["type"] == "json_invalid":
        return f"This is not JSON: {error.get('ctx', {}).get('error', error['msg'])}"
    if error["type"] == "model_attributes_type":
        return "Send a JSON object, with the header `Content-Type: application/json`"
    return str(error["msg"]).removeprefix("Value error, ")


class InvalidFields(NodeError):
    """Fields that only a rule beyond the schema could judge; answered as a validation error is."""

    code, status = "invalid-request", 422

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__(_summary(errors))
        self.errors = tuple(errors)


def install(app: FastAPI, methods_of: Callable[[str], Iterable[str]]) -> None:
    """Makes `app` answer every error as a problem; unexpected ones are caught at the edge, outside of FastAPI.

    `methods_of` tells the methods that some route knows for a path: the framework names those of one route only.
    """

    async def http_error(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        return _http_error(request, error, methods_of)

    app.add_exception_handler(NodeError, _node_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, http_error)


def problem_of(request_id: str, error: NodeError) -> Problem:
    """What a caller may read of an error: of faults of the node only what helps, without hosts, files and settings."""
    if isinstance(error, InvalidField):
        wrong = FieldError(**{"in": "body"}, field=error.field, message=str(error), code=error.reason)
        error = InvalidFields([wrong])
    elif type(error) is InvalidRequest:
        error = InvalidFields([FieldError(**{"in": "body"}, field="", message=str(error), code="invalid_value")])
    code = error.code if error.code in TITLES else "internal-error"
    return Problem(
        type=TYPE_PREFIX + code,
        title=TITLES[code],
        status=error.status,
        code=code,
        detail=told(error),
        request_id=request_id,
        errors=list(error.errors) if isinstance(error, InvalidFields) else None,
        reason=_reason(error),
    )


async def _node_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, NodeError)
    headers: dict[str, str] = {}
    if error.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="hopnode"'
    if error.retryable:
        headers["Retry-After"] = str(error.details.get("retry_after", _RETRY_AFTER_SECONDS))
    if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.error("request_refused_by_node", code=error.code, message=str(error))
    return _answer(problem_of(request_id_of(request), error), headers)


async def _validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    errors = field_errors(error.errors())
    return problem_response(request_id_of(request), "invalid-request", 422, _summary(errors), errors=errors)


def _http_error(request: Request, error: HTTPException, methods_of: Callable[[str], Iterable[str]]) -> JSONResponse:
    if (
        error.status_code == HTTPStatus.BAD_REQUEST
    ):  # the framework could not read the body: cut off, not UTF-8, too deep
        return _unreadable(request)
    headers = dict(error.headers or {})
    code = _HTTP_CODES.get(error.status_code, "invalid-request" if error.status_code < 500 else "internal-error")
    detail = f"{error.detail}"
    if error.status_code == HTTPStatus.NOT_FOUND:
        detail = "There is no such route; `GET /openapi.json` lists them all."
    elif error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        detail = f"This route does not know {request.method}; the header Allow lists what it knows."
        headers["Allow"] = ", ".join(sorted(methods_of(request.scope["path"])))
    return problem_response(request_id_of(request), code, error.status_code, detail, headers=headers)


def _unreadable(request: Request) -> JSONResponse:
    wrong = FieldError(**{"in": "body"}, field="", message="This cannot be read as JSON in UTF-8", code="json_invalid")
    return problem_response(request_id_of(request), "invalid-request", 422, _summary([wrong]), errors=[wrong])


def request_id_of(request: Request) -> str:
    """The id that the edge gave this request."""
    return str(request.scope.get("state", {}).get("request_id", ""))


def _reason(error: NodeError) -> str | None:
    reason = error.details.get("reason")
    return reason if isinstance(reason, str) else None


def _summary(errors: Sequence[FieldError]) -> str:
    if not errors:
        return "The request is not valid."
    first = errors[0]
    more = f" ({len(errors) - 1} more in `errors`)" if len(errors) > 1 else ""
    return f"{first.field or first.place}: {first.message}{more}"


def _status_of(code: str) -> int:
    known = {error.code: error.status for error in _families(NodeError)}
    known |= {"method-not-allowed": 405, "invalid-request": 422}
    return known[code]


def _families(root: type[NodeError]) -> list[type[NodeError]]:
    return [found for child in root.__subclasses__() for found in (child, *_families(child))]


def _example(code: str, status: int) -> dict[str, Any]:
    return {
        "type": TYPE_PREFIX + code,
        "title": TITLES[code],
        "status": status,
        "code": code,
        "detail": _WITHHELD.get(code, f"{TITLES[code]}."),
        "request_id": "3f0c2a9be4d14d0c",
    }
