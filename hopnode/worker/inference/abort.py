"""Breaking off a model call from another thread: the request to stop, and the socket that is cut. Knows no format."""

import socket
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Protocol, cast


class Abort:
    """Lets another thread end a model call that is in flight. Once set, it stays set."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._actions: list[Callable[[], None]] = []

    def set(self) -> None:
        """Ends the call now; safe to call from any thread, more than once."""
        with self._lock:
            self._event.set()
            for action in self._actions:
                action()

    @property
    def is_set(self) -> bool:
        """Whether the call is to end."""
        return self._event.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleeps; returns early, with True, when the call is to end."""
        return self._event.wait(seconds)

    @contextmanager
    def calling(self, action: Callable[[], None]) -> Generator[None, None, None]:
        """While inside, `set` runs `action`; at once when it was set before."""
        with self._lock:
            self._actions.append(action)
            if self._event.is_set():
                action()
        try:
            yield
        finally:
            with self._lock:
                self._actions.remove(action)


class Line:
    """A second handle on the socket under a request in flight, by which another thread can cut it. The handle is our own. So
    cutting never meets a socket that is being wrapped in TLS, or a closed one whose number somebody else has by now."""

    def __init__(self) -> None:
        self._handle: socket.socket | None = None
        self._is_cut = False

    def trace(self, event: str, info: Mapping[str, object]) -> None:
        """httpx tells what it does; a fresh connection is what we wait for."""
        if event == "connection.connect_tcp.complete":
            stream = cast("_Stream", info["return_value"])
            self._handle = cast(socket.socket, stream.get_extra_info("socket")).dup()
            if self._is_cut:
                self.cut()

    def cut(self) -> None:
        """Shuts the connection down in both directions, which wakes whoever reads from it."""
        self._is_cut = True
        if self._handle is not None:
            with suppress(OSError):
                self._handle.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Gives the handle back; nothing can be cut after that."""
        if self._handle is not None:
            self._handle.close()


class _Stream(Protocol):
    def get_extra_info(self, info: str) -> object: ...
