"""The OpenAPI document of the node: FastAPI's, completed with what it cannot see. Read-only; knows no runtime."""

from typing import Any, cast

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from hopnode.connectors.registry import CONNECTORS
from hopnode.node_service.http.problems import MEDIA_TYPE, Problem, refusals
from hopnode.node_service.schemas.dify import RetrievalRequest
from hopnode.node_service.schemas.documents import DocumentBatch, DocumentText

REFERENCE = "#/components/schemas/{model}"
_SUMMARY = "Self-hosted retrieval node: a search agent in place of one-shot retrieval."
_DESCRIPTION = """A search is a job: `POST /v1/searches` answers with where to ask for it, and the caller polls, waits on the
server (`?wait=`, `Prefer: wait=`) or follows the events. Every route under `/v1` needs a key (`Authorization: Bearer hn_…`)
and sees the key's workspace only. Errors are problem documents (RFC 9457); `docs/errors.md` lists the types."""
_TAGS = [
    {"name": "searches", "description": "Ask, wait, follow, cancel."},
    {
        "name": "evaluations",
        "description": "Ask a collection questions whose answers are known, and measure what comes back.",
    },
    {"name": "collections", "description": "Documents that are searched together."},
    {"name": "documents", "description": "Texts by key."},
    {"name": "sources", "description": "Origins of documents, and their syncs."},
    {"name": "webhooks", "description": "Who is told when a job ends, and what became of every telling."},
    {"name": "dify", "description": "Dify's External Knowledge API."},
    {
        "name": "openai",
        "description": "OpenAI's chat completions: a collection is a model, its answers have citations.",
    },
    {"name": "workspaces and keys", "description": "Tenants and who may do what."},
    {"name": "node", "description": "Is it up, is it ready, what does it do."},
]
_FASTAPI_DESCRIPTION = "Successful Response"
_FASTAPI_ERRORS = ("HTTPValidationError", "ValidationError")


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI 3.1 document of `app`, the same for every node of one version."""
    if app.openapi_schema is None:
        app.openapi_schema = _complete(
            get_openapi(
                title=app.title,
                version=app.version,
                summary=_SUMMARY,
                description=_DESCRIPTION,
                routes=app.routes,
                tags=_TAGS,
                license_info={"name": "MIT", "identifier": "MIT"},
            )
        )
    return app.openapi_schema


def _complete(document: dict[str, Any]) -> dict[str, Any]:
    schemas = cast(dict[str, Any], document.setdefault("components", {}).setdefault("schemas", {}))
    for name in _FASTAPI_ERRORS:
        schemas.pop(name, None)
    for model in (Problem, DocumentText, DocumentBatch, RetrievalRequest):
        schema = model.model_json_schema(by_alias=True, ref_template=REFERENCE)
        schemas.update(schema.pop("$defs", {}))
        schemas[model.__name__] = schema
    for kind in CONNECTORS.values():
        schemas[kind.config.__name__] = kind.config.model_json_schema(ref_template=REFERENCE)
    schemas["JsonValue"] = {"description": "Any JSON value."}
    shared: dict[str, Any] = {}
    for operations in document["paths"].values():
        for operation in operations.values():
            _complete_operation(operation, shared)
    document["components"]["responses"] = dict(sorted(shared.items()))
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    return document


def _complete_operation(operation: dict[str, Any], shared: dict[str, Any]) -> None:
    """Adds the refusals that the gate and the validation can always give, and drops FastAPI's own form of them.

    An answer that is one problem and no other goes to `shared`, and the operation refers to it.
    """
    answers = operation["responses"]
    if "RetrievalError" in str(answers) or "OpenAIError" in str(answers):
        return  # the form of another product, which has errors of its own
    foreign = "HTTPValidationError" in str(answers.get("422", ""))
    codes = [code for answer in answers.values() for code in _examples(answer)]
    if operation.get("security"):
        codes += ["unauthorized", "forbidden", "store-unavailable"]
    if foreign or operation.get("requestBody"):
        codes.append("invalid-request")
    answers |= {str(status): answer for status, answer in refusals(*dict.fromkeys(codes)).items()}
    for answer in answers.values():
        if answer["description"] == _FASTAPI_DESCRIPTION:
            answer["description"] = "Done." if answer.get("content") else "Done; the answer has no body."
    for status, answer in answers.items():
        if len(found := list(_examples(answer))) == 1:
            shared[found[0]] = answer
            answers[status] = {"$ref": f"#/components/responses/{found[0]}"}
    operation["responses"] = dict(sorted(answers.items()))


def _examples(answer: dict[str, Any]) -> dict[str, Any]:
    """The problems of an answer by code, as `refusals` wrote them."""
    return answer.get("content", {}).get(MEDIA_TYPE, {}).get("examples", {})
