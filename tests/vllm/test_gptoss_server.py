"""The agent against a real vLLM server with a gpt-oss model of random weights: true prompts, true parsers, random replies."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from support.harness.agent import FILMS, nothing_to_check
from support.harness.context1 import DATE, QUESTION
from support.harness.harmony import call, harmony, thought, tokens
from support.harness.space import MemorySpace
from support.vllm.vllm_server import VllmServer

from hopnode.worker.errors import JobCancelled, ModelRefused, ModelUnavailable
from hopnode.worker.harness.actions import Action
from hopnode.worker.harness.agent import SearchAgent
from hopnode.worker.harness.budget import Limits
from hopnode.worker.harness.context import Context, ContextView
from hopnode.worker.harness.outcome import AgentOutcome
from hopnode.worker.harness.policies.model import ModelPolicy
from hopnode.worker.harness.profiles.context1 import CONTEXT_1_RULES, Context1Profile, action_of
from hopnode.worker.harness.profiles.context1_chat import Context1ChatProfile
from hopnode.worker.harness.profiles.generic import GenericProfile
from hopnode.worker.harness.profiles.phrasing import shipped
from hopnode.worker.harness.rollouts import run_rollouts
from hopnode.worker.harness.trajectory import Recorder
from hopnode.worker.inference.abort import Abort
from hopnode.worker.inference.chat import HttpChat
from hopnode.worker.inference.chat_wire import request_body
from hopnode.worker.inference.completions import HttpCompletions
from hopnode.worker.inference.endpoint import RetryPolicy
from hopnode.worker.inference.harmony.rendering import STOP_TOKENS
from hopnode.worker.inference.messages import ChatRequest, PromptRequest, Sampled

pytestmark = pytest.mark.vllm

QUICK = RetryPolicy(attempts=2, base_seconds=0.05)
STRUCTURE = {str(token): 14 for token in harmony().encode("<|start|><|end|><|message|><|channel|><|constrain|>")}
SEARCH = thought("Who directed it?") + call("search_corpus", {"query": "Moonrise Oslo"})


def completions(server: VllmServer, **options: Any) -> HttpCompletions:
    settings: dict[str, Any] = {"timeout_seconds": 120, "retries": QUICK} | options
    return HttpCompletions(server.url, "context-1", harmony().encode, STOP_TOKENS, **settings)


def chat(server: VllmServer) -> HttpChat:
    return HttpChat(server.url, "context-1", timeout_seconds=120, retries=QUICK)


SHORT = replace(CONTEXT_1_RULES, reply_tokens=100, reply_tokens_floor=50)
"""A random model rarely ends by itself, and a CPU writes about 50 tokens a second."""


def exact(seed: int | None = 1) -> Context1Profile:
    return Context1Profile(harmony(), DATE, rules=SHORT, seed=seed)


def native(seed: int) -> GenericProfile:
    profile = GenericProfile(seed=seed)
    profile.rules = replace(profile.rules, reply_tokens=100, reply_tokens_floor=50)
    return profile


class Begun:
    """Plays a proper first search, so that something is held, and lets the real model go on from there."""

    def __init__(self, model: Any, action: Action) -> None:
        self.model, self.action = model, action
        self.rules, self.measure = model.rules, model.measure
        self.opening_tokens, self.stop = model.opening_tokens, model.stop

    def next_action(self, view: ContextView) -> Action:
        return self.model.next_action(view) if view.turns else self.action


FIRST = action_of(harmony().read(tokens(SEARCH)), "stop")


def agent(policy: Any, recorder: Recorder, check: Callable[[], None] = nothing_to_check) -> SearchAgent:
    limits = Limits(turns=5, seconds=240)
    return SearchAgent(Begun(policy, FIRST), MemorySpace(FILMS), limits=limits, recorder=recorder, check=check)


def ended_well(outcome: AgentOutcome, recorder: Recorder) -> None:
    """Whatever the model wrote: what was found is handed back, or a list that the model happened to write."""
    assert outcome.stop_reason in ("no-final-list", "turn-limit", "stalled", "finished", "nothing-found")
    if outcome.stop_reason != "nothing-found":
        assert {one.chunk.document_id for one in outcome.selections} <= set(FILMS)
        assert outcome.selections
    assert recorder.steps[-1].kind == "end"


def steps(recorder: Recorder, kind: str) -> list[dict[str, Any]]:
    return [dict(step.data) for step in recorder.steps if step.kind == kind]


def test_token_ids_go_there_and_back(gptoss: VllmServer) -> None:
    prompt = tuple(harmony().opening(DATE, []) + harmony().user("hello"))
    request = PromptRequest(prompt, max_tokens=30, seed=5)
    first, second = (completions(gptoss).complete(request) for _ in range(2))
    assert first.tokens == second.tokens
    assert (first.prompt_tokens, first.completion_tokens) == (len(prompt), len(first.tokens))
    assert first.finish_reason in ("length", "stop")


@pytest.mark.parametrize("stop", STOP_TOKENS)
def test_generation_ends_at_either_stop_token_which_comes_back(gptoss: VllmServer, stop: int) -> None:
    got = Biased(gptoss, {str(stop): 100}).complete(PromptRequest(tuple(harmony().user("hello")), max_tokens=20))
    assert (got.tokens, got.finish_reason) == ((stop,), "stop")


def test_an_agent_in_token_ids_ends_well_and_our_count_is_the_servers(gptoss: VllmServer) -> None:
    recorder = Recorder()
    ended_well(agent(ModelPolicy(completions(gptoss), exact()), recorder).run(QUESTION), recorder)
    asked = [step for step in steps(recorder, "action")[1:] if not step["redraws"]]
    assert asked
    for step in asked:
        assert step["measured"]
        once = 0 if not step["closing"] else len(harmony().user(CONTEXT_1_RULES.wording.closing))
        assert step["prompt_tokens"] == step["context_tokens"] + once


def test_an_agent_over_chat_ends_well_and_is_counted_within_a_few_tokens(
    gptoss: VllmServer,
) -> None:
    recorder = Recorder()
    policy = ModelPolicy(chat(gptoss), Context1ChatProfile(exact(), shipped(), seed=1))
    ended_well(agent(policy, recorder).run(QUESTION), recorder)
    counted = [step for step in steps(recorder, "action")[1:] if not step["redraws"] and not step["closing"]]
    assert counted
    for step in counted:
        assert step["prompt_tokens"] == pytest.approx(step["context_tokens"], abs=12)


def test_an_agent_with_native_calls_ends_well(gptoss: VllmServer) -> None:
    recorder = Recorder()
    ended_well(agent(ModelPolicy(chat(gptoss), native(1)), recorder).run(QUESTION), recorder)


class Biased:
    """The raw interface of the real server with some tokens made likely: replies that are mostly structure."""

    def __init__(self, server: VllmServer, bias: dict[str, int]) -> None:
        self.server, self.bias, self.replies = server, bias, list[tuple[int, ...]]()

    def complete(self, request: PromptRequest, abort: Abort | None = None) -> Sampled:
        body = {
            "model": "context-1",
            "prompt": list(request.prompt),
            "max_tokens": min(request.max_tokens, 60),
            "temperature": 1.0,
            "top_p": 0.9,
            "stop_token_ids": list(STOP_TOKENS),
            "return_token_ids": True,
            "logit_bias": self.bias,
            "seed": request.seed,
        }
        choice = httpx.post(f"{self.server.url}/completions", json=body, timeout=120).json()["choices"][0]
        self.replies.append(tuple(choice["token_ids"]))
        return Sampled(self.replies[-1], choice["finish_reason"], len(request.prompt), len(self.replies[-1]))


def test_replies_that_are_mostly_structure_are_read_and_survived(gptoss: VllmServer) -> None:
    sampler = Biased(gptoss, STRUCTURE | {"200012": 10, "200002": 10})
    for seed in range(12):
        reply = harmony().read(sampler.complete(PromptRequest(tuple(harmony().user("hello")), seed=seed)).tokens)
        assert all(made.name not in ("search_corpus", "prune_chunks", "multi_tool_use") for made in reply.calls)
    assert any(token > 200_000 for reply in sampler.replies for token in reply)
    recorder = Recorder()
    ended_well(agent(ModelPolicy(sampler, exact()), recorder).run(QUESTION), recorder)


def test_a_chat_parser_that_chokes_on_structure_does_not_end_a_run_badly(gptoss: VllmServer) -> None:
    class Spoilt(Context1ChatProfile):
        def request(self, view: ContextView, draw: int = 0) -> ChatRequest:
            request = super().request(view, draw)
            bias: Any = {"logit_bias": STRUCTURE}
            return ChatRequest(**{**vars(request), "max_tokens": 60, "extra": {**request.extra, **bias}})

    recorder = Recorder()
    outcome = agent(ModelPolicy(chat(gptoss), Spoilt(exact(), shipped(), seed=1)), recorder).run(QUESTION)
    assert outcome.stop_reason in ("no-final-list", "turn-limit", "stalled", "finished", "model-unavailable")
    assert outcome.selections


def test_the_server_renders_the_chat_as_we_render_the_exact_form(gptoss: VllmServer) -> None:
    """What is known to differ: `json` without <|constrain|>, the order of a result's header, the start of a reply."""
    profile = exact()
    over_chat = Context1ChatProfile(profile, shipped())
    context = Context(QUESTION, profile.opening_tokens(QUESTION), profile.rules, profile.measure)
    run = SearchAgent(
        Begun(ModelPolicy(completions(gptoss), profile), FIRST),
        MemorySpace(FILMS),
        limits=Limits(turns=1),
        recorder=Recorder(),
        check=nothing_to_check,
    )
    run.context = context
    run.run(QUESTION)
    view = run.context.view()
    first_turn = ContextView(view.question, view.turns[:1], view.held, view.used, 16)
    body = request_body(over_chat.request(first_turn), "context-1") | {"return_token_ids": True, "max_tokens": 1}
    answer = httpx.post(f"{gptoss.url}/chat/completions", json=body, timeout=120).json()
    theirs = harmony().decode(answer["prompt_token_ids"])
    ours = harmony().decode(profile.request(first_turn).prompt)
    ours = ours.replace("<|channel|>commentary <|constrain|>json", "<|channel|>commentary json")
    ours = ours.replace(
        " to=assistant<|channel|>commentary<|message|>", "<|channel|>commentary to=assistant<|message|>"
    )
    assert theirs == f"{ours}<|start|>assistant"


