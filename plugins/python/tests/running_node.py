"""Starts `hopnode serve` on a free port with a data folder of its own, and a chat endpoint that only thinks."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

START_SECONDS = 90.0
REFUSED = "REFUSED"


class RunningNode:
    """A node in a process of its own, up within the block."""

    def __init__(self, command: str, root: Path, home: Path, settings: Mapping[str, str] | None = None) -> None:
        self.home = home
        self.data = home / ".hopnode"
        self._command = [command, "serve", "--port", "0"]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HOPNODE_")}
        chosen = {f"HOPNODE_{name.upper()}": value for name, value in (settings or {}).items()}
        self._environment = kept | chosen | {"HOPNODE_DATA_DIR": str(self.data), "PYTHONPATH": str(root)}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Starts the node; returns when it answers."""
        with (self.home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command, env=self._environment, cwd=self.home, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        wait_until(lambda: self._told() is not None or self._process.poll() is not None, START_SECONDS)
        assert self._process.poll() is None, (self.home / "log").read_text()

    def stop(self) -> None:
        """Tells the node to stop, and waits until it has."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)

    def restart(self) -> None:
        """Stops the node and starts it on the same port."""
        port = self.url.rpartition(":")[2]
        self.stop()
        self._command = [*self._command[:-1], port]
        self.start()

    @property
    def url(self) -> str:
        """Where it listens."""
        told = self._told()
        assert told is not None
        return told

    @property
    def key(self) -> str:
        """Its first key, as the file holds it."""
        return (self.data / "api_key").read_text()

    def _told(self) -> str | None:
        try:
            told = json.loads((self.data / "node.json").read_text())
        except (OSError, ValueError):
            return None
        return told["url"] if told.get("pid", self._process.pid) == self._process.pid else None


class ThinkingModel:
    """A chat endpoint that takes questions and answers none until the block ends; one with the word REFUSED it refuses."""

    def __init__(self) -> None:
        self._end = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        end = self._end

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if REFUSED.encode() not in asked:
                    end.wait()
                with contextlib.suppress(OSError):
                    self.send_error(400)

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing."""

        return Handler


class Site:
    """A small website: a page, and another one that it links to."""

    pages: Mapping[str, str] = {
        "/": "<title>Port</title><p>Lindholm has a port. It is old and well kept.</p><a href='/quay'>The quay</a>",
        "/quay": "<title>Quay</title><p>The quay of Lindholm is ninety metres long, and ships of all kinds land there.</p>",
    }

    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        self.url = f"http://{self.host}/"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        pages = self.pages

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = pages.get(self.path)
                self.send_response(200 if page else 404)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write((page or "").encode())

            def log_message(self, format: str, *args: object) -> None:
                """Says nothing."""

        return Handler


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Looks until the condition holds; fails after some seconds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"not true within {seconds} s"
        time.sleep(0.02)
