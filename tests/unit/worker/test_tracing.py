"""One search is one trace, from the caller's request to the model's; without a collector nobody notices anything."""

import socket
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs
from support.node.http_node import serve_node
from support.node.queue import wait_until
from support.servers.trace_collector import SentSpan, TraceCollector

from hopnode.worker import tracing
from hopnode.worker.inference.scripted import Reply, ScriptedChatServer, ServerRequest, final, use
from hopnode.worker.job_handlers import HANDLERS

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
PLANTED = ("Zanzibar-in-the-question", "Quetzalcoatl-in-the-document", "sk-planted-key", "planted-shelf")


def search_then_end(request: ServerRequest) -> Reply:
    messages: Any = request.body["messages"]
    asked = any(one["role"] == "tool" for one in messages)
    return final("none") if asked else use(("search_corpus", {"query": "ferry Nordlys"}))


@pytest.fixture
def collector() -> Generator[TraceCollector]:
    with TraceCollector() as running:
        yield running


def ancestors(span: SentSpan, spans: list[SentSpan]) -> list[str]:
    """The names of the spans above this one, the nearest first."""
    above = next((one for one in spans if one.id == span.parent), None)
    return [above.name, *ancestors(above, spans)] if above else []


def run_search(folder: Path, settings: dict[str, Any], headers: dict[str, str]) -> tuple[dict[str, Any], Any]:
    """One search by the agent with the scripted model; what the node told of it, and the model's requests."""
    with ScriptedChatServer(search_then_end) as chat:
        settings = {"chat_url": chat.url, "chat_model": "scripted", "chat_api_key": PLANTED[2]} | settings
        with serve_node(folder, settings, handlers=HANDLERS) as node:
            tenant = node.tenant()
            tenant.collection(PLANTED[3])
            tenant.put("ferry", f"The ferry Nordlys. {PLANTED[1]}", PLANTED[3])
            body = {
                "query": f"Which ferry? {PLANTED[0]}",
                "collection": PLANTED[3],
                "mode": "agent",
                "effort": "medium",
            }
            made = tenant.http.post("/v1/searches", json=body, headers=headers | {"Prefer": "wait=30"})
            assert made.status_code == 201, made.text
            return made.json(), chat.requests


def test_one_search_is_one_trace_from_the_callers_request_over_threads_to_the_model(
    tmp_path: Path, collector: TraceCollector
) -> None:
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "X-Request-Id": "asked-by-n8n"}
    found, asked = run_search(tmp_path, {"otlp_endpoint": collector.url, "otlp_headers": "x-team=search"}, headers)
    assert found["status"] == "succeeded"
    mine = [span for span in collector.spans if span.trace == TRACE]
    (request,) = [span for span in mine if span.parent == PARENT]
    assert (request.name, request.attributes["http.route"]) == ("request", "/v1/searches")
    (job,) = [span for span in mine if span.name == "job search"]
    assert (job.parent, job.links) == (request.id, (request.id,))
    assert job.attributes["hopnode.job"] == found["id"]
    calls = [span for span in mine if span.name == "chat call"]
    tools = [span for span in mine if span.name == "tool search_corpus"]
    assert len(calls) == len(asked) >= 4, "two runs side by side, two turns each"
    assert len(tools) >= 2
    assert all(ancestors(span, mine) == ["job search", "request"] for span in [*calls, *tools])
    sent = {request.headers["traceparent"] for request in asked}
    assert sent == {f"00-{TRACE}-{span.id}-01" for span in calls}
    assert {one["x-team"] for one in collector.headers} == {"search"}


def test_spans_hold_no_text_of_questions_and_documents_no_secret_and_no_name(
    tmp_path: Path, collector: TraceCollector
) -> None:
    run_search(tmp_path, {"otlp_endpoint": collector.url}, {})
    assert collector.named("chat call")
    everything = b"".join(collector.bodies)
    assert [word for word in PLANTED if word.encode() in everything] == []


def test_a_collector_that_is_away_costs_one_line_in_the_log(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with capture_logs() as lines:
        found, _ = run_search(tmp_path, {"otlp_endpoint": nobody}, {})
    assert found["status"] == "succeeded"
    assert [line["event"] for line in lines].count("traces_not_sent") == 1


def test_without_a_collector_no_span_is_made_and_no_header_is_sent(tmp_path: Path) -> None:
    _, asked = run_search(tmp_path, {}, {"traceparent": f"00-{TRACE}-{PARENT}-01"})
    assert asked and all("traceparent" not in request.headers for request in asked)
    with tracing.span("one") as first, tracing.span("two") as second:
        assert first is second, "one and the same nothing"
        assert tracing.headers() == {}


def test_the_lines_of_a_job_carry_the_id_of_the_request_that_ordered_it(tmp_path: Path) -> None:
    with capture_logs([structlog.contextvars.merge_contextvars]) as lines:
        found, _ = run_search(tmp_path, {}, {"X-Request-Id": "asked-by-n8n"})
        wait_until(lambda: any(line["event"] == "job_finished" for line in lines), 10, "the job says that it ended")
    mine = [line for line in lines if line.get("job") == found["id"]]
    assert {"job_claimed", "job_finished"} <= {line["event"] for line in mine}
    assert {line["request_id"] for line in mine} == {"asked-by-n8n"}


def test_no_line_of_the_log_holds_text_of_questions_or_documents_or_a_secret(tmp_path: Path) -> None:
    with capture_logs([structlog.contextvars.merge_contextvars]) as lines:
        run_search(tmp_path, {}, {})
    told = repr(lines)
    assert "job_finished" in told
    assert [word for word in PLANTED if word in told] == []


@pytest.mark.parametrize("header", ["", "00-zz-zz-01", "garbage", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_a_header_that_is_no_trace_begins_a_trace_of_its_own(collector: TraceCollector, header: str) -> None:
    stop = tracing.start(collector.url)
    with tracing.joined(header), tracing.span("work"):
        pass
    stop()
    (span,) = collector.spans
    assert span.parent == "" and int(span.trace, 16) > 0
