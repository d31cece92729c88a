"""Models that play a script: in this process, or behind a real loopback HTTP server. For tests and demos.

They know nothing of what is asked; a script sees each request and decides.
"""

import json
import select
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Generic, Self, TypeAlias, TypeVar, cast

from pydantic import JsonValue

from hopnode.worker.errors import HopnodeError, ModelUnavailable
from hopnode.worker.inference.abort import Abort
from hopnode.worker.inference.chat_wire import completion_body
from hopnode.worker.inference.completions import sampled_body
from hopnode.worker.inference.messages import ChatRequest, Completion, Message, PromptRequest, Sampled, ToolCall


def say(text: str, *, reasoning: str | None = None, finish_reason: str = "stop") -> Completion:
    """A completion that is only text."""
    return Completion(Message("assistant", text, reasoning=reasoning), finish_reason)


def use(*calls: tuple[str, Mapping[str, JsonValue]], text: str = "", reasoning: str | None = None) -> Completion:
    """A completion that calls tools: pairs of name and arguments."""
    made = tuple(
        ToolCall(f"call_{at}", name, json.dumps(dict(arguments), ensure_ascii=False))
        for at, (name, arguments) in enumerate(calls)
    )
    return Completion(Message("assistant", text, tool_calls=made, reasoning=reasoning), "tool_calls")


def final(*ids: str, justification: str = "It answers the question.") -> Completion:
    """A completion that is a final list of documents, best first."""
    return say(
        "\n".join(f'<Document id="{one}"><Justification>{justification}</Justification></Document>' for one in ids)
    )


Request = TypeVar("Request")
Answer = TypeVar("Answer")


class Scripted(Generic[Request, Answer]):
    """Plays lines in order, one a request, or asks one function for every request; keeps the requests.

    A line is an answer, an error to raise, or a function of the request. After the last line: ModelUnavailable.
    """

    def __init__(
        self,
        script: Iterable[Answer | HopnodeError | Callable[[Request], Answer]] | Callable[[Request], Answer],
    ) -> None:
        self._lines: Iterator[Answer | HopnodeError | Callable[[Request], Answer]]
        self._lines = iter(_forever(script)) if callable(script) else iter(list(script))
        self._lock = threading.Lock()
        self.requests: list[Request] = []

    def complete(self, request: Request, abort: Abort | None = None) -> Answer:
        """The next line of the script."""
        if abort is not None and abort.is_set:
            raise ModelUnavailable("The call was broken off.", reason="aborted")
        with self._lock:
            self.requests.append(request)
            line = next(self._lines, None)
        if line is None:
            raise ModelUnavailable("The script of the scripted chat model has ended.", reason="script-ended")
        if isinstance(line, HopnodeError):
            raise line
        return cast(Callable[[Request], Answer], line)(request) if callable(line) else line


def _forever(line: Callable[[Request], Answer]) -> Iterator[Callable[[Request], Answer]]:
    while True:
        yield line


class ScriptedChat(Scripted[ChatRequest, Completion]):
    """A chat model that plays a script."""


class ScriptedSampler(Scripted[PromptRequest, Sampled]):
    """A model that continues token ids, and plays a script."""


ScriptLine: TypeAlias = Completion | HopnodeError | Callable[[ChatRequest], Completion]
SampledLine: TypeAlias = Sampled | HopnodeError | Callable[[PromptRequest], Sampled]


@dataclass(frozen=True)
class Fault:
    """An answer that is no completion; most often one that goes wrong. `drop` closes the connection unanswered;
    `wait_seconds` is how long the server keeps silent first, unless the client hangs up; `body` is sent as it is."""

    status: int = 500
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    wait_seconds: float = 0.0
    drop: bool = False


@dataclass(frozen=True)
class ServerRequest:
    """What reached the scripted server: method, path, headers in lower case and the parsed body, which is empty for a GET;
    `number` from 1."""

    number: int
    method: str
    path: str
    headers: Mapping[str, str]
    body: Mapping[str, JsonValue]


Reply: TypeAlias = Completion | Sampled | Fault


class ScriptedChatServer:
    """A real HTTP server on loopback that speaks the OpenAI forms; a context manager. Port 0 is a free one.

    A `Completion` is answered in the form of `/chat/completions`, a `Sampled` in that of `/completions`. `reply` is called
    for every request, on a thread of its own. `requests` keeps what came, `hung_up` counts clients that left before their
    answer.
    """

    def __init__(self, reply: Callable[[ServerRequest], Reply], port: int = 0) -> None:
        self.reply = reply
        self.requests: list[ServerRequest] = []
        self.hung_up = 0
        self.stopping = threading.Event()
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", port), self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        """The base URL of the API, ends in /v1."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def note_request(
        self, method: str, path: str, headers: Mapping[str, str], body: Mapping[str, JsonValue]
    ) -> ServerRequest:
        """Numbers and keeps a request."""
        with self._lock:
            request = ServerRequest(len(self.requests) + 1, method, path, headers, body)
            self.requests.append(request)
            return request

    def note_hang_up(self) -> None:
        """Counts a client that left before its answer."""
        with self._lock:
            self.hung_up += 1


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # as many connect at once as a node has slots, and more
    block_on_close = True

    def __init__(self, address: tuple[str, int], owner: ScriptedChatServer) -> None:
        self.owner = owner
        super().__init__(address, _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        self._answer(cast(Mapping[str, JsonValue], json.loads(raw)))

    def _answer(self, body: Mapping[str, JsonValue]) -> None:
        owner = cast(_Server, self.server).owner
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = owner.note_request(self.command, self.path, headers, body)
        reply = owner.reply(request)
        self.close_connection = True
        if not isinstance(reply, Fault):
            model = str(request.body.get("model"))
            content = completion_body(reply, model) if isinstance(reply, Completion) else sampled_body(reply, model)
            self._send(200, {"content-type": "application/json"}, json.dumps(content).encode())
            return
        if reply.wait_seconds and self._client_leaves(reply.wait_seconds, owner.stopping):
            owner.note_hang_up()
        elif not reply.drop:
            self._send(reply.status, reply.headers, reply.body)

    def _send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _client_leaves(self, seconds: float, stopping: threading.Event) -> bool:
        """Waits. Returns True when the client closed its side meanwhile or the server stops."""
        waited = 0.0
        while waited < seconds and not stopping.is_set():
            readable, _, _ = select.select([self.connection], [], [], 0.02)
            if readable and not self.connection.recv(1, socket.MSG_PEEK):
                return True
            waited += 0.02
        return stopping.is_set()

    def log_message(self, format: str, *args: object) -> None:
        """The server writes no log; `requests` is its record."""
