"""A loopback server that looks like vLLM to `hopnode model check`: lists models, tells a version, answers from a function."""

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from worker.inference.chat_wire import completion_body
from worker.inference.completions import sampled_body
from worker.inference.messages import Completion, Sampled

Answer = Completion | Sampled | tuple[int, Any]
"""A status with its body where it is no completion."""


class ModelDouble:
    """`posts` has the paths that were asked, each with its body."""

    def __init__(
        self,
        answer: Callable[[str, Mapping[str, Any]], Answer],
        *,
        models: Any = ({"id": "context-1", "max_model_len": 32_768},),
        version: str | None = "0.32.0",
        key: str | None = None,
        port: int = 0,
    ) -> None:
        self.gets: dict[str, Any] = {"/v1/models": {"object": "list", "data": models}, "/health": {}}
        if version:
            self.gets["/version"] = {"version": version}
        self.answer, self.key = answer, key
        self.posts: list[tuple[str, Mapping[str, Any]]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        double = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if double.key and self.headers.get("Authorization") != f"Bearer {double.key}":
                    self.send(401, {"error": "Unauthorized"})
                else:
                    found = double.gets.get(self.path)
                    self.send(404 if found is None else 200, found)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                double.posts.append((self.path, body))
                answer = double.answer(self.path, body)
                if isinstance(answer, tuple):
                    self.send(*answer)
                else:
                    write = completion_body if isinstance(answer, Completion) else sampled_body
                    self.send(200, write(answer, body["model"]))  # type: ignore[operator]

            def send(self, status: int, body: Any) -> None:
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None: ...

        return Handler
