"""A loopback collector that takes traces by OTLP over HTTP and keeps every span that it was sent."""

import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class SentSpan:
    """A span as it came over the wire; ids in hexadecimal."""

    name: str
    trace: str
    id: str
    parent: str
    attributes: dict[str, Any]
    links: tuple[str, ...]


class TraceCollector:
    """A context manager; `spans` grows while it runs, `bodies` are the requests as they came, `headers` theirs."""

    def __init__(self) -> None:
        self.spans: list[SentSpan] = []
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                outer.headers.append({name.lower(): value for name, value in self.headers.items()})
                outer._take(self.path, body)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def named(self, name: str) -> list[SentSpan]:
        """The spans of this name that came so far."""
        return [span for span in list(self.spans) if span.name == name]

    def _take(self, path: str, body: bytes) -> None:
        assert path == "/v1/traces"
        self.bodies.append(body)
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                self.spans += [_read(span) for span in scope.spans]


def _read(span: Any) -> SentSpan:
    values = {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}
    links = tuple(link.span_id.hex() for link in span.links)
    return SentSpan(span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(), values, links)
