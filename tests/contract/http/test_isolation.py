"""No key reaches another workspace, on any route of the committed description; a route that this test does not know fails it."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from support.data.reports import make_report
from support.node.http_node import HttpNode, Tenant, passage, result, serve_node
from support.node.mcp_client import call as call_tool
from support.node.mcp_client import text_of

from hopnode.node_service.mcp.tools import TOOLS
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.jobs import JobStatus
from hopnode.worker.store.sources import sources

API: dict[str, Any] = json.loads((Path(__file__).parents[3] / "docs" / "openapi.json").read_text(encoding="utf-8"))
MISSING = {"name": "nowhere", "key": "no/thing", "search_id": "0" * 24, "source_id": "1" * 24, "sync_id": "2" * 24}
MISSING |= {"key_id": "00000000", "evaluation_id": "3" * 24, "delivery_id": "4" * 24}
WORD = "osprey"
"""Stands in every name and text of the first workspace, and nowhere else."""

OWN_BY_NATURE = {
    "create_collection": "makes a thing in the caller's workspace and names no other",
    "create_key": "makes a key of the caller's workspace",
    "create_workspace": "needs node:admin, which no key of a workspace made by another holds",
    "list_workspaces": "needs node:admin",
    "make_callback_secret": "makes a secret of the caller's workspace",
    "put_webhook": "makes or changes a webhook of the caller's workspace",
}
BY_ITS_URL = {"cancel_by_url"}
"""Asks for no key: whoever has the URL may, and a test of its own says that no other URL will do."""
HOOK = f"https://{WORD}.example/hook"


@dataclass(frozen=True)
class Operation:
    name: str
    method: str
    path: str
    parameters: tuple[str, ...]
    body: dict[str, Any] | None

    def call(self, client: httpx.Client, resources: dict[str, str], **query: Any) -> httpx.Response:
        values = {name: quote(resources[name], safe="/") for name in self.parameters}
        body = {"json": self.body} if self.body is not None else {}
        return client.request(self.method, self.path.format(**values), params=query, **body)


def operations() -> Iterator[Operation]:
    for path, methods in API["paths"].items():
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {}).get("application/json")
            name = operation["operationId"]
            parameters = tuple(re.findall(r"{(\w+)}", path))
            yield Operation(name, method.upper(), path, parameters, _example(content["schema"]) if content else None)


def _example(schema: dict[str, Any]) -> dict[str, Any]:
    return API["components"]["schemas"][schema["$ref"].rsplit("/", 1)[-1]]["example"]


OPERATIONS = list(operations())
OF_A_THING = [operation for operation in OPERATIONS if operation.parameters and operation.name not in BY_ITS_URL]
OF_NOTHING = [operation for operation in OPERATIONS if not operation.parameters]


@dataclass(frozen=True)
class World:
    """Two workspaces of one node: the first owns one of everything, the second nothing."""

    owner: Tenant
    stranger: Tenant
    things: dict[str, str]

    @property
    def secrets(self) -> list[str]:
        return [WORD, self.owner.workspace.id, *self.things.values()]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with serve_node(tmp_path_factory.mktemp("isolation")) as node:
        owner, stranger = node.tenant(), node.tenant()
        name, key = f"{WORD}-notes", f"{WORD}/nest.md"
        owner.collection(name)
        assert owner.put(key, f"The {WORD} nests by the lake.", collection=name).status_code == 201
        collection_id = node.db_collection(owner, name).id
        source = sources.create_source(
            node.db, owner.workspace.id, collection_id, kind="website", name=f"{WORD} site", config={"start_url": WORD}
        )
        sync = sources.create_sync(node.db, owner.workspace.id, source.id)
        owner.http.put("/v1/webhooks", json={"url": HOOK})
        search = owner.search(f"Where is the {WORD}?", collection=name)
        job = node.claim(search["id"])
        jobs.add_step(node.db, job, "action", {"text": WORD})
        jobs.finish(node.db, job, JobStatus.SUCCEEDED, result=result(passage(text=WORD)))
        for number in range(3):
            owner.search(f"{WORD} {number}", collection=name)
        key_id = owner.http.post("/v1/keys", json={"name": WORD, "scopes": ["search:read"]}).json()["id"]
        things = {
            "name": name,
            "key": key,
            "search_id": search["id"],
            "source_id": source.id,
            "sync_id": sync.id,
            "evaluation_id": evaluated(node, owner, name, key),
            "key_id": key_id,
            "delivery_id": owner.http.get("/v1/deliveries").json()["items"][-1]["id"],
        }
        yield World(owner, stranger, things)


def evaluated(node: HttpNode, owner: Tenant, collection: str, key: str) -> str:
    """The id of an evaluation that was carried out."""
    questions = [{"id": WORD, "question": f"Where is the {WORD}?", "gold": [key]}]
    body = {"name": WORD, "collection": collection, "questions": questions}
    made = owner.http.post("/v1/evaluations", json=body).json()
    job = node.claim(made["id"])
    report = make_report({WORD: {key: 1}}).model_dump(mode="json")
    assert jobs.finish(node.db, job, JobStatus.SUCCEEDED, result={"report": report, "comparison": None, "degraded": []})
    return made["id"]


def told(answer: httpx.Response, resources: dict[str, str]) -> tuple[int, str, dict[str, Any]]:
    """What an answer says, apart from the request's id and from the names that the caller itself gave."""
    text = answer.text
    for name, value in resources.items():
        text = text.replace(value, f"<{name}>")
    body = json.loads(text)
    body.pop("request_id")
    return answer.status_code, answer.headers["content-type"], body


