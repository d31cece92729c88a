"""Odd values in paths, queries, headers and bodies: on no route of the description does the node fail over them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.node.http_node import Tenant, serve_node

from hopnode.worker.store.workspaces import SCOPES

API: dict[str, Any] = json.loads((Path(__file__).parents[3] / "docs" / "openapi.json").read_text(encoding="utf-8"))
OPERATIONS = [
    (method.upper(), path, operation) for path, methods in API["paths"].items() for method, operation in methods.items()
]
pytestmark = pytest.mark.slow
ODD_PARTS = [
    "%00",
    "a%0Ab",
    "%2E%2E",
    "%F0%9F%92%A5",
    "%FF%FE",
    "%ED%A0%80",
    "x" * 2000,
    "-1",
    "'%3B--",
    "%7B0%7D",
    "%20",
]
ODD_WORDS = ["", "-1", "0", "1e309", "nan", "inf", "null", "[]", "\x00", "💥", "9" * 400, "x" * 3000, "' OR 1=1"]
DEEP = "[" * 600 + "]" * 600
ODD_JSON = [
    "null",
    "true",
    "-1",
    "1e400",
    "NaN",
    "9" * 400,
    '""',
    '"\\ud800"',
    '"\\u0000"',
    "[]",
    "{}",
    f'{{"a": {DEEP}}}',
]
ODD_JSON += ['{"a": NaN}', '{"a": 1e400}', '{"\\ud800": 1}', '{"\\u0000": 1}', "[null]", '["x", "x"]', DEEP]


def named(operation: tuple[str, str, dict[str, Any]]) -> str:
    return str(operation[2]["operationId"])


def body_schema(operation: dict[str, Any]) -> dict[str, Any] | None:
    """The schema of the JSON body, which holds an example."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return None
    return API["components"]["schemas"][content["schema"]["$ref"].rsplit("/", 1)[-1]]


@pytest.fixture(scope="module")
def tenant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenant]:
    with serve_node(tmp_path_factory.mktemp("odd"), service={"max_wait_seconds": 0.1}) as node:
        tenant = node.tenant(SCOPES)
        tenant.collection()
        yield tenant


FOREIGN_FORMS = {"/v1/dify/retrieval": "error_code", "/v1/chat/completions": "error"}
"""Entrances that speak the form of another product, with what names an error there."""


def sound(answer: Any) -> None:
    foreign = FOREIGN_FORMS.get(answer.request.url.path)
    waits = foreign == "error_code" and answer.status_code == 503  # nobody runs the search here, and Dify asks again
    assert answer.status_code < 500 or waits, f"{answer.request.url} {answer.request.content[:200]!r}: {answer.text}"
    if answer.status_code >= 400:
        form = "application/json" if foreign else "application/problem+json"
        assert answer.headers["content-type"] == form
        assert foreign is None or foreign in answer.json()


@pytest.mark.parametrize("operation", [each for each in OPERATIONS if "{" in each[1]], ids=named)
def test_odd_paths(tenant: Tenant, operation: tuple[str, str, dict[str, Any]]) -> None:
    method, path, described = operation
    schema = body_schema(described)
    body = {"json": schema["example"]} if schema else {}
    for part in ODD_PARTS:
        sound(tenant.http.request(method, re.sub(r"{\w+}", part, path), **body))
        sound(tenant.http.request(method, path.replace("{name}", "handbook").replace("{key}", part), **body))


@pytest.mark.parametrize("operation", [each for each in OPERATIONS if "parameters" in each[2]], ids=named)
def test_odd_queries_and_headers(tenant: Tenant, operation: tuple[str, str, dict[str, Any]]) -> None:
    method, path, described = operation
    path = path.replace("{name}", "handbook").replace("{key}", "a").replace("{search_id}", "none")
    schema = body_schema(described)
    for parameter in described["parameters"]:
        for word in ODD_WORDS:
            options: dict[str, Any] = {"json": schema["example"]} if schema else {}
            if parameter["in"] == "query":
                options["params"] = {parameter["name"]: word}
            elif parameter["in"] == "header" and word.isprintable() and word.isascii() and word:
                options["headers"] = {parameter["name"]: word}
            else:
                continue
            sound(tenant.http.request(method, path, **options))


@pytest.mark.parametrize("operation", [each for each in OPERATIONS if body_schema(each[2])], ids=named)
def test_odd_bodies(tenant: Tenant, operation: tuple[str, str, dict[str, Any]]) -> None:
    method, path, described = operation
    path = path.replace("{name}", "handbook").replace("{key}", "a")
    schema = body_schema(described)
    assert schema
    headers = {"Content-Type": "application/json"}
    for odd in ODD_JSON:
        sound(tenant.http.request(method, path, content=odd, headers=headers))
        for field in schema["properties"]:
            fields = {name: json.dumps(value) for name, value in schema["example"].items()} | {field: odd}
            content = "{" + ", ".join(f'"{name}": {value}' for name, value in fields.items()) + "}"
            sound(tenant.http.request(method, path, content=content, headers=headers))
