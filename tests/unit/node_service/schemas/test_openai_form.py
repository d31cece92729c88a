"""OpenAI's form of questions and answers, spoken by OpenAI's own client to a served node."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionMessageParam
from support.node.http_node import HttpNode, Tenant, serve_node
from support.node.queue import wait_until

from hopnode.worker.inference.scripted import Fault, Reply, ScriptedChatServer, ServerRequest, say
from hopnode.worker.searches.job import run_search_job

TEXTS = {
    "tower.md": "The Anselm Tower was built by the Brook Company in 1911. It is made of brick.",
    "company.md": "The Brook Company was founded by Mira Lindqvist, an engineer from the coast.",
}
QUESTION = "Who founded the company that built the Anselm Tower?"
ANSWER = "Mira Lindqvist founded it [P2], and it built the tower [P1]."
WRITES_NOTHING, REFUSES, DOES_NOT_KNOW = "nothing?", "refuse?", "unknown?"


def write(request: ServerRequest) -> Reply:
    """What the answer model says; the question chooses."""
    asked = str(request.body["messages"])
    if WRITES_NOTHING in asked:
        return say("")
    if REFUSES in asked:
        return Fault(status=400, body=b'{"error": {"message": "No."}}')
    return say("Nothing on that. <NotInCorpus/>" if DOES_NOT_KNOW in asked else ANSWER)


@contextmanager
def writing_node(folder: Path, **service: Any) -> Iterator[HttpNode]:
    with ScriptedChatServer(write) as server:
        settings = {"answer_url": server.url, "answer_model": "writer"}
        with serve_node(folder, settings, service, handlers={"search": run_search_job}) as node:
            yield node


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpNode]:
    with writing_node(tmp_path_factory.mktemp("openai"), max_body_bytes=20_000) as served:
        yield served


@pytest.fixture(scope="module")
def tenant(node: HttpNode) -> Tenant:
    tenant = node.tenant()
    tenant.collection()
    for key, text in TEXTS.items():
        assert tenant.put(key, text, url=f"https://example.com/{key}").status_code == 201
    return tenant


@contextmanager
def client_of(node: HttpNode, token: str) -> Iterator[OpenAI]:
    with (
        httpx.Client(trust_env=False, timeout=30) as http,
        OpenAI(base_url=f"{node.url}/v1", api_key=token, http_client=http, max_retries=0) as client,
    ):
        yield client


@pytest.fixture
def client(tenant: Tenant) -> Iterator[OpenAI]:
    with client_of(tenant.node, tenant.token) as client:
        yield client


def statuses(tenant: Tenant) -> list[str]:
    return [one["status"] for one in tenant.http.get("/v1/searches").json()["items"]]


def said(question: str) -> list[ChatCompletionMessageParam]:
    return [{"role": "user", "content": question}]


def ask(client: OpenAI, question: str = QUESTION, model: str = "hopnode/handbook", **more: Any) -> ChatCompletion:
    return client.chat.completions.create(model=model, messages=said(question), **more)


def grounds_of(answer: Any) -> dict[str, Any]:
    extra: dict[str, Any] = answer.model_extra
    return extra["hopnode"]


def test_the_collections_of_the_workspace_are_the_models(client: OpenAI, tenant: Tenant) -> None:
    assert [(model.id, model.owned_by, model.object) for model in client.models.list()] == [
        ("hopnode/handbook", "hopnode", "model")
    ]
    stranger = tenant.node.tenant()
    with client_of(tenant.node, stranger.token) as other:
        assert list(other.models.list()) == []
        with pytest.raises(openai.NotFoundError):
            ask(other)


def test_an_answer_cites_passages_and_lists_its_sources(client: OpenAI, tenant: Tenant) -> None:
    answer = ask(client)
    [choice] = answer.choices
    assert (choice.finish_reason, choice.message.role) == ("stop", "assistant")
    text, _, sources = (choice.message.content or "").partition("\n\nSources:\n")
    assert text == "Mira Lindqvist founded it [2], and it built the tower [1]."
    grounds = grounds_of(answer)
    assert [line.split("]")[0] for line in sources.splitlines()] == ["[1", "[2"]
    for citation in grounds["citations"]:
        assert citation["url"] == f"https://example.com/{citation['key']}" and citation["url"] in sources
    search = tenant.http.get(f"/v1/searches/{grounds['search_id']}").json()
    assert answer.id == f"chatcmpl-{search['id']}" and answer.model == "hopnode/handbook"
    assert search["result"]["answer"]["citations"] == grounds["citations"] and grounds["found"] is True
    assert answer.usage and answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.completion_tokens > 0


def test_a_stream_brings_the_same_in_pieces_with_its_usage_at_the_end(client: OpenAI) -> None:
    whole = ask(client)
    pieces = list(
        client.chat.completions.create(
            model="hopnode/handbook",
            messages=said(QUESTION),
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert pieces[0].choices[0].delta.role == "assistant"
    texts = [piece.choices[0].delta.content or "" for piece in pieces if piece.choices]
    assert "".join(texts) == whole.choices[0].message.content and len([text for text in texts if text]) > 1
    assert [piece.choices[0].finish_reason for piece in pieces if piece.choices][-1] == "stop"
    assert grounds_of(pieces[-2])["citations"] == grounds_of(whole)["citations"]
    assert pieces[-1].choices == [] and pieces[-1].usage == whole.usage
    assert len({piece.id for piece in pieces}) == 1


def test_a_stream_ends_without_usage_unless_it_was_asked_for(tenant: Tenant) -> None:
    body = {"model": "hopnode/handbook", "messages": said(QUESTION), "stream": True}
    lines = tenant.http.post("/v1/chat/completions", json=body).text.strip().splitlines()[::2]
    assert lines[-1] == "data: [DONE]"
    assert json.loads(lines[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "stop"
    assert "usage" not in lines[-2]


@pytest.mark.parametrize(("suffix", "mode"), [("", "auto"), (":agent", "agent"), (":one_shot", "one_shot")])
def test_the_model_says_where_and_how_to_search(client: OpenAI, tenant: Tenant, suffix: str, mode: str) -> None:
    answer = ask(client, model=f"hopnode/handbook{suffix}")
    search = tenant.http.get(f"/v1/searches/{grounds_of(answer)['search_id']}").json()
    assert (search["mode"], search["collections"], search["answer"]) == (mode, ["handbook"], True)
    assert search["metadata"] == {"asked_by": "openai"}


def test_the_last_message_is_the_question_and_what_only_colours_the_text_is_ignored(client: OpenAI, tenant: Tenant):
    earlier: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": "You are terse."},
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
    ]
    answer = client.chat.completions.create(
        model="hopnode/handbook",
        messages=earlier,
        temperature=0.9,
        max_tokens=5,
        user="me",
        n=1,
        tools=[],
        response_format={"type": "text"},
    )
    assert tenant.http.get(f"/v1/searches/{grounds_of(answer)['search_id']}").json()["query"] == QUESTION


def test_what_the_documents_do_not_hold_is_said_and_not_invented(client: OpenAI, node: HttpNode) -> None:
    unknown = ask(client, f"{QUESTION} {DOES_NOT_KNOW}")
    assert unknown.choices[0].message.content == "Nothing on that."
    assert grounds_of(unknown)["found"] is False and grounds_of(unknown)["citations"] == []
    empty = node.tenant()
    empty.collection()
    with client_of(node, empty.token) as other:
        nothing = ask(other)
    assert nothing.choices[0].message.content == "The documents that were searched hold no answer to this."


@pytest.mark.parametrize(
    ("changes", "status", "code", "param"),
    [
        ({"model": "gpt-4o"}, 404, "model_not_found", "model"),
        ({"model": "hopnode/"}, 404, "model_not_found", "model"),
        ({"model": "hopnode/No Such Name"}, 404, "model_not_found", "model"),
        ({"model": "hopnode/nowhere"}, 404, "model_not_found", None),
        ({"model": "hopnode/handbook:magic"}, 404, "model_not_found", "model"),
        ({"model": None}, 400, "invalid_value", "model"),
        ({"messages": []}, 400, "invalid_value", "messages"),
        ({"messages": said(" ")}, 400, "invalid_value", "messages"),
        ({"messages": said("x" * 4_001)}, 400, "invalid_value", "messages"),
        ({"messages": said("a\x00b")}, 400, "invalid_value", "messages"),
        ({"messages": [{"role": "assistant", "content": "q"}]}, 400, "invalid_value", "messages"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}]},
            400,
            "invalid_value",
            "messages",
        ),
        ({"n": 2}, 400, "unsupported_parameter", "n"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, 400, "unsupported_parameter", "tools"),
        ({"response_format": {"type": "json_object"}}, 400, "unsupported_parameter", "response_format"),
        ({"logprobs": True}, 400, "unsupported_parameter", "logprobs"),
        ({"user": "x" * 20_000}, 413, "invalid_request", None),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_a_node_cannot_do_is_refused_in_openais_form(
    tenant: Tenant, changes: dict[str, Any], status: int, code: str, param: str | None, stream: bool
) -> None:
    before = len(tenant.http.get("/v1/searches").json()["items"])
    body = {"model": "hopnode/handbook", "messages": said(QUESTION), "stream": stream} | changes
    answer = tenant.http.post("/v1/chat/completions", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (status, code, "invalid_request_error"), answer.text
    assert error["message"] and (error["param"] or "").startswith(param or "")
    assert len(tenant.http.get("/v1/searches").json()["items"]) == before


@pytest.mark.parametrize("body", [b"", b"{nonsense", b"[]", b"\xff", b"[" * 5_000])
def test_a_body_that_is_none_is_refused_in_the_same_form(tenant: Tenant, body: bytes) -> None:
    answer = tenant.http.post("/v1/chat/completions", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("path", ["/v1/models", "/v1/chat/completions"])
def test_keys_are_judged_before_anything_else(tenant: Tenant, path: str) -> None:
    def call(http: httpx.Client) -> httpx.Response:
        return http.get(path) if path.endswith("models") else http.post(path, content=b"{nonsense")

    wrong = call(tenant.node.client("hn_00000000_wrong"))
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (401, "invalid_api_key")
    with client_of(tenant.node, "sk-nothing") as client, pytest.raises(openai.AuthenticationError):
        client.models.list()


def test_a_narrow_key_is_told_which_scope_it_lacks(tenant: Tenant) -> None:
    narrow = tenant.node.with_scopes(tenant, "search:read")
    body = {"model": "hopnode/handbook", "messages": said(QUESTION)}
    for answer in (narrow.get("/v1/models"), narrow.post("/v1/chat/completions", json=body)):
        assert answer.status_code == 403
        assert "scope" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("question", "status", "code", "again"),
    [
        (WRITES_NOTHING, 502, "answer-empty", "false"),
        (REFUSES, 502, "answer-refused", "false"),
    ],
)
def test_an_answer_that_could_not_be_had_is_an_error_and_names_the_search(
    client: OpenAI, tenant: Tenant, question: str, status: int, code: str, again: str
) -> None:
    with pytest.raises(openai.InternalServerError) as refusal:
        ask(client, f"{QUESTION} {question}")
    assert (refusal.value.status_code, refusal.value.code) == (status, code)
    assert refusal.value.response.headers["x-should-retry"] == again
    path = refusal.value.message.partition("`GET ")[2].partition("`")[0]
    assert tenant.http.get(path).json()["result"]["passages"]


def test_what_goes_wrong_within_a_stream_reaches_the_client_as_an_error(client: OpenAI) -> None:
    pieces = client.chat.completions.create(
        model="hopnode/handbook", messages=said(f"{QUESTION} {REFUSES}"), stream=True
    )
    with pytest.raises(openai.APIError, match="answer-refused"):
        list(pieces)


def test_a_node_without_an_answer_model_says_what_to_set(tmp_path: Path) -> None:
    with serve_node(tmp_path) as node:
        tenant = node.tenant()
        tenant.collection()
        with client_of(node, tenant.token) as client:
            assert [model.id for model in client.models.list()] == ["hopnode/handbook"]
            with pytest.raises(openai.UnprocessableEntityError, match="HOPNODE_ANSWER_MODEL") as refusal:
                ask(client)
        assert (refusal.value.code, refusal.value.param) == ("no_answer_endpoint", "answer")
        assert tenant.http.get("/v1/searches").json()["items"] == []


def test_a_client_that_hangs_up_ends_its_search(tmp_path: Path) -> None:
    settings = {"answer_url": "http://127.0.0.1:9", "answer_model": "writer"}
    with serve_node(tmp_path, settings) as node:  # nobody takes up the jobs of this node
        tenant = node.tenant()
        tenant.collection()
        body = {"model": "hopnode/handbook", "messages": said(QUESTION)}
        for stream in (False, True):
            with pytest.raises(httpx.ReadTimeout):
                tenant.http.post("/v1/chat/completions", json=body | {"stream": stream}, timeout=1)
        wait_until(lambda: statuses(tenant) == ["cancelled"] * 2, 10, "both searches are cancelled")


@pytest.mark.parametrize(("stream", "status"), [(False, 503), (True, 200)])
def test_a_node_that_stops_ends_the_wait_and_says_so(tmp_path: Path, stream: bool, status: int) -> None:
    with serve_node(tmp_path, {"answer_url": "http://127.0.0.1:9", "answer_model": "writer"}) as node:
        tenant = node.tenant()
        tenant.collection()
        body = {"model": "hopnode/handbook", "messages": said(QUESTION), "stream": stream}
        with ThreadPoolExecutor(1) as pool, node.client(tenant.token) as http:
            asked = pool.submit(http.post, "/v1/chat/completions", json=body)
            wait_until(lambda: statuses(tenant) == ["queued"], 10, "the search waits")
            node.server.should_exit = True
            answer = asked.result(10)
        assert answer.status_code == status
        assert "The node stops; ask again." in answer.text
