"""The workflow that the page of n8n hands out: whole, and what it asks of a node is what a node takes."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from hopnode.node_service.schemas.searches import SearchCreate

DOCS = Path(__file__).parents[3] / "docs"
WORKFLOW: dict[str, Any] = json.loads((DOCS / "recipes" / "n8n-search.json").read_text(encoding="utf-8"))
NODES: dict[str, dict[str, Any]] = {node["name"]: node for node in WORKFLOW["nodes"]}
REQUESTS = [node["parameters"] for node in NODES.values() if node["type"] == "n8n-nodes-base.httpRequest"]
API: dict[str, Any] = json.loads((DOCS / "openapi.json").read_text(encoding="utf-8"))


def test_every_connection_leads_to_a_node_that_is_there() -> None:
    ends = [end["node"] for outputs in WORKFLOW["connections"].values() for output in outputs["main"] for end in output]
    assert {*ends, *WORKFLOW["connections"]} == set(NODES)
    assert len({node["id"] for node in NODES.values()}) == len(NODES)


def test_no_key_stands_in_the_workflow() -> None:
    assert "hn_" not in json.dumps(WORKFLOW)
    assert all(request["authentication"] == "genericCredentialType" for request in REQUESTS)


def test_the_body_of_the_search_is_one_that_the_node_takes() -> None:
    (expression,) = re.findall(r"JSON\.stringify\((\{.*\})\)", NODES["Start search"]["parameters"]["jsonBody"])
    body = re.sub(r"\$json\.\w+", '"Who founded it?"', expression).replace("'", '"')
    order = SearchCreate.model_validate_json(re.sub(r"(\w+):", r'"\1":', body))
    assert (order.query, order.collection_names, order.mode) == ("Who founded it?", ["handbook"], "agent")


def test_the_routes_that_it_calls_exist() -> None:
    start, wait = (NODES[name]["parameters"] for name in ("Start search", "Wait for it"))
    assert start["method"] == "POST" and start["url"].endswith("/v1/searches")
    assert "post" in API["paths"]["/v1/searches"]
    assert wait["url"].endswith("{{ $json.url }}?wait=50")
    assert "/v1/searches/" in API["components"]["schemas"]["SearchRead"]["properties"]["url"]["examples"][0]


def test_n8n_waits_longer_than_it_asks_the_node_to_wait() -> None:
    asked = [int(seconds) for seconds in re.findall(r"wait=(\d+)", json.dumps(REQUESTS))]
    assert asked and all(request["options"]["timeout"] > max(asked) * 1000 for request in REQUESTS)


@pytest.mark.parametrize("status", ["queued", "running", "succeeded", "failed", "cancelled"])
def test_it_goes_on_when_a_search_has_ended_and_only_then(status: str) -> None:
    (condition,) = NODES["Has it ended?"]["parameters"]["conditions"]["conditions"]
    assert (f"'{status}'" in condition["leftValue"]) == (status not in ("queued", "running"))
