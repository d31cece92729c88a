"""The agent against a real vLLM server that holds a model of random weights to the tools' schemas: every call is valid."""

import json
from typing import Any

import pytest
from support.harness.agent import FILMS, nothing_to_check
from support.harness.space import MemorySpace
from support.vllm.vllm_server import VllmServer

from hopnode.worker.harness.agent import SearchAgent
from hopnode.worker.harness.budget import Limits
from hopnode.worker.harness.context import ContextView
from hopnode.worker.harness.outcome import AgentOutcome
from hopnode.worker.harness.policies.model import ModelPolicy
from hopnode.worker.harness.profiles.generic import GenericProfile
from hopnode.worker.harness.trajectory import Recorder
from hopnode.worker.inference.chat import HttpChat
from hopnode.worker.inference.messages import ChatRequest, ToolSpec

pytestmark = pytest.mark.vllm


class Required(GenericProfile):
    """Must call a tool in every turn but the last, with short arguments: a random model would never end a long text."""

    def request(self, view: ContextView, draw: int = 0) -> ChatRequest:
        request = super().request(view, draw)
        forced: Any = {} if view.closing else {"tool_choice": "required"}
        tools = tuple(ToolSpec(tool.name, "", _short(tool.parameters)) for tool in request.tools[:3])
        return ChatRequest(**{**vars(request), "tools": tools, "max_tokens": 400, "extra": {**request.extra, **forced}})


def _short(schema: Any) -> dict[str, Any]:
    ((name, described),) = schema["properties"].items()
    return {**schema, "properties": {name: {"type": described["type"], "maxLength": 8}}}


def run(server: VllmServer, profile: GenericProfile, turns: int) -> tuple[AgentOutcome, Recorder]:
    recorder = Recorder()
    agent = SearchAgent(
        ModelPolicy(HttpChat(server.url, "context-1", timeout_seconds=120), profile),
        MemorySpace(FILMS),
        limits=Limits(turns=turns, strikes=9, seconds=240),
        recorder=recorder,
        check=nothing_to_check,
    )
    return agent.run("Where was the director of Moonrise born?"), recorder


def test_loops_of_valid_calls_run_to_their_limit_and_end_with_a_ranking_or_nothing(llama: VllmServer) -> None:
    calls: list[Any] = []
    for seed in (11, 12, 13, 14):
        outcome, recorder = run(llama, Required(seed=seed), 4)
        assert outcome.stop_reason in ("turn-limit", "no-final-list")
        called: list[Any] = [call for step in recorder.steps if step.kind == "action" for call in step.data["calls"]]  # type: ignore[union-attr]
        told = [step for step in recorder.steps if step.kind == "observation"]
        assert len(told) == len(called)
        calls += called
    assert calls
    assert {call["name"] for call in calls} <= {"search_corpus", "grep_corpus", "read_document"}
    assert all(isinstance(json.loads(call["arguments"]), dict) for call in calls)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_without_being_held_to_anything_a_random_model_still_ends_well(llama: VllmServer, seed: int) -> None:
    outcome, recorder = run(llama, GenericProfile(seed=seed), 3)
    assert outcome.stop_reason in ("no-final-list", "turn-limit", "stalled", "finished", "nothing-found")
    assert recorder.steps[-1].kind == "end"
