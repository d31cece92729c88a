"""A node inside this process: runtime, job threads or kicks, maintenance and the HTTP server in a thread of its own.

Used by `serve` and `api`, and by client commands that find no running node. Knows no command and prints nothing.
"""

import errno
import logging
import socket
import threading
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal

from hopnode.node_service.commands.terminal.exits import CommandError
from hopnode.node_service.settings import ServiceSettings
from hopnode.worker.settings import WorkerSettings

if TYPE_CHECKING:
    import uvicorn

    from hopnode.worker.queue.dispatch import Dispatcher
    from hopnode.worker.runtime import Runtime

START_SECONDS = 30.0
DRAIN_SECONDS = 2
STOP_SECONDS = 5.0
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what to dial when a node listens everywhere

Mode = Literal["embedded", "server"]


class HostedNode:
    """One running node. Made by `start`, ended by `stop`; `url` is where it answers on this machine."""

    def __init__(self, url: str, server: "uvicorn.Server", thread: threading.Thread, cleanup: ExitStack) -> None:
        self.url = url
        self._server = server
        self._thread = thread
        self._cleanup = cleanup

    @classmethod
    def start(cls, settings: WorkerSettings, service: ServiceSettings, mode: Mode = "embedded") -> "HostedNode":
        """Opens the data folder and listens; returns when the server accepts connections.

        Raises DataFolderInUse, StoreUnavailable or ConfigurationError, and CommandError for a port that is taken.
        """
        from hopnode.worker.runtime import open_runtime

        with ExitStack() as cleanup:
            runtime = open_runtime(settings, embedded=mode == "embedded", hosts_chroma=mode == "server")
            cleanup.callback(runtime.close)
            listener = bind(service.host, service.port)
            cleanup.callback(listener.close)
            dispatcher = _start_working(runtime, mode, cleanup)
            server = _make_server(runtime, service, dispatcher)
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="http", daemon=True)
            thread.start()
            node = cls(_url(service.host, listener), server, thread, cleanup.pop_all())
        try:
            node.wait_until_listening()
        except BaseException:
            node.stop()
            raise
        return node

    def wait_until_listening(self) -> None:
        """Blocks until the server accepts connections. Raises CommandError when it does not come up."""
        deadline = time.monotonic() + START_SECONDS
        while not self._server.started:
            if not self.alive or time.monotonic() > deadline:
                raise CommandError(
                    "The HTTP server did not come up.", "Run `hopnode --debug serve` and read what it logs."
                )
            time.sleep(0.01)

    @property
    def alive(self) -> bool:
        """Whether the HTTP server still runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Answers what is under way for a moment, then ends everything; running jobs go back to the queue."""
        self._server.should_exit = True
        self._thread.join(DRAIN_SECONDS + STOP_SECONDS)
        self._cleanup.close()


def bind(host: str, port: int) -> socket.socket:
    """A bound socket; port 0 picks a free one. CommandError says what to do when the port is taken."""
    listener = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        if listener:
            listener.close()
        if error.errno == errno.EADDRINUSE:
            raise CommandError(
                f"Port {port} of {host} is taken by another program.",
                "Choose another with --port or HOPNODE_PORT; 0 picks a free one.",
            ) from error
        raise CommandError(
            f"Nothing can listen on {host}, port {port}: {error.strerror}.",
            "Choose an address of this machine with --host or HOPNODE_HOST (0.0.0.0 for all), and a port from 1024 on.",
        ) from error
    return listener


def _url(host: str, listener: socket.socket) -> str:
    name = _ANY_ADDRESS.get(host, host)
    return f"http://{f'[{name}]' if ':' in name else name}:{listener.getsockname()[1]}"


def _start_working(runtime: "Runtime", mode: Mode, cleanup: ExitStack) -> "Dispatcher":
    """Job threads (embedded) or the publisher of kicks (server), and the duties beside them."""
    from hopnode.worker.job_handlers import make_deliverer, make_maintenance, make_runner
    from hopnode.worker.queue.dispatch import CeleryDispatcher, ThreadDispatcher

    settings = runtime.settings
    roles = {"agent": settings.agent_slots, "sync": settings.sync_slots}
    dispatcher: Dispatcher = (
        ThreadDispatcher(make_runner(runtime), roles, settings.poll_seconds)
        if mode == "embedded"
        else CeleryDispatcher(settings)
    )
    dispatcher.start()
    cleanup.callback(dispatcher.stop, STOP_SECONDS)
    maintenance = make_maintenance(runtime, dispatcher)
    maintenance.start()
    cleanup.callback(maintenance.stop)
    deliverer = make_deliverer(runtime)
    deliverer.start()
    cleanup.callback(deliverer.stop)
    return dispatcher


def _make_server(runtime: "Runtime", service: ServiceSettings, dispatcher: "Dispatcher") -> "uvicorn.Server":
    from hopnode.node_service.app import create_app
    from hopnode.node_service.http.server import NodeServer

    # The app answers and logs every exception itself; what is left are tracebacks of requests cut off by a stop.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    return NodeServer(
        create_app(runtime, service, dispatcher),
        log_config=None,
        access_log=False,
        ws="none",
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