def test_four_rollouts_share_the_servers_cache_and_end_well(gptoss: VllmServer) -> None:
    before = gptoss.metric("vllm:prefix_cache_hits_total")
    recorders = {number: Recorder(rollout=number) for number in (1, 2, 3, 4)}
    model = completions(gptoss)

    def make(number: int, check: Callable[[], None]) -> SearchAgent:
        return agent(ModelPolicy(model, exact(seed=number)), recorders[number], check)

    outcome = run_rollouts(make, 4, QUESTION, nothing_to_check)
    assert len(outcome.rollouts) == 4
    assert outcome.selections
    assert all(len(one.ranks) == 4 for one in outcome.selections)
    assert gptoss.metric("vllm:prefix_cache_hits_total") > before


def test_a_cancel_ends_the_call_and_the_servers_work_within_a_second(gptoss: VllmServer) -> None:
    cancelled = threading.Event()

    def check() -> None:
        if cancelled.is_set():
            raise JobCancelled("cancelled")

    class Long(Context1Profile):
        def request(self, view: ContextView, draw: int = 0) -> PromptRequest:
            return PromptRequest(super().request(view, draw).prompt, max_tokens=20_000)

    def cancel() -> None:
        ends = time.monotonic() + 60
        while gptoss.metric("vllm:num_requests_running") == 0 and time.monotonic() < ends:
            time.sleep(0.05)
        cancelled.set()
        stopped.append(time.monotonic())

    stopped: list[float] = []
    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(JobCancelled):
        agent(ModelPolicy(completions(gptoss), Long(harmony(), DATE, rules=SHORT)), Recorder(), check).run(QUESTION)
    canceller.join()
    assert time.monotonic() - stopped[0] < 1
    ends = time.monotonic() + 10
    while gptoss.metric("vllm:num_requests_running") > 0:
        assert time.monotonic() < ends, "the server goes on with a call that nobody waits for"
        time.sleep(0.1)


