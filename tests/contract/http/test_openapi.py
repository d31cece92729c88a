"""The committed description of the HTTP interface: what the code says, complete, and on its pages."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hopnode.node_service.app import ROUTERS, build_api
from hopnode.node_service.http.problems import MEDIA_TYPE, TITLES
from hopnode.node_service.openapi_file import document
from hopnode.node_service.routes.entrances.dify import SPELLINGS as DIFY_SPELLINGS
from hopnode.node_service.routes.entrances.mcp import PATH as MCP_PATH
from hopnode.node_service.schemas.documents import BATCH_MOST
from hopnode.node_service.schemas.jobs import QUERY_CHARACTERS
from hopnode.worker.errors import NodeError
from hopnode.worker.store.workspaces import SCOPES

ROOT = Path(__file__).parents[3]
COMMITTED = (ROOT / "docs" / "openapi.json").read_text(encoding="utf-8")
API: dict[str, Any] = json.loads(COMMITTED)
OPERATIONS = {
    operation["operationId"]: (method, path, operation)
    for path, methods in API["paths"].items()
    for method, operation in methods.items()
}
WITHOUT_KEY = {"health", "readiness", "metrics", "cancel_by_url"}
by_operation = pytest.mark.parametrize("name", sorted(OPERATIONS))


def resolve(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in schema:
        return schema
    found: Any = API
    for part in schema["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return found


def families(root: type[NodeError]) -> list[type[NodeError]]:
    """All errors that the interface may meet; those of the command line never leave its process."""
    children = [
        child for child in root.__subclasses__() if not child.__module__.startswith("hopnode.node_service.commands")
    ]
    return [found for child in children for found in (child, *families(child))]


def test_the_committed_description_is_what_the_code_says() -> None:
    assert document() == COMMITTED, "run `make openapi` and commit docs/openapi.json"


def test_every_operation_has_an_id_of_its_own() -> None:
    assert len(OPERATIONS) == sum(len(methods) for methods in API["paths"].values())
    assert all(re.fullmatch(r"[a-z_]+", name) for name in OPERATIONS)


def test_no_route_hides_from_the_description() -> None:
    hidden = {route.path for router in ROUTERS for route in router.routes if not route.include_in_schema}
    assert hidden == {"/openapi.json", "/docs", *DIFY_SPELLINGS, MCP_PATH}, (
        "MCP tells its clients itself what it offers"
    )
    assert [route for route in build_api().routes if hasattr(route, "path")] == [], "a route belongs into a router"


@by_operation
def test_an_operation_says_what_it_does_and_who_may_do_it(name: str) -> None:
    _, path, operation = OPERATIONS[name]
    assert operation["summary"]
    assert operation["description"].rstrip().endswith(".")
    assert [tag for tag in API["tags"] if tag["name"] in operation["tags"]]
    if name in WITHOUT_KEY:
        assert "security" not in operation
        return
    assert path.startswith("/v1/")
    scopes = operation["security"][0]["key"]
    assert len(operation["security"]) == 1
    assert set(scopes) <= set(SCOPES)
    assert scopes or name == "whoami"


@by_operation
def test_an_operation_lists_its_refusals_as_problems(name: str) -> None:
    _, path, operation = OPERATIONS[name]
    answers = {status: resolve(answer) for status, answer in operation["responses"].items()}
    refusals = {status: answer for status, answer in answers.items() if int(status) >= 400}
    if name == "retrieve":
        form = {"schema": {"$ref": "#/components/schemas/RetrievalError"}}
        assert {"400", "403", "404", "413", "424", "503"} == set(refusals), "Dify's form, and Dify's habits"
        assert all(answer["content"] == {"application/json": form} for answer in refusals.values())
        return
    if name in {"list_models", "create_chat_completion"}:
        form = {"schema": {"$ref": "#/components/schemas/OpenAIError"}}
        assert {"401", "403", "503"} <= set(refusals)
        assert "requestBody" not in operation or {"400", "404", "413", "422", "500", "502"} <= set(refusals)
        assert all(answer["content"] == {"application/json": form} for answer in refusals.values())
        return
    if name not in WITHOUT_KEY:
        assert {"401", "403", "503"} <= set(refusals)
        for answer in refusals.values():
            assert list(answer["content"]) == [MEDIA_TYPE]
            assert answer["content"][MEDIA_TYPE]["schema"] == {"$ref": "#/components/schemas/Problem"}
            assert set(answer["content"][MEDIA_TYPE]["examples"]) <= set(TITLES)
    if "{" in path:
        assert "404" in refusals
    if "requestBody" in operation:
        assert {"413", "422"} <= set(refusals)
    assert all(answer["description"].strip() for answer in answers.values())


@by_operation
def test_parameters_and_bodies_are_described_and_bodies_have_an_example(name: str) -> None:
    operation = OPERATIONS[name][2]
    assert all(parameter.get("description") for parameter in operation.get("parameters", []))
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if body:
        schema = resolve(body["schema"])
        example = schema["example"]
        assert set(schema.get("required", [])) <= set(example) <= set(schema["properties"])


def test_every_schema_says_what_it_is() -> None:
    silent = [name for name, schema in API["components"]["schemas"].items() if not schema.get("description")]
    assert silent == []


def test_every_reference_leads_somewhere() -> None:
    for reference in re.findall(r'"\$ref": "([^"]+)"', COMMITTED):
        assert resolve({"$ref": reference})
    assert "HTTPValidationError" not in COMMITTED


def test_every_error_code_has_its_line_on_the_page() -> None:
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    codes = set(TITLES) | {error.code for error in families(NodeError)} | {"worker-lost"}
    assert sorted(code for code in codes if f"| `{code}` |" not in page) == []
    assert {error.code for error in families(NodeError) if error.__module__ == "hopnode.worker.errors"} <= set(TITLES)


def test_every_reason_to_reject_a_document_has_its_line_on_the_page() -> None:
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    sources = "\n".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "hopnode" / "worker" / "corpus").rglob("*.py")
    )
    reasons = set(re.findall(r'DocumentRejected\(\s*"([a-z-]+)"', sources))
    assert reasons
    assert sorted(reason for reason in reasons if f"| `{reason}` |" not in page) == []


def test_the_page_of_the_interface_names_scopes_routes_and_limits() -> None:
    page = (ROOT / "docs" / "http-api.md").read_text(encoding="utf-8")
    assert sorted(scope for scope in SCOPES if f"| `{scope}` |" not in page) == []
    for route in ("/healthz", "/readyz", "/metrics", "/docs", "documents:batch", "/events", "/trajectory", "/cancel"):
        assert route in page
    assert f"{QUERY_CHARACTERS:,} characters" in page
    assert f"up to {BATCH_MOST} documents" in page
