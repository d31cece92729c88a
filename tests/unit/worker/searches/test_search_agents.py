"""Searches through jobs with each profile and effort, against a loopback server that plays the model and the reranker."""

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.harness.harmony import call, concluded, harmony, tokens
from support.node.http_node import HttpNode, Tenant, serve_node
from support.node.queue import worker_settings

from hopnode.worker.errors import ConfigurationError
from hopnode.worker.inference.chat import HttpChat
from hopnode.worker.inference.messages import Completion, Message, Sampled
from hopnode.worker.inference.scripted import Fault, Reply, ScriptedChatServer, ServerRequest, use
from hopnode.worker.runtime import open_runtime
from hopnode.worker.searches.agents import context_1_rules, model_policies, profile_named, reranker_of
from hopnode.worker.searches.job import run_search_job

TEXTS = {
    "tower.md": "The Anselm Tower was built by the Brook Company in 1911. It is made of brick.",
    "company.md": "The Brook Company was founded by Mira Lindqvist, an engineer from the coast.",
    "harbour.md": "The harbour lies north of the old town. Ships call there every week.",
}
SEARCH = ("search_corpus", {"query": "founder of the company that built the Anselm Tower"})
LISTED = re.compile(r"# DOCUMENT ID: (\w+)")


class Model:
    """Searches once and then lists what it was shown; `dead` requests (by number) are answered with an error."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.dead: set[int] = set()
        self.bodies: list[dict[str, Any]] = []
        self.prompts: list[str] = []

    def reply(self, request: ServerRequest) -> Reply:
        body: dict[str, Any] = dict(request.body)
        if request.path == "/score":
            rows = [{"index": at, "score": float("Mira" in text)} for at, text in enumerate(body["text_2"])]
            return Fault(200, json.dumps({"data": rows}).encode())
        with self.lock:
            self.bodies.append(body)
            if len(self.bodies) in self.dead:
                return Fault(400, b'{"error": {"message": "no", "type": "x"}}')
        if request.path == "/v1/completions":
            prompt = harmony().decode(body["prompt"])
            self.prompts.append(prompt)
            ids = LISTED.findall(prompt)
            ids_of = tokens(concluded(*ids) if ids else call(*SEARCH))
            return Sampled(tuple(ids_of), "stop", len(body["prompt"]), len(ids_of))
        told = "".join(str(message.get("content")) for message in body["messages"] if message["role"] == "tool")
        ids = LISTED.findall(told)
        if not ids:
            return use(SEARCH)
        listed = "".join(f"<Document id={one}><Justification>why</Justification></Document>" for one in ids)
        return Completion(Message("assistant", listed), "stop")


@pytest.fixture(scope="module")
def model() -> Model:
    return Model()


@pytest.fixture(scope="module")
def server(model: Model) -> Iterator[ScriptedChatServer]:
    with ScriptedChatServer(model.reply) as served:
        yield served


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, server: ScriptedChatServer) -> Iterator[HttpNode]:
    settings = {
        "chat_url": server.url,
        "chat_model": "context-1",
        "reranker": "score",
        "reranker_url": server.url.removesuffix("/v1"),
        "reranker_model": "qwen",
    }
    with serve_node(tmp_path_factory.mktemp("agents"), settings, handlers={"search": run_search_job}) as served:
        yield served


@pytest.fixture(scope="module")
def asker(node: HttpNode) -> Tenant:
    tenant = node.tenant()
    tenant.collection()
    for key, text in TEXTS.items():
        assert tenant.put(key, text).status_code == 201
    return tenant


def ask(tenant: Tenant, **fields: Any) -> dict[str, Any]:
    body = {"query": "Who founded the company?", "collection": "handbook", "mode": "agent"} | fields
    answer = tenant.http.post("/v1/searches", json=body, headers={"Prefer": "wait=30"})
    assert answer.status_code == 201, answer.text
    return answer.json()


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["generic", "context-1", "context-1-chat"])
def test_each_profile_searches_over_its_own_interface(asker: Tenant, model: Model, profile: str) -> None:
    model.bodies.clear()
    search = ask(asker, profile=profile)
    assert search["status"] == "succeeded", search["error"]
    result = search["result"]
    assert (result["profile"], result["stop_reason"], result["reranker"]) == (profile, "finished", "score:qwen")
    assert result["passages"][0]["key"] == "company.md", "the reranker put it first, and the model kept the order"
    assert {passage["votes"] for passage in result["passages"]} == {1}
    assert [one["rollout"] for one in result["rollouts"]] == [1]
    assert [("prompt" in body, "messages" in body) for body in model.bodies] == [
        (profile == "context-1", profile != "context-1")
    ] * 2


@pytest.mark.slow
@pytest.mark.parametrize(("effort", "count"), [("medium", 2), ("high", 4)])
def test_an_effort_is_that_many_rollouts_from_one_prompt(asker: Tenant, model: Model, effort: str, count: int) -> None:
    model.bodies.clear()
    search = ask(asker, profile="context-1", effort=effort)
    assert search["effort"] == effort
    result = search["result"]
    assert [one["rollout"] for one in result["rollouts"]] == list(range(1, count + 1))
    assert {passage["votes"] for passage in result["passages"]} == {count}
    assert result["passages"][0]["ranks"] == [1] * count
    openings = [body["prompt"] for body in model.bodies if len(body["prompt"]) < 1_500]
    assert openings.count(min(openings, key=len)) == count
    steps = asker.http.get(search["trajectory_url"]).json()["steps"]
    assert {step["data"].get("rollout") for step in steps} == {*range(1, count + 1), None}
    assert steps[-1]["kind"] == "fusion"
    assert [one["rollout"] for one in steps[-1]["data"]["rollouts"]] == list(range(1, count + 1))


@pytest.mark.slow
def test_a_rollout_that_fails_leaves_the_others(asker: Tenant, model: Model) -> None:
    model.bodies.clear()
    model.dead = {1}
    result = ask(asker, profile="context-1", effort="medium")["result"]
    model.dead = set()
    assert result["degraded"] == ["rollout-failed"]
    assert sorted(one["stop_reason"] for one in result["rollouts"]) == ["finished", "model-refused"]
    assert result["passages"]
    assert {passage["votes"] for passage in result["passages"]} == {1}


@pytest.mark.slow
def test_without_a_model_one_rollout_is_run_whatever_the_effort(asker: Tenant, model: Model) -> None:
    model.bodies.clear()
    result = ask(asker, profile="offline", effort="high")["result"]
    assert (len(result["rollouts"]), result["reranker"], model.bodies) == (1, None, [])


# --- without a node ------------------------------------------------------------------------------------------------

CHAT = HttpChat("http://127.0.0.1:1/v1", "m")


@pytest.mark.parametrize("name", ["generic", "context-1", "context-1-chat"])
def test_a_profile_with_a_model_needs_a_chat_endpoint(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"`{name}` needs a chat endpoint"):
        profile_named(name, None)
    assert profile_named(name, CHAT) == name


def test_auto_is_generic_with_an_endpoint_and_offline_without() -> None:
    assert (profile_named("auto", CHAT), profile_named("auto", None)) == ("generic", "offline")
    assert profile_named("offline", CHAT) == "offline"


def test_the_operators_profile_is_that_of_searches_that_leave_it_open_and_of_no_others() -> None:
    assert profile_named("auto", CHAT, "context-1") == "context-1"
    assert profile_named("generic", CHAT, "context-1") == "generic"
    assert profile_named("auto", CHAT, "offline") == "offline"


def test_what_the_sources_disagree_about_is_a_setting(tmp_path: Path) -> None:
    plain = context_1_rules(worker_settings(tmp_path))
    assert plain.say(plain.wording.usage_line, 12_345) == "[Token usage: 12345/16384]"
    assert not plain.soft_message
    changed = worker_settings(tmp_path, usage_limit="window", usage_separators=True, over_budget_message=True)
    rules = context_1_rules(changed)
    assert rules.say(rules.wording.usage_line, 12_345) == "[Token usage: 12,345/32,768]"
    assert rules.soft_message


def test_a_prompt_of_the_operators_own_is_what_the_model_gets(tmp_path: Path) -> None:
    file = tmp_path / "prompt.md"
    file.write_text("Find what answers {query}, please.")
    settings = worker_settings(tmp_path, prompt_file=file, chat_url="http://127.0.0.1:1/v1", chat_model="m")
    policy = model_policies(settings, CHAT, "context-1")()
    assert policy.opening_tokens("it") < model_policies(
        worker_settings(tmp_path, chat_url="http://127.0.0.1:1/v1", chat_model="m"), CHAT, "context-1"
    )().opening_tokens("it")
    assert (settings.root / "cache" / "o200k_base.tiktoken").is_file()


def test_a_prompt_that_cannot_work_stops_the_node_at_its_start(tmp_path: Path) -> None:
    (tmp_path / "prompt.md").write_text("Find it.")
    with pytest.raises(ConfigurationError, match="HOPNODE_PROMPT_FILE"):
        open_runtime(worker_settings(tmp_path, prompt_file=tmp_path / "prompt.md"), embedded=True)


def test_no_reranker_is_the_default(tmp_path: Path) -> None:
    assert reranker_of(worker_settings(tmp_path)) == (None, None)
