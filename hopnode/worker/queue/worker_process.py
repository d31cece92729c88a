"""What a Celery worker process has open around the jobs it runs, and when; knows neither jobs nor the node's parts.

Database connections, vector clients and inference sessions do not survive a fork, so a process opens its runner at its
first kick: in a prefork pool that is in the child, and the parent opens none.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from hopnode.worker import garbage_collection, logs
from hopnode.worker.logs import get_logger
from hopnode.worker.queue.celery_app import work
from hopnode.worker.queue.dispatch import CeleryDispatcher, ping_broker
from hopnode.worker.queue.runner import QueueRunner
from hopnode.worker.queue.supervise import end_with_supervisor
from hopnode.worker.queue.table_watch import TableWatch
from hopnode.worker.settings import WorkerSettings, is_supervised

OpenRunner = Callable[[], AbstractContextManager[QueueRunner[Any]]]
"""Opens what the jobs need; the context ends when the process does."""

LINGER_SECONDS = 10.0
"""What a worker without its supervisor gets beyond `shutdown_seconds` before it kills itself."""

BROKER_SECONDS = 2.0
"""How long Redis may take for a sign of life before a worker looks for work without it."""

_log = get_logger(__name__)


class WorkerProcess:
    """The runner and the dispatcher of one process; opened at its first kick."""

    def __init__(self, settings: WorkerSettings, open_runner: OpenRunner) -> None:
        self._settings = settings
        self._open_runner = open_runner
        self._lock = threading.Lock()
        self._opened: ExitStack | None = None
        self._runner: QueueRunner[Any] | None = None
        self._dispatcher: CeleryDispatcher | None = None

    def run_next(self, role: str) -> None:
        """Runs one job, and passes the kick on when there is more to do: a job that ended made room for another."""
        runner, dispatcher = self._open()
        if runner.run_next(role) and runner.more(role):
            dispatcher.kick(role)

    def runner(self) -> QueueRunner[Any]:
        """The runner, opened if need be."""
        return self._open()[0]

    def interrupt_after(self, seconds: float) -> None:
        """Gives running jobs that long, then sends them back to the queue."""
        if self._runner is not None:
            timer = threading.Timer(seconds, self._runner.interrupt)
            timer.daemon = True
            timer.start()

    def close(self) -> None:
        """Closes what was opened; the process ends after this."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def _open(self) -> tuple[QueueRunner[Any], CeleryDispatcher]:
        with self._lock:
            if self._runner is None or self._dispatcher is None:
                with ExitStack() as opening:
                    self._runner = opening.enter_context(self._open_runner())
                    self._dispatcher = CeleryDispatcher(self._settings)
                    self._dispatcher.start()
                    opening.callback(self._dispatcher.stop, 1.0)
                    self._opened = opening.pop_all()
                garbage_collection.settle()
            return self._runner, self._dispatcher


def run_worker(settings: WorkerSettings, role: str, open_runner: OpenRunner) -> None:
    """Runs a Celery worker of `role` in this process until it is told to stop; the process ends with it."""
    logs.configure(settings.log_level, settings.log_format)
    if is_supervised():
        end_with_supervisor(settings.shutdown_seconds + LINGER_SECONDS)
    process = WorkerProcess(settings, open_runner)

    def run_next(role: str) -> None:
        try:
            process.run_next(role)
        except Exception as error:  # noqa: BLE001 - the task is a boundary: the job table still knows what is to do
            _log.warning("claim_failed", role=role, error=f"{type(error).__name__}: {error}")

    def stopping() -> None:
        watch.stop()
        process.interrupt_after(settings.shutdown_seconds)

    watch = TableWatch(
        role,
        settings.agent_slots,
        settings.poll_seconds,
        ask_broker=lambda: ping_broker(settings, BROKER_SECONDS),
        taker=process.runner,
    )
    if role == "agent":  # a worker for syncs forks, so its parent opens nothing: syncs wait until Redis is back
        watch.start()
    work(
        settings,
        role,
        run_next=run_next,
        stopping=stopping,
        stopped=process.close,
    )
