"""A proxy on loopback that passes requests to the real node, notes them, and fails once where a test says so."""

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

import httpx


@dataclass(frozen=True)
class Fault:
    """What goes wrong: an answer with `status`, or a cut connection.

    The cut comes before the node hears of the request, after it was `passed` on, or after `after` bytes of a stream.
    """

    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    passed: bool = False
    after: int = 0


@dataclass(frozen=True)
class Seen:
    """A request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class UnreliableWire:
    """Stands between client and node. `faults` maps the beginning of `METHOD /path` to what goes wrong, in order."""

    def __init__(self, node_url: str) -> None:
        self.seen: list[Seen] = []
        self._faults: list[tuple[str, Fault]] = []
        self._http = httpx.Client(base_url=node_url, timeout=60, trust_env=False)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._http.close()

    def fail(self, start: str, *faults: Fault) -> None:
        """The next requests that begin so meet these faults, one each."""
        self._faults += [(start, fault) for fault in faults]

    def asked(self, start: str) -> list[Seen]:
        """The requests that begin so."""
        return [one for one in self.seen if f"{one.method} {one.path}".startswith(start)]

    def _next_fault(self, seen: Seen) -> Fault | None:
        for place, (start, fault) in enumerate(self._faults):
            if f"{seen.method} {seen.path}".startswith(start):
                del self._faults[place]
                return fault
        return None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        wire = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def __getattr__(self, name: str) -> Callable[[], None]:
                if name.startswith("do_"):  # whatever the method is
                    return self.pass_on
                raise AttributeError(name)

            def pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                sent = {name.lower(): value for name, value in self.headers.items()}
                seen = Seen(self.command, self.path, sent, body)
                wire.seen.append(seen)
                with contextlib.suppress(OSError, httpx.HTTPError):
                    wire._answer(self, seen, wire._next_fault(seen))

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing: the tests read `seen`."""

        return Handler

    def _answer(self, handler: BaseHTTPRequestHandler, seen: Seen, fault: Fault | None) -> None:
        if fault and fault.status:
            self._send(handler, fault.status, fault.headers, fault.body)
        elif fault and not fault.passed and not fault.after:
            self._cut(handler)
        else:
            self._ask(handler, seen, fault)

    def _ask(self, handler: BaseHTTPRequestHandler, seen: Seen, fault: Fault | None) -> None:
        left_out = ("host", "connection", "prefer" if fault and not fault.after else "")  # a cut comes at once
        headers = {name: value for name, value in seen.headers.items() if name not in left_out}
        with self._http.stream(seen.method, seen.path, headers=headers, content=seen.body) as answer:
            if fault and not fault.after:
                answer.read()
                self._cut(handler)
                return
            kept = ("content-length", "connection", "transfer-encoding", "content-encoding")
            told = {name: value for name, value in answer.headers.items() if name not in kept}
            if answer.headers.get("content-type", "").startswith("text/event-stream"):
                self._stream(handler, answer, told, fault)
            else:
                self._send(handler, answer.status_code, told, answer.read())

    def _send(self, handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes) -> None:
        handler.send_response_only(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    def _stream(
        self, handler: BaseHTTPRequestHandler, answer: httpx.Response, headers: dict[str, str], fault: Fault | None
    ) -> None:
        """A stream until it ends, or until as many bytes as the fault says; its end is the end of the connection."""
        handler.close_connection = True
        handler.send_response_only(answer.status_code)
        for name, value in (headers | {"Connection": "close", "Transfer-Encoding": "chunked"}).items():
            handler.send_header(name, value)
        handler.end_headers()
        left = fault.after if fault else None
        for piece in answer.iter_raw():
            part = piece if left is None else piece[:left]
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            if left is not None and (left := left - len(part)) <= 0:
                self._cut(handler)
                return
        handler.wfile.write(b"0\r\n\r\n")

    def _cut(self, handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        handler.connection.shutdown(socket.SHUT_RDWR)
