import json
from collections.abc import Callable, Iterator

import pytest
from support.harness.harmony import call, harmony, tokens

from hopnode.worker.errors import ModelRefused, ModelUnavailable
from hopnode.worker.inference.abort import Abort
from hopnode.worker.inference.completions import HttpCompletions
from hopnode.worker.inference.endpoint import RetryPolicy
from hopnode.worker.inference.harmony.rendering import STOP_TOKENS
from hopnode.worker.inference.messages import PromptRequest, Sampled
from hopnode.worker.inference.scripted import Fault, Reply, ScriptedChatServer, ScriptedSampler, ServerRequest

ASK = PromptRequest((200006, 1428, 200008, 64, 200007), max_tokens=300, seed=7)
REPLY = Sampled(tuple(tokens(call("search_corpus", {"query": "x"}))), "stop", 5, 21)
QUICK = RetryPolicy(attempts=3, base_seconds=0.001)


@pytest.fixture
def serve() -> Iterator[Callable[..., ScriptedChatServer]]:
    servers: list[ScriptedChatServer] = []

    def start(*replies: Reply) -> ScriptedChatServer:
        played = iter(replies)
        servers.append(ScriptedChatServer(lambda request: next(played)))
        return servers[-1].__enter__()

    yield start
    for server in servers:
        server.__exit__(None, None, None)


Serve = Callable[..., ScriptedChatServer]


def client(server: ScriptedChatServer, **options: object) -> HttpCompletions:
    settings: dict[str, object] = {"retries": QUICK, "timeout_seconds": 5, **options}
    return HttpCompletions(server.url, "context-1", harmony().encode, STOP_TOKENS, **settings)  # type: ignore[arg-type]


def problem(status: int, **error: object) -> Fault:
    return Fault(status, json.dumps({"error": error}).encode(), {"content-type": "application/json"})


def test_a_prompt_of_ids_is_sent_with_both_stops_and_ids_come_back(serve: Serve) -> None:
    server = serve(REPLY)
    got = client(server, api_key="sk-1").complete(ASK)
    assert (got.tokens, got.finish_reason, got.prompt_tokens, got.completion_tokens) == (REPLY.tokens, "stop", 5, 21)
    assert got.seconds > 0
    request: ServerRequest = server.requests[0]
    assert request.path == "/v1/completions"
    assert request.headers["authorization"] == "Bearer sk-1"
    assert request.body == {
        "model": "context-1",
        "prompt": list(ASK.prompt),
        "max_tokens": 300,
        "temperature": 1.0,
        "top_p": 0.9,
        "stop_token_ids": [200002, 200012],
        "return_token_ids": True,
        "skip_special_tokens": False,
        "seed": 7,
    }


def test_without_a_seed_none_is_sent(serve: Serve) -> None:
    server = serve(REPLY)
    client(server).complete(PromptRequest((1,)))
    assert "seed" not in server.requests[0].body


def test_a_server_that_sends_only_text_is_read_from_its_text(serve: Serve) -> None:
    text = call("search_corpus", {"query": "x"}).removesuffix("<|call|>")
    body = json.dumps({"choices": [{"text": text, "finish_reason": "stop"}]}).encode()
    got = client(serve(Fault(200, body))).complete(ASK)
    assert harmony().read(got.tokens).calls[0].name == "search_corpus"
    assert got.completion_tokens == len(got.tokens)


@pytest.mark.parametrize("body", [b"", b"{}", b'{"choices": []}', b'{"choices": [{"token_ids": "x"}]}', b"<html>"])
def test_an_answer_that_is_none_is_tried_again_with_another_seed(serve: Serve, body: bytes) -> None:
    server = serve(Fault(200, body), REPLY)
    assert client(server).complete(ASK).tokens == REPLY.tokens
    assert [request.body["seed"] for request in server.requests] == [7, 8]


def test_a_broken_completion_of_the_server_is_drawn_again(serve: Serve) -> None:
    server = serve(problem(500, message="unexpected tokens remaining in message header", type="HarmonyError"), REPLY)
    assert client(server).complete(ASK).tokens == REPLY.tokens


def test_a_field_that_the_server_refuses_by_name_is_left_out_from_then_on(serve: Serve) -> None:
    refusal = problem(400, message="unknown field", type="BadRequestError", param="return_token_ids")
    server = serve(refusal, REPLY, REPLY)
    model = client(server)
    model.complete(ASK)
    model.complete(ASK)
    assert ["return_token_ids" in request.body for request in server.requests] == [True, False, False]


@pytest.mark.parametrize(
    ("fault", "error", "reason"),
    [
        (problem(400, message="too long", type="BadRequestError", code=400), ModelRefused, "prompt-too-long"),
        (problem(404, message="The model `x` does not exist.", type="NotFoundError"), ModelRefused, "unknown-model"),
        (problem(401, message="no"), ModelRefused, "unauthorized"),
    ],
)
def test_refusals_are_those_of_the_chat_endpoint(
    serve: Serve, fault: Fault, error: type[Exception], reason: str
) -> None:
    with pytest.raises(error) as caught:
        client(serve(fault)).complete(ASK)
    assert caught.value.details["reason"] == reason  # type: ignore[attr-defined]


def test_a_server_that_stays_broken_is_unavailable_after_all_attempts(serve: Serve) -> None:
    server = serve(*[Fault(500)] * 3)
    with pytest.raises(ModelUnavailable):
        client(server).complete(ASK)
    assert len(server.requests) == 3


def test_an_abort_ends_the_call(serve: Serve) -> None:
    abort = Abort()
    abort.set()
    with pytest.raises(ModelUnavailable):
        client(serve(REPLY)).complete(ASK, abort)


def test_a_scripted_sampler_plays_its_lines() -> None:
    sampler = ScriptedSampler([REPLY, ModelRefused("no"), lambda request: Sampled(request.prompt, "length")])
    assert sampler.complete(ASK) == REPLY
    with pytest.raises(ModelRefused):
        sampler.complete(ASK)
    assert sampler.complete(ASK).tokens == ASK.prompt
    assert sampler.requests == [ASK] * 3
