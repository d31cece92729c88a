"""A loopback server that speaks the OpenAI embeddings form and misbehaves on demand."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class EmbeddingsServer:
    """`answers` is a list of what the next calls get: a status, a status with headers, or a raw body; then it is good."""

    def __init__(self) -> None:
        self.answers: list[int | tuple[int, dict[str, str]] | bytes] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.hang = False
        self._released = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.requests.append(body)
                outer.headers.append({name.lower(): value for name, value in self.headers.items()})
                if outer.hang:
                    outer._released.wait(5)
                    return
                status, headers, content = outer._answer(body)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        planned = self.answers.pop(0) if self.answers else None
        if isinstance(planned, bytes):
            return 200, {}, planned
        if planned is not None:
            status, headers = planned if isinstance(planned, tuple) else (planned, {})
            return status, headers, b'{"error": {"message": "no"}}'
        data = [
            {"index": index, "object": "embedding", "embedding": [1.0, float(len(text)), 0.5]}
            for index, text in enumerate(body["input"])
        ]
        return 200, {}, json.dumps({"object": "list", "data": list(reversed(data)), "model": body["model"]}).encode()