@pytest.mark.parametrize("operation", OF_A_THING, ids=lambda operation: operation.name)
def test_a_thing_of_another_workspace_is_a_404_like_a_thing_that_does_not_exist(world, operation) -> None:
    assert set(operation.parameters) <= set(world.things), "tell this test what the new kind of thing is"
    foreign = operation.call(world.stranger.http, world.things)
    missing = operation.call(world.stranger.http, MISSING)
    assert foreign.status_code == 404
    assert foreign.json()["code"] == "not-found"
    assert told(foreign, world.things) == told(missing, MISSING)


@pytest.mark.parametrize("operation", OF_NOTHING, ids=lambda operation: operation.name)
def test_no_other_route_shows_or_uses_a_thing_of_another_workspace(world: World, operation: Operation) -> None:
    if operation.name in OWN_BY_NATURE:
        answer = operation.call(world.stranger.http, {})
    elif operation.name == "create_search":
        for body in ({"collection": world.things["name"]}, {"collections": [world.things["name"]]}):
            asked = world.stranger.http.post("/v1/searches", json={"query": "q"} | body)
            missing = world.stranger.http.post("/v1/searches", json={"query": "q", "collection": MISSING["name"]})
            assert told(asked, world.things) == told(missing, MISSING)
        return
    elif operation.name == "create_searches":
        names = (world.things["name"], MISSING["name"])
        bodies = [{"query": "q", "collection": name} for name in names]
        outcomes = world.stranger.http.post("/v1/searches:batch", json={"searches": bodies}).json()["outcomes"]
        assert [one["status"] for one in outcomes] == [404, 404]
        seen = [json.dumps(one["problem"]).replace(name, "") for one, name in zip(outcomes, names, strict=True)]
        assert seen[0] == seen[1]
        return
    elif operation.name == "retrieve":
        asked = world.stranger.http.post(
            "/v1/dify/retrieval", json={"query": "q", "knowledge_id": world.things["name"]}
        )
        missing = world.stranger.http.post("/v1/dify/retrieval", json={"query": "q", "knowledge_id": MISSING["name"]})
        assert (asked.status_code, missing.status_code) == (404, 404)
        assert asked.text.replace(world.things["name"], "") == missing.text.replace(MISSING["name"], "")
        return
    elif operation.name == "create_chat_completion":
        asked, missing = (
            world.stranger.http.post("/v1/chat/completions", json=operation.body | {"model": f"hopnode/{name}"})
            for name in (world.things["name"], MISSING["name"])
        )
        assert (asked.status_code, missing.status_code) == (404, 404)
        assert asked.text.replace(world.things["name"], "") == missing.text.replace(MISSING["name"], "")
        return
    elif operation.name == "create_evaluation":
        asked = world.stranger.http.post("/v1/evaluations", json=evaluation(world.things["name"]))
        missing = world.stranger.http.post("/v1/evaluations", json=evaluation(MISSING["name"]))
        assert told(asked, world.things) == told(missing, MISSING)
        return
    elif operation.name == "delete_webhook":
        asked = operation.call(world.stranger.http, {}, url=HOOK)
        missing = operation.call(world.stranger.http, {}, url="https://nowhere.example")
        assert told(asked, world.things) == told(missing, MISSING)
        assert world.owner.http.get("/v1/webhooks").json()["items"]
        return
    else:
        assert operation.method == "GET", f"tell this test what {operation.name} does with things of others"
        answer = operation.call(world.stranger.http, {})
        assert answer.status_code == 200
    for secret in world.secrets:
        assert secret not in answer.text


