"""A receiver of webhooks on loopback whose every whim can be set: it remembers what came, and answers as it is told."""

import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Answer:
    """One answer. `hold` waits for the end of the receiver first; `cut` ends the connection in the middle of the body."""

    status: int = 200
    body: bytes = b"ok"
    headers: Mapping[str, str] = field(default_factory=dict)
    hold: bool = False
    cut: bool = False


@dataclass(frozen=True)
class Call:
    """One request that came."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


class Receiver:
    """Answers with `answers` in order, and with 200 once they are used up."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.answers: deque[Answer] = deque()
        self.ending = threading.Event()
        self._lock = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True
        self.address = f"127.0.0.1:{self.server.server_port}"
        self.url = f"http://{self.address}/hook"

    def take(self, call: Call) -> Answer:
        with self._lock:
            self.calls.append(call)
            return self.answers.popleft() if self.answers else Answer()


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            answer = receiver.take(Call(self.path, {name.lower(): value for name, value in self.headers.items()}, body))
            if answer.hold:
                receiver.ending.wait()
                return
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer.body) + (100 if answer.cut else 0)))
            self.end_headers()
            self.wfile.write(answer.body)
            if answer.cut:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver within the block."""
    receiver = Receiver()
    thread = threading.Thread(target=receiver.server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        receiver.ending.set()
        receiver.server.shutdown()
        receiver.server.server_close()
        thread.join(5)
