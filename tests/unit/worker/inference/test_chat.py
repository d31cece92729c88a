import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

from hopnode.worker.errors import ModelRefused, ModelUnavailable
from hopnode.worker.inference.abort import Abort
from hopnode.worker.inference.chat import HttpChat
from hopnode.worker.inference.chat_wire import completion_body, read_completion, request_body
from hopnode.worker.inference.endpoint import RetryPolicy
from hopnode.worker.inference.failures import STATUS_TABLE, TRANSPORT_TABLE
from hopnode.worker.inference.messages import ChatRequest, Completion, Message, ToolCall, ToolSpec
from hopnode.worker.inference.scripted import (
    Fault,
    Reply,
    ScriptedChat,
    ScriptedChatServer,
    ServerRequest,
    final,
    say,
    use,
)

TOOL = ToolSpec("search_corpus", "Finds.", {"type": "object", "properties": {}, "additionalProperties": False})
ASK = ChatRequest((Message("user", "hello"),), tools=(TOOL,), temperature=0.5, max_tokens=300, seed=7)
QUICK = RetryPolicy(attempts=3, base_seconds=0.001)


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[ServerRequest], Reply]], ScriptedChatServer]]:
    servers: list[ScriptedChatServer] = []

    def start(reply: Callable[[ServerRequest], Reply]) -> ScriptedChatServer:
        servers.append(ScriptedChatServer(reply))
        return servers[-1].__enter__()

    yield start
    for server in servers:
        server.__exit__(None, None, None)


Serve = Callable[[Callable[[ServerRequest], Reply]], ScriptedChatServer]


def lines(*replies: Reply) -> Callable[[ServerRequest], Reply]:
    played = iter(replies)
    return lambda request: next(played)


def client(server: ScriptedChatServer, **options: object) -> HttpChat:
    settings: dict[str, object] = {"retries": QUICK, "timeout_seconds": 5, **options}
    return HttpChat(server.url, "tiny", **settings)  # type: ignore[arg-type]


def problem(status: int, **error: object) -> Fault:
    return Fault(status, json.dumps({"error": error}).encode(), {"content-type": "application/json"})


def test_a_request_is_sent_in_the_openai_form(serve: Serve) -> None:
    server = serve(lines(say("hi")))
    client(server, api_key="sk-1").complete(ASK)
    request = server.requests[0]
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == "Bearer sk-1"
    assert request.body == {
        "model": "tiny",
        "messages": [{"role": "user", "content": "hello"}],
        "temperature": 0.5,
        "top_p": 0.9,
        "max_tokens": 300,
        "seed": 7,
        "parallel_tool_calls": True,
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "search_corpus",
                    "description": "Finds.",
                    "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
                    "strict": True,
                },
            }
        ],
    }


def test_no_key_means_no_authorization_header(serve: Serve) -> None:
    server = serve(lines(say("hi")))
    client(server).complete(ASK)
    assert "authorization" not in server.requests[0].headers


def test_calls_text_reasoning_and_token_counts_come_back(serve: Serve) -> None:
    sent = use(("search_corpus", {"query": "남산 ünï"}), ("grep_corpus", {"pattern": "x"}), text="so", reasoning="hm")
    server = serve(lines(Completion(sent.message, "tool_calls", 11, 22)))
    got = client(server).complete(ASK)
    assert got.message == sent.message
    assert (got.finish_reason, got.prompt_tokens, got.completion_tokens) == ("tool_calls", 11, 22)
    assert got.seconds > 0


def test_reasoning_goes_back_under_the_name_it_came_with(serve: Serve) -> None:
    old = json.dumps({"choices": [{"message": {"content": "a", "reasoning_content": "why"}}]}).encode()
    server = serve(lines(Fault(200, old), say("b"), say("c")))
    chat = client(server)
    talk = ChatRequest((Message("user", "q"), Message("assistant", "a", reasoning="why")))
    assert chat.complete(talk).message.reasoning == "why"
    chat.complete(talk)
    first, second = (request.body["messages"][1] for request in server.requests)  # type: ignore[index,call-overload]
    assert first == {"role": "assistant", "content": "a", "reasoning": "why", "reasoning_content": "why"}
    assert second == {"role": "assistant", "content": "a", "reasoning_content": "why"}


