"""The command line's client against a bare HTTP server that plays a node's answers."""

import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from hopnode.node_service.commands.connection.client import NodeClient, NodeEvent, NodeRefused, read_events
from hopnode.node_service.commands.terminal.exits import CommandError, ExitCode


@contextmanager
def _answering(*answers: tuple[int, str, str]) -> Generator[tuple[str, list[dict[str, str]]]]:
    """A server that gives `answers` (status, content type, body) in turn, the last one for ever; notes the requests."""
    left, seen = list(answers), list[dict[str, str]]()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length).decode()
            seen.append({"method": self.command, "path": self.path, "body": body, **dict(self.headers)})
            status, kind, text = left.pop(0) if len(left) > 1 else left[0]
            content = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 - names that the library looks for

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def _client(*answers: tuple[int, str, str]) -> Generator[tuple[NodeClient, list[dict[str, str]]]]:
    """A client of such a server, and the requests that the server saw."""
    with _answering(*answers) as (url, seen), NodeClient(url, "hn_1_2", reconnect_seconds=0) as client:
        yield client, seen


def _problem(status: int, **fields: Any) -> tuple[int, str, str]:
    return status, "application/problem+json", json.dumps({"title": "No", "status": status} | fields)


def test_the_key_goes_along_as_a_bearer_token() -> None:
    with _client((200, "application/json", "{}")) as (client, seen):
        client.get("/v1/whoami")
    assert seen[0]["Authorization"] == "Bearer hn_1_2"


def test_a_list_is_read_to_its_last_page() -> None:
    pages = [{"items": [1, 2], "next_cursor": "abc"}, {"items": [3], "next_cursor": None}]
    answers = [(200, "application/json", json.dumps(page)) for page in pages]
    with _client(*answers) as (client, seen):
        assert list(client.pages("/v1/keys")) == [1, 2, 3]
    assert seen[1]["path"] == "/v1/keys?cursor=abc"


@pytest.mark.parametrize(
    ("status", "code"),
    [(401, ExitCode.REFUSED), (403, ExitCode.REFUSED), (404, ExitCode.REFUSED), (409, ExitCode.FAILED), (500, 1)],
)
def test_a_problem_becomes_a_sentence_with_the_exit_code_of_its_kind(status: int, code: int) -> None:
    with (
        _client(_problem(status, detail="It is so.")) as (client, _),
        pytest.raises(NodeRefused, match=r"It is so\.") as caught,
    ):
        client.get("/v1/whoami")
    assert caught.value.exit_code == code
    assert caught.value.mend


def test_a_rejected_document_says_its_reason() -> None:
    problem = _problem(422, code="document-rejected", detail="It has a password.", reason="encrypted")
    with _answering(problem) as (url, seen), NodeClient(url, None) as client, pytest.raises(NodeRefused) as caught:
        client.upload("docs", "a b/ü?.pdf", b"%PDF", "application/pdf")
    assert caught.value.reason == "encrypted"
    assert seen[0]["path"] == "/v1/collections/docs/documents/a%20b/%C3%BC%3F.pdf"


def test_an_answer_that_is_no_problem_document_still_gives_a_sentence() -> None:
    with _client((502, "text/html", "<h1>Bad gateway</h1>")) as (client, _), pytest.raises(NodeRefused, match="502"):
        client.get("/v1/whoami")


def test_an_answer_that_is_no_json_at_all_is_not_a_node() -> None:
    with (
        _client((200, "text/html", "<h1>Hello</h1>")) as (client, _),
        pytest.raises(CommandError, match="not a Hopnode node"),
    ):
        client.get("/v1/whoami")


def test_nobody_listening_is_said_with_the_address_and_what_to_do() -> None:
    with _answering((200, "application/json", "{}")) as (url, _):
        pass
    with NodeClient(url, None) as client, pytest.raises(CommandError, match=url) as caught:
        client.get("/v1/whoami")
    assert "hopnode serve" in caught.value.mend


def _event(number: int, kind: str, **data: Any) -> str:
    return f"id: {number}\nevent: {kind}\ndata: {json.dumps({'seq': number, 'kind': kind, 'data': data})}\n\n"


END = 'event: end\ndata: {"search_id": "s", "status": "succeeded", "last_step": 3}\n\n'


def test_a_broken_event_stream_goes_on_after_the_last_step() -> None:
    first = ": ok\nretry: 10\n\n" + _event(1, "action", turn=1) + _event(2, "prune", turn=1)
    second = _event(3, "end", stop_reason="answered") + END
    answers = [(200, "text/event-stream", first), (200, "text/event-stream", second)]
    with _client(*answers) as (client, seen):
        steps = [(event.number, event.kind, event.data) for event in client.follow("s")]
    assert steps == [(1, "action", {"turn": 1}), (2, "prune", {"turn": 1}), (3, "end", {"stop_reason": "answered"})]
    assert [request["path"].rpartition("?")[2] for request in seen] == ["after=0", "after=2"]


def test_a_stream_that_never_gets_anywhere_ends_with_an_error() -> None:
    with (
        _client((200, "text/event-stream", ": ok\n\n")) as (client, seen),
        pytest.raises(CommandError, match="broke off"),
    ):
        list(client.follow("s"))
    assert len(seen) > 1


def test_events_are_read_by_the_rules_of_the_standard() -> None:
    stream = [": comment", "", "event: a", "id: 7", "data: {", 'data: "x": 1}', "", "data:[2]", "", "event: lost", ""]
    assert list(read_events(stream)) == [NodeEvent(7, "a", {"x": 1}), NodeEvent(0, "message", [2])]  # type: ignore[arg-type]
