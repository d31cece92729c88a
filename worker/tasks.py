"""The worker's end of the queue: the one Celery task, and what a Celery worker process opens and closes around it."""

import os
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from celery import signals

from worker import logs
from worker.celery_app import RUN_NEXT, celery_arguments, make_app
from worker.dispatch import CeleryDispatcher
from worker.job_context import JobContext
from worker.job_runner import QueueRunner
from worker.logs import get_logger
from worker.node import open_runner
from worker.settings import WorkerSettings
from worker.supervise import SUPERVISED, end_with_supervisor

__all__ = ["JobContext", "QueueRunner", "WorkerProcess", "run_worker"]

OpenRunner = Callable[[], AbstractContextManager[QueueRunner[Any]]]

_log = get_logger(__name__)


class WorkerProcess:
    """What one process that runs jobs has open. Opened at its first kick, hence after the fork of a pool child.

    Database connections, vector clients and inference sessions do not survive a fork, so the parent opens none.
    """

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
            return self._runner, self._dispatcher


def run_worker(settings: WorkerSettings, role: str, open_runner: OpenRunner) -> None:
    """Runs a Celery worker of `role` in this process until it is told to stop; ends the process."""
    logs.configure(settings.log_level, settings.log_format)
    if os.environ.get(SUPERVISED):
        end_with_supervisor(settings.shutdown_seconds + 10)
    if role == "sync":  # SIGTERM means: wait a while, then end, although a child is still busy
        os.environ["REMAP_SIGTERM"] = "SIGQUIT"
    process = WorkerProcess(settings, open_runner)

    def run_next(role: str) -> None:
        try:
            process.run_next(role)
        except Exception as error:  # noqa: BLE001 - the task is a boundary: the reaper kicks again
            _log.warning("claim_failed", role=role, error=f"{type(error).__name__}: {error}")

    def stopping(**_: object) -> None:
        process.interrupt_after(settings.shutdown_seconds)

    def stopped(**_: object) -> None:
        process.close()

    app = make_app(settings, role)
    app.task(name=RUN_NEXT)(run_next)
    signals.worker_shutting_down.connect(stopping, weak=False)
    signals.worker_process_shutdown.connect(stopped, weak=False)
    signals.worker_shutdown.connect(stopped, weak=False)
    app.worker_main(celery_arguments(settings, role))


def main(arguments: list[str]) -> None:
    """`python -m worker.tasks ROLE`: a Celery worker of this node; settings come from the environment."""
    run_worker(WorkerSettings(), arguments[0], open_runner)


if __name__ == "__main__":
    main(sys.argv[1:])
