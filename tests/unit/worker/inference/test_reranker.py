import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hopnode.worker.errors import ModelRefused, ModelUnavailable
from hopnode.worker.inference.endpoint import RetryPolicy
from hopnode.worker.inference.reranker import HttpReranker, Kind
from hopnode.worker.inference.scripted import Fault, ScriptedChatServer, ServerRequest

QUICK = RetryPolicy(attempts=3, base_seconds=0.001)
TEXTS = ["far", "near", "middle"]


def by_length(kind: Kind) -> Callable[[ServerRequest], Fault]:
    """A server that scores texts by their length, in the form of its kind, best first where the form sorts."""

    def reply(request: ServerRequest) -> Fault:
        body: Any = request.body
        texts = body[{"score": "text_2", "rerank": "documents", "tei": "texts"}[kind]]
        rows = [{"index": at, "score": float(len(text))} for at, text in enumerate(texts)]
        best_first = sorted(rows, key=lambda row: -row["score"])
        answer: Any = {"data": rows}
        if kind == "rerank":
            answer = {"results": [{"index": row["index"], "relevance_score": row["score"]} for row in best_first]}
        elif kind == "tei":
            answer = best_first
        return Fault(200, json.dumps(answer).encode())

    return reply


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[ServerRequest], Fault]], ScriptedChatServer]]:
    servers: list[ScriptedChatServer] = []

    def start(reply: Callable[[ServerRequest], Fault]) -> ScriptedChatServer:
        servers.append(ScriptedChatServer(reply))
        return servers[-1].__enter__()

    yield start
    for server in servers:
        server.__exit__(None, None, None)


Serve = Callable[[Callable[[ServerRequest], Fault]], ScriptedChatServer]


def root(server: ScriptedChatServer) -> str:
    return server.url.removesuffix("/v1")


@pytest.mark.parametrize(
    ("kind", "path", "body"),
    [
        ("score", "/score", {"model": "qwen", "text_1": "q", "text_2": TEXTS}),
        ("rerank", "/rerank", {"model": "qwen", "query": "q", "documents": TEXTS}),
        ("tei", "/rerank", {"query": "q", "texts": TEXTS, "truncate": True}),
    ],
)
def test_each_kind_speaks_the_form_of_its_server(serve: Serve, kind: Kind, path: str, body: dict[str, object]) -> None:
    server = serve(by_length(kind))
    reranker = HttpReranker(kind, root(server) + "/", "qwen", "sk-1", retries=QUICK)
    assert reranker.score("q", TEXTS) == [3.0, 4.0, 6.0]
    assert (server.requests[0].path, dict(server.requests[0].body)) == (path, body)
    assert server.requests[0].headers["authorization"] == "Bearer sk-1"


def test_many_texts_go_in_batches_and_come_back_in_order(serve: Serve) -> None:
    server = serve(by_length("tei"))
    texts = ["x" * n for n in range(50)]
    assert HttpReranker("tei", root(server), retries=QUICK).score("q", texts) == [float(n) for n in range(50)]
    assert [len(request.body["texts"]) for request in server.requests] == [32, 18]  # type: ignore[arg-type]
    assert HttpReranker("tei", root(server), retries=QUICK).score("q", []) == []


def test_query_and_texts_can_be_put_as_qwen_was_trained(serve: Serve) -> None:
    server = serve(by_length("score"))
    HttpReranker("score", root(server), "qwen", form="qwen3", retries=QUICK).score("who?", ["A text."])
    body: Any = server.requests[0].body
    whole = body["text_1"] + body["text_2"][0]
    assert whole.startswith("<|im_start|>system\n")
    assert "<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n" in whole
    assert "<Query>: who?\n<Document>: A text.<|im_end|>\n" in whole
    assert whole.endswith("<think>\n\n</think>\n\n")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b'{"data": [{"index": 0, "score": 1.0}]}',
        b'[{"index": 0}, {"index": 1, "score": 1}, {"index": 2, "score": 1}]',
        b'[{"index": 0, "score": 1}, {"index": 0, "score": 1}, {"index": 2, "score": 1}]',
        b'[{"index": 1, "score": 1}, {"index": 2, "score": 1}, {"index": 3, "score": 1}]',
        b'{"data": [{"index": -1, "score": "x"}]}',
    ],
)
def test_an_answer_that_is_not_one_score_for_each_text_is_none(serve: Serve, content: bytes) -> None:
    server = serve(lambda request: Fault(200, content))
    with pytest.raises(ModelUnavailable, match="The reranker endpoint"):
        HttpReranker("score", root(server), "m", retries=QUICK).score("q", TEXTS)
    assert len(server.requests) == 3


def test_a_refusal_names_the_settings_of_the_reranker(serve: Serve) -> None:
    server = serve(lambda request: Fault(404, b'{"message": "no such model"}'))
    with pytest.raises(ModelRefused, match="HOPNODE_RERANKER_MODEL"):
        HttpReranker("rerank", root(server), "m", retries=QUICK).score("q", TEXTS)
    assert len(server.requests) == 1


def test_the_id_says_what_ran() -> None:
    assert HttpReranker("score", "http://127.0.0.1:1", "Qwen/Qwen3-Reranker-8B").id == "score:Qwen/Qwen3-Reranker-8B"
    assert HttpReranker("tei", "http://127.0.0.1:1").id == "tei"