def test_tool_results_and_calls_go_back_in_pairs_and_broken_arguments_go_back_empty() -> None:
    calls = (ToolCall("c1", "search_corpus", '{"query": "x"}'), ToolCall("c2", "search_corpus", '{"query": '))
    talk = ChatRequest((Message("assistant", "", calls), Message("tool", "found", tool_call_id="c1")))
    messages = request_body(talk, "m")["messages"]
    assert messages == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "search_corpus", "arguments": '{"query": "x"}'}},
                {"id": "c2", "type": "function", "function": {"name": "search_corpus", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "content": "found", "tool_call_id": "c1"},
    ]


@pytest.mark.parametrize(
    "fault",
    [
        Fault(500, b"oops"),
        Fault(502, b"<html>bad gateway</html>", {"content-type": "text/html"}),
        Fault(503),
        Fault(429, b"{}", {"retry-after": "0"}),
        Fault(408),
        Fault(drop=True),
        Fault(200, b'{"choices": [{"mess'),
        Fault(200, b"<html>captive portal</html>"),
        Fault(200, b"\xff\xfe\x00"),
        Fault(200, b'{"choices": []}'),
        Fault(200, b'{"choices": [{"message": null}]}'),
        Fault(200, b'{"error": {"message": "upstream failed", "code": 502}}'),
        Fault(204),
    ],
    ids=lambda fault: f"{fault.status}-{fault.body[:12]!r}-{fault.drop}",
)
def test_what_may_pass_is_tried_again(serve: Serve, fault: Fault) -> None:
    server = serve(lines(fault, fault, say("hi")))
    assert client(server).complete(ASK).message.content == "hi"
    assert len(server.requests) == 3


@pytest.mark.parametrize("fault", [Fault(500, b"oops"), Fault(drop=True), Fault(200, b"no json")])
def test_after_the_last_attempt_the_model_is_unavailable(serve: Serve, fault: Fault) -> None:
    server = serve(lambda request: fault)
    with pytest.raises(ModelUnavailable, match=r"127\.0\.0\.1"):
        client(server).complete(ASK)
    assert len(server.requests) == 3


def test_a_new_attempt_draws_with_a_new_seed(serve: Serve) -> None:
    server = serve(lines(Fault(500), Fault(500), say("hi")))
    client(server).complete(ASK)
    assert [request.body["seed"] for request in server.requests] == [7, 8, 9]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (problem(400, message="bad", type="invalid_request_error"), "bad-request"),
        (problem(401, message="Incorrect key"), "unauthorized"),
        (Fault(403), "unauthorized"),
        (problem(404, message="The model `tiny` does not exist", type="NotFoundError"), "unknown-model"),
        (Fault(422, b'{"detail": "no"}'), "bad-request"),
        (Fault(307, headers={"location": "http://127.0.0.1:1/"}), "redirect"),
        (problem(400, message="Input length (33068) exceeds", type="BadRequestError", code=400), "prompt-too-long"),
        (
            problem(400, message="too long", type="x", code="context_length_exceeded", param="messages"),
            "prompt-too-long",
        ),
        (Fault(413), "prompt-too-long"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value.status),
)
def test_what_can_never_pass_is_refused_at_once(serve: Serve, fault: Fault, reason: str) -> None:
    server = serve(lambda request: fault)
    with pytest.raises(ModelRefused) as caught:
        client(server).complete(ASK)
    assert caught.value.details["reason"] == reason
    assert len(server.requests) == 1


def test_the_words_of_the_endpoint_reach_the_user_without_the_key(serve: Serve) -> None:
    server = serve(
        lambda request: problem(404, message="no model `tiny`; valid: llama. key sk-secret", type="NotFound")
    )
    with pytest.raises(ModelRefused, match="valid: llama") as caught:
        client(server, api_key="sk-secret").complete(ASK)
    assert "sk-secret" not in str(caught.value)
    assert "HOPNODE_CHAT_MODEL" in str(caught.value)


def test_a_field_that_an_endpoint_refuses_is_left_out_from_then_on(serve: Serve) -> None:
    def picky(request: ServerRequest) -> Reply:
        for field, param in (
            ("max_tokens", "max_tokens"),
            ("temperature", "temperature"),
            ("parallel_tool_calls", "parallel_tool_calls"),
        ):
            if field in request.body:
                return problem(400, message=f"Unsupported: {field}", type="BadRequestError", param=param)
        if "strict" in json.dumps(request.body):
            return problem(400, message="Unknown name strict", param="tools[0].function.strict")
        return say("hi")

    server = serve(picky)
    chat = client(server)
    chat.complete(ASK)
    assert len(server.requests) == 5
    chat.complete(ASK)
    assert len(server.requests) == 6
    assert server.requests[-1].body["max_completion_tokens"] == 300