def test_a_prompt_over_the_window_is_told_as_such(gptoss: VllmServer) -> None:
    with pytest.raises(ModelRefused) as caught:
        completions(gptoss).complete(PromptRequest((5,) * 33_000, max_tokens=10))
    assert caught.value.details["reason"] == "prompt-too-long"

    class Swollen(Context1Profile):
        def request(self, view: ContextView, draw: int = 0) -> PromptRequest:
            return PromptRequest(super().request(view, draw).prompt + (5,) * 33_000)

    recorder = Recorder()
    outcome = agent(ModelPolicy(completions(gptoss), Swollen(harmony(), DATE, rules=SHORT)), recorder).run(QUESTION)
    assert outcome.stop_reason == "prompt-too-long"
    assert outcome.selections


def test_an_unknown_model_is_named_with_what_there_is(gptoss: VllmServer) -> None:
    stranger = HttpCompletions(gptoss.url, "stranger", harmony().encode, STOP_TOKENS, retries=QUICK)
    with pytest.raises(ModelRefused, match=r"HOPNODE_CHAT_MODEL.*context-1"):
        stranger.complete(PromptRequest((5, 6, 7)))


def test_a_server_that_is_killed_leaves_what_is_held_and_serves_again_after_its_start(gptoss: VllmServer) -> None:
    model = ModelPolicy(completions(gptoss), exact())

    class KillsTheServer(Begun):
        def next_action(self, view: ContextView) -> Action:
            if view.turns:
                gptoss.kill()
            return super().next_action(view)

    recorder = Recorder()
    run = SearchAgent(
        KillsTheServer(model, FIRST),
        MemorySpace(FILMS),
        limits=Limits(),
        recorder=recorder,
        check=nothing_to_check,
    )
    outcome = run.run(QUESTION)
    assert (outcome.stop_reason, outcome.degraded) == ("model-unavailable", ("model-unavailable", "fallback-ranking"))
    assert outcome.selections
    with pytest.raises(ModelUnavailable):
        completions(gptoss).complete(PromptRequest((5, 6, 7)))
    gptoss.start()
    assert completions(gptoss).complete(PromptRequest((5, 6, 7), max_tokens=3)).tokens
