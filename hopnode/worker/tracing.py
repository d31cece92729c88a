"""What joins the work on one request over threads and processes: W3C trace context, spans, and the request's id.

The one module that imports OpenTelemetry, and only where traces were asked for. It knows no job, no route and no model, and
puts no text of documents or questions into a span.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import version
from typing import TYPE_CHECKING, Literal, Protocol

import httpx
import structlog
from pydantic import JsonValue

from hopnode.worker.logs import get_logger

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Tracer

SEND_SECONDS = 5.0
"""Limit for handing one batch of spans to the collector, and for the last ones when a process stops."""
BATCH_MILLISECONDS = 1000

Role = Literal["server", "consumer", "client", "internal"]
Origin = Mapping[str, JsonValue]

_log = get_logger(__name__)
_tracers: list[Tracer] = []


class Note(Protocol):
    """Takes what is known only later about the work of a span: numbers, ids and stable words, never text."""

    def __call__(self, **attributes: str | int | float) -> None: ...  # noqa: D102


def start(endpoint: str | None, headers: str | None = None) -> Callable[[], None]:
    """Sends the spans of this process to the OTLP/HTTP collector at `endpoint` from now on; without one, nothing happens.

    `headers` are those of OTEL_EXPORTER_OTLP_HEADERS, `name=value` with commas between them. Returns what ends it and sends
    the last spans. Call it in the process that works, after any fork: threads do not survive one.
    """
    if not endpoint:
        return lambda: None
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.name": "hopnode", "service.version": version("hopnode")})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = _exporter(f"{endpoint.rstrip('/')}/v1/traces", _pairs(headers))
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=BATCH_MILLISECONDS))
    tracer = provider.get_tracer("hopnode")
    _tracers.append(tracer)

    def stop() -> None:
        _tracers.remove(tracer)
        provider.shutdown()

    return stop


def span(name: str, role: Role = "internal", **attributes: str | int | float) -> AbstractContextManager[Note]:
    """One piece of work as a span of the trace that this thread is in; free of cost while nobody asked for traces."""
    return _span(_tracers[-1], name, role, attributes) if _tracers else nullcontext(_nothing)


@contextmanager
def joined(traceparent: JsonValue, tracestate: JsonValue = None) -> Generator[None]:
    """The block belongs to the trace that these W3C headers name; what they do not name begins a trace of its own."""
    if not (_tracers and isinstance(traceparent, str)):
        yield
        return
    from opentelemetry import context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    carrier = {"traceparent": traceparent} | ({"tracestate": tracestate} if isinstance(tracestate, str) else {})
    token = context.attach(TraceContextTextMapPropagator().extract(carrier, context.Context()))
    try:
        yield
    finally:
        context.detach(token)


def headers() -> dict[str, str]:
    """The W3C headers that carry the present trace to another server; empty outside a trace."""
    carrier: dict[str, str] = {}
    if _tracers:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        TraceContextTextMapPropagator().inject(carrier)
    return carrier


def origin() -> Origin | None:
    """What a job remembers of the request that ordered it: its id and its trace; None where there is neither."""
    request_id = structlog.contextvars.get_contextvars().get("request_id")
    found = ({"request_id": str(request_id)} if request_id else {}) | headers()
    return found or None


@contextmanager
def continued(known: Origin | None) -> Generator[None]:
    """The block goes on with the work of that request: log lines carry its id, spans belong to its trace."""
    known = known or {}
    ids = {"request_id": known["request_id"]} if "request_id" in known else {}
    with structlog.contextvars.bound_contextvars(**ids), joined(known.get("traceparent"), known.get("tracestate")):
        yield


@contextmanager
def _span(tracer: Tracer, name: str, role: Role, attributes: Mapping[str, str | int | float]) -> Generator[Note]:
    from opentelemetry.trace import Link, SpanKind, Status, StatusCode, get_current_span

    ordered_by = get_current_span().get_span_context()
    links = [Link(ordered_by)] if role == "consumer" and ordered_by.is_valid else []
    with tracer.start_as_current_span(
        name,
        kind=SpanKind[role.upper()],
        attributes=attributes,
        links=links,
        record_exception=False,  # its text may hold what a document or a secret says
        set_status_on_exception=False,
    ) as current:

        def note(**more: str | int | float) -> None:
            current.set_attributes({key.replace("__", "."): value for key, value in more.items()})

        try:
            yield note
        except BaseException as error:
            current.set_status(Status(StatusCode.ERROR))
            current.set_attribute("error.type", str(getattr(error, "code", type(error).__name__)))
            raise


def _nothing(**_: str | int | float) -> None:
    return


def _pairs(text: str | None) -> dict[str, str]:
    parts = (part.partition("=") for part in (text or "").split(",") if "=" in part)
    return {name.strip(): value.strip() for name, _, value in parts}


def _exporter(url: str, own_headers: Mapping[str, str]) -> SpanExporter:
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    client = httpx.Client(timeout=SEND_SECONDS, trust_env=False)

    class HttpExporter(SpanExporter):
        """OTLP over HTTP in protobuf; a collector that is away costs the spans, and one line in the log."""

        silent = False

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            """Sends one batch."""
            try:
                content = encode_spans(spans).SerializeToString()
                kinds = {"Content-Type": "application/x-protobuf"}
                client.post(url, content=content, headers={**own_headers, **kinds}).raise_for_status()
            except httpx.HTTPError as error:
                if not self.silent:
                    _log.warning("traces_not_sent", error=type(error).__name__, spans=len(spans))
                self.silent = True
                return SpanExportResult.FAILURE
            self.silent = False
            return SpanExportResult.SUCCESS

        def shutdown(self) -> None:
            """Closes the connection."""
            client.close()

    return HttpExporter()