def test_a_needed_field_that_an_endpoint_refuses_ends_the_call(serve: Serve) -> None:
    server = serve(lambda request: problem(400, message="bad messages", type="t", param="messages[0].content"))
    with pytest.raises(ModelRefused):
        client(server).complete(ASK)
    assert len(server.requests) == 1


def test_retry_after_is_obeyed(serve: Serve) -> None:
    server = serve(lines(Fault(429, headers={"retry-after": "0.3"}), say("hi")))
    started = time.monotonic()
    client(server).complete(ASK)
    assert 0.3 <= time.monotonic() - started < 2


def test_retry_after_may_be_a_date(serve: Serve) -> None:
    past, later = (format_datetime(datetime.now(UTC) + timedelta(hours=hours), usegmt=True) for hours in (-1, 1))
    server = serve(lines(Fault(503, headers={"retry-after": past}), Fault(503, headers={"retry-after": later})))
    with pytest.raises(ModelUnavailable) as caught:
        client(server).complete(ASK)
    assert 3500 < float(str(caught.value.details["retry_after"])) <= 3600
    assert len(server.requests) == 2


def test_a_pause_that_would_pass_the_total_deadline_is_not_begun(serve: Serve) -> None:
    server = serve(lambda request: Fault(429, headers={"retry-after": "60"}))
    started = time.monotonic()
    with pytest.raises(ModelUnavailable) as caught:
        client(server, total_seconds=2).complete(ASK)
    assert time.monotonic() - started < 1
    assert caught.value.details["reason"] == "rate-limit"


def test_pauses_grow_with_jitter_and_are_bounded() -> None:
    policy = RetryPolicy(base_seconds=1, longest_seconds=4)
    for attempt, most in ((1, 1), (2, 2), (3, 4), (4, 4), (30, 4)):
        drawn = [policy.delay(attempt, None) for _ in range(50)]
        assert 0 <= min(drawn) <= max(drawn) <= most
    assert policy.delay(1, 9.0) == 9.0


def test_a_slow_answer_ends_at_the_timeout_and_is_tried_again(serve: Serve) -> None:
    server = serve(lines(Fault(wait_seconds=20), say("hi")))
    started = time.monotonic()
    assert client(server, timeout_seconds=0.3, total_seconds=5).complete(ASK).message.content == "hi"
    assert 0.25 < time.monotonic() - started < 2


def test_an_answer_that_trickles_ends_at_the_timeout() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def trickle() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n")
            while not stop.wait(0.05):
                try:
                    connection.sendall(b" ")
                except OSError:
                    return

    thread = threading.Thread(target=trickle)
    thread.start()
    port = listener.getsockname()[1]
    chat = HttpChat(f"http://127.0.0.1:{port}/v1", "m", timeout_seconds=0.4, retries=RetryPolicy(attempts=1))
    started = time.monotonic()
    with pytest.raises(ModelUnavailable) as caught:
        chat.complete(ASK)
    assert time.monotonic() - started < 1.5
    assert caught.value.details["reason"] == "timeout"
    stop.set()
    thread.join(5)
    listener.close()


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def test_an_endpoint_that_is_not_there_is_unavailable() -> None:
    chat = HttpChat(f"http://127.0.0.1:{closed_port()}/v1", "m", retries=QUICK)
    with pytest.raises(ModelUnavailable, match="cannot be reached"):
        chat.complete(ASK)


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/v1", "127.0.0.1:80/v1", "http://[::1/v1"])
def test_an_address_that_is_no_http_url_is_refused_with_the_name_of_the_setting(url: str) -> None:
    with pytest.raises(ModelRefused, match="HOPNODE_CHAT_URL"):
        HttpChat(url, "m", retries=QUICK).complete(ASK)


def test_a_key_with_strange_letters_is_refused_without_showing_it(serve: Serve) -> None:
    server = serve(lines(say("hi")))
    with pytest.raises(ModelRefused, match="HOPNODE_CHAT") as caught:
        client(server, api_key="ключ").complete(ASK)
    assert "ключ" not in str(caught.value)


