"""Keeps one child process alive: starts it again with a growing pause, hands stop signals on, ends with it.

A Celery worker can end by itself when several connections to Redis break in a row. No job is lost by that, but somebody
has to start the worker again. What the child does is not known here.
"""

import atexit
import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from types import FrameType

from hopnode.worker.logs import get_logger
from hopnode.worker.settings import SUPERVISED

PAUSE_SECONDS, PAUSE_MOST_SECONDS, STEADY_SECONDS = 0.5, 30.0, 10.0
"""Pause before a restart, doubled each time up to the most; a child that lived for the steady time starts it over."""

_log = get_logger(__name__)


def supervise(argv: Sequence[str], *, environment: Mapping[str, str] | None = None, grace_seconds: float = 40.0) -> int:
    """Runs `argv` until SIGTERM or SIGINT, and returns the last exit code; call it from the main thread.

    `environment` is added to this process's own. After a signal the child has `grace_seconds`, then it is killed.
    """
    stopping = threading.Event()
    pause = PAUSE_SECONDS
    with _stop_signals(stopping):
        while True:
            started = time.monotonic()
            code = _run_once(argv, dict(environment or {}), stopping, grace_seconds)
            if stopping.is_set():
                return code
            lived = time.monotonic() - started
            pause = PAUSE_SECONDS if lived >= STEADY_SECONDS else pause
            _log.warning("worker_exited", exit_code=code, lived_seconds=round(lived, 1), restart_in_seconds=pause)
            if stopping.wait(pause):
                return code
            pause = min(pause * 2, PAUSE_MOST_SECONDS)


def end_with_supervisor(grace_seconds: float) -> None:
    """In the child: stops this process group when the supervisor is gone, gently first, by force after the grace."""

    def end_group() -> None:
        os.killpg(0, signal.SIGKILL)

    def watch() -> None:
        while os.read(0, 1024):
            pass
        _log.warning("supervisor_gone")
        atexit.register(end_group)  # a child that ends in time must not leave its own children behind
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(grace_seconds)
        end_group()

    threading.Thread(target=watch, name="supervisor-watch", daemon=True).start()


def _run_once(argv: Sequence[str], environment: dict[str, str], stopping: threading.Event, grace: float) -> int:
    """One life of the child, in a process group of its own, so that its own children end with it."""
    child = subprocess.Popen(  # noqa: S603 - our own command line
        argv, stdin=subprocess.PIPE, env=os.environ | environment | {SUPERVISED: "1"}, start_new_session=True
    )
    _log.info("worker_started", pid=child.pid)
    try:
        while child.poll() is None and not stopping.wait(0.1):
            pass
        if child.poll() is None:
            child.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(grace)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        if child.stdin:
            child.stdin.close()
    return child.wait()


@contextlib.contextmanager
def _stop_signals(stopping: threading.Event) -> Generator[None]:
    def note(_number: int, _frame: FrameType | None) -> None:
        stopping.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
