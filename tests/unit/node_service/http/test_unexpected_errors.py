"""The net under every exception: a bare 500 with an id, the details in the log only."""

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.responses import StreamingResponse
from starlette.testclient import TestClient
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from hopnode.node_service.http import problems
from hopnode.node_service.http.request_log import RequestLogMiddleware
from hopnode.node_service.http.request_metrics import NodeMetrics
from hopnode.worker.errors import StoreUnavailable


@pytest.fixture
def client() -> TestClient:
    app = FastAPI()
    problems.install(app, lambda path: ["GET"])

    @app.get("/crash")
    def crash() -> None:
        raise ValueError("the password is hunter2")

    @app.get("/late")
    def late() -> StreamingResponse:
        def parts():
            yield b"first"
            raise ValueError("the password is hunter2")

        return StreamingResponse(parts())

    @app.put("/upload")
    async def upload(request: Request) -> None:
        await request.body()

    @app.get("/store")
    def store() -> None:
        raise StoreUnavailable("The database postgresql://db.internal cannot be used")

    app.add_middleware(RequestLogMiddleware, metrics=NodeMetrics())
    return TestClient(app)


def body(answer: httpx.Response) -> dict[str, object]:
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.json()


def test_an_unexpected_exception_is_a_500_that_tells_nothing_and_a_log_line_that_tells_all(client) -> None:
    with capture_logs(processors=[merge_contextvars]) as logged:
        answer = client.get("/crash", headers={"X-Request-Id": "run-9"})
    assert answer.status_code == 500
    assert body(answer)["code"] == "internal-error"
    assert "hunter2" not in answer.text
    line = next(line for line in logged if line["event"] == "request_failed")
    assert (line["request_id"], line["route"], line["error"]) == ("run-9", "/crash", "ValueError")
    assert line["exc_info"]


def test_an_exception_after_the_first_byte_breaks_the_answer_off(client) -> None:
    with capture_logs() as logged:
        answer = client.get("/late")
    assert "hunter2" not in answer.text
    assert "request_failed" in [line["event"] for line in logged]


def test_a_database_that_is_away_is_a_503_without_its_address(client) -> None:
    answer = client.get("/store")
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert body(answer)["code"] == "store-unavailable"
    assert "db.internal" not in answer.text


def test_a_client_that_hangs_up_in_an_upload_is_a_line_without_a_traceback(client) -> None:
    messages: list[dict[str, Any]] = [
        {"type": "http.request", "body": b"half", "more_body": True},
        {"type": "http.disconnect"},
    ]
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    scope: dict[str, Any] = {
        "type": "http",
        "method": "PUT",
        "path": "/upload",
        "raw_path": b"/upload",
        "query_string": b"",
        "headers": [(b"content-length", b"99")],
        "http_version": "1.1",
        "scheme": "http",
    }
    with capture_logs() as logged:
        asyncio.run(client.app(scope, receive, send))
    assert sent == []
    events = [line["event"] for line in logged]
    assert events == ["client_left", "request_served"]
    assert not any("exc_info" in line for line in logged)