def test_an_abort_breaks_the_call_off_and_the_server_notices(serve: Serve) -> None:
    server = serve(lambda request: Fault(wait_seconds=30))
    abort, failures = Abort(), []

    def call() -> None:
        try:
            client(server, timeout_seconds=60).complete(ASK, abort)
        except ModelUnavailable as error:
            failures.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    ends = time.monotonic() + 5
    while not server.requests and time.monotonic() < ends:
        time.sleep(0.005)
    started = time.monotonic()
    abort.set()
    thread.join(5)
    assert time.monotonic() - started < 0.5
    assert len(failures) == 1
    while not server.hung_up and time.monotonic() < ends:
        time.sleep(0.005)
    assert (server.hung_up, len(server.requests)) == (1, 1)


def test_an_abort_before_the_call_or_in_a_pause_asks_nothing_more(serve: Serve) -> None:
    server = serve(lambda request: Fault(429, headers={"retry-after": "3"}))
    abort = Abort()
    timer = threading.Timer(0.2, abort.set)
    timer.start()
    started = time.monotonic()
    with pytest.raises(ModelUnavailable):
        client(server, total_seconds=30).complete(ASK, abort)
    assert time.monotonic() - started < 1
    with pytest.raises(ModelUnavailable):
        client(server, total_seconds=30).complete(ASK, abort)
    assert len(server.requests) == 1
    timer.join()


def leaves(base: type[Exception]) -> set[type[Exception]]:
    below = base.__subclasses__()
    return {base} if not below else {leaf for one in below for leaf in leaves(one)}


def test_every_failure_of_the_http_library_has_a_row_in_the_table() -> None:
    raised_by_a_call = leaves(httpx.RequestError) | {httpx.InvalidURL}
    assert raised_by_a_call <= set(TRANSPORT_TABLE)
    for row in TRANSPORT_TABLE.values():
        assert row.error in (ModelUnavailable, ModelRefused)


def test_every_status_but_200_has_exactly_one_row_in_the_table() -> None:
    for status in range(100, 600):
        rows = [row for codes, row in STATUS_TABLE if status in codes]
        assert len(rows) == (0 if status == 200 else 1), status
        if rows:
            assert rows[0].error.retryable == (rows[0].error is ModelUnavailable)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"content": None, "tool_calls": []}, Message("assistant", "")),
        ({"content": None, "tool_calls": None, "reasoning": None}, Message("assistant", "")),
        ({}, Message("assistant", "")),
        ({"content": [{"type": "text", "text": "a"}, {"type": "x"}, {"text": "b"}]}, Message("assistant", "ab")),
        (
            {"content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]},
            Message("assistant", "", (ToolCall("call_0", "f", '{"a": 1}'),)),
        ),
        (
            {"content": "<tool_call>{", "tool_calls": [{"id": "x", "function": {"name": "f", "arguments": '{"a'}}]},
            Message("assistant", "<tool_call>{", (ToolCall("x", "f", '{"a'),)),
        ),
        ({"content": "", "tool_calls": [{"id": "x"}]}, Message("assistant", "", (ToolCall("x", "", "{}"),))),
    ],
)
def test_odd_answers_are_read_as_far_as_they_go(message: dict[str, object], expected: Message) -> None:
    body = json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]}).encode()
    completion, _ = read_completion(body)
    assert completion.message == expected
    assert (completion.prompt_tokens, completion.completion_tokens) == (0, 0)


def test_what_the_scripted_server_writes_the_client_reads_back() -> None:
    for sent in (say("x", reasoning="y", finish_reason="length"), use(("f", {"a": [1]})), final("a_0", "b_1")):
        got, _ = read_completion(json.dumps(completion_body(sent, "m")).encode())
        assert got == sent


def test_a_scripted_chat_plays_its_lines_keeps_the_requests_and_ends() -> None:
    chat = ScriptedChat([say("a"), ModelRefused("no"), lambda request: say(request.messages[0].content.upper())])
    assert chat.complete(ASK).message.content == "a"
    with pytest.raises(ModelRefused):
        chat.complete(ASK)
    assert chat.complete(ASK).message.content == "HELLO"
    with pytest.raises(ModelUnavailable):
        chat.complete(ASK)
    assert chat.requests == [ASK] * 4


def test_a_scripted_chat_made_of_one_function_never_ends() -> None:
    chat = ScriptedChat(lambda request: say("again"))
    assert {chat.complete(ASK).message.content for _ in range(5)} == {"again"}