@pytest.mark.parametrize("tool", [tool.name for tool in TOOLS])
def test_no_tool_shows_or_uses_a_thing_of_another_workspace(world: World, tool: str) -> None:
    def arguments(things: dict[str, str]) -> dict[str, Any]:
        of_tool: dict[str, dict[str, Any]] = {
            "search": {"query": "q", "collections": [things["name"]], "wait_seconds": 0},
            "start_search": {"query": "q", "collections": [things["name"]]},
            "get_search": {"search_id": things["search_id"], "wait_seconds": 0},
            "read_document": {"collection": things["name"], "key": things["key"]},
            "list_collections": {},
        }
        return of_tool[tool]

    url = world.owner.node.url
    foreign = call_tool(url, world.stranger.token, tool, **arguments(world.things))
    missing = call_tool(url, world.stranger.token, tool, **arguments(MISSING))
    told_of_foreign, told_of_missing = text_of(foreign), text_of(missing)
    for name in ("name", "search_id"):
        told_of_foreign = told_of_foreign.replace(world.things[name], name)
        told_of_missing = told_of_missing.replace(MISSING[name], name)
    assert told_of_foreign == told_of_missing
    assert not [secret for secret in world.secrets if secret in told_of_foreign]
    assert foreign.is_error is (tool != "list_collections")
    owned = call_tool(url, world.owner.token, tool, **arguments(world.things))
    assert not owned.is_error, "so the refusals come from the key"


def evaluation(collection: str, **fields: str) -> dict[str, Any]:
    return {"collection": collection, "questions": [{"question": "q", "gold": ["a"]}]} | fields


def test_an_evaluation_of_another_workspace_is_nothing_to_compare_with(world: World) -> None:
    name = world.stranger.collection(f"{world.things['name']}-3")
    answers = [
        (world.stranger.http.post("/v1/evaluations", json=evaluation(name, compare_with=known["evaluation_id"])), known)
        for known in (world.things, MISSING)
    ]
    assert told(*answers[0]) == told(*answers[1])
    assert answers[0][0].status_code == 404
    world.stranger.http.delete(f"/v1/collections/{name}")


def test_a_search_is_cancelled_by_its_own_url_and_no_other(world: World) -> None:
    one, two = (world.owner.search(f"{WORD}?", collection=world.things["name"], join=False) for _ in range(2))
    token = one["cancel_url"].rpartition("/")[2]
    for path in (f"{two['url']}/cancel/{token}", f"{one['url']}/cancel/{token[::-1]}"):
        refused = world.stranger.http.post(path)
        assert refused.status_code == 404
        assert told(refused, {}) == told(world.stranger.http.post(f"/v1/searches/{'0' * 24}/cancel/{token}"), {})
    assert world.stranger.http.post(one["cancel_url"]).json()["status"] == "cancelled"
    assert world.owner.http.get(two["url"]).json()["status"] == "queued"


def test_a_cursor_of_another_workspace_leads_to_nothing_of_it(world: World) -> None:
    cursor = world.owner.http.get("/v1/searches", params={"limit": 1}).json()["next_cursor"]
    assert cursor
    assert world.stranger.http.get("/v1/searches", params={"cursor": cursor}).json()["items"] == []


def test_an_idempotency_key_of_another_workspace_means_nothing(world: World) -> None:
    headers = {"Idempotency-Key": "shared"}
    body = {"query": "q", "collection": world.things["name"]}
    mine = world.owner.http.post("/v1/searches", json=body, headers=headers).json()
    name = f"{world.things['name']}-2"
    world.stranger.collection(name)
    theirs = world.stranger.http.post("/v1/searches", json={"query": "q", "collection": name}, headers=headers)
    assert theirs.status_code == 202
    assert theirs.json()["id"] != mine["id"]
    world.stranger.http.delete(f"/v1/collections/{name}")


def test_a_taken_name_is_free_in_another_workspace(world: World) -> None:
    assert world.stranger.http.post("/v1/collections", json={"name": world.things["name"]}).status_code == 201
    assert world.stranger.http.get(f"/v1/collections/{world.things['name']}/documents").json()["items"] == []
    assert world.stranger.http.delete(f"/v1/collections/{world.things['name']}").status_code == 204


def test_the_owner_reaches_all_of_it(world: World) -> None:
    """So the 404s above come from the key and not from a thing that was never there. Deletes come last, inner ones first."""
    for operation in sorted(OF_A_THING, key=lambda each: (each.method == "DELETE", -len(each.path))):
        answer = operation.call(world.owner.http, world.things)
        assert answer.status_code != 404, f"{operation.name}: {answer.text}"
        assert answer.status_code < 500, f"{operation.name}: {answer.text}"
