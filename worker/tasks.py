"""Which code runs which kind of job, and the program of a worker process: `python -m worker.tasks agent|sync`."""

import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

from pydantic import JsonValue

from worker.job_context import JobContext
from worker.job_runner import QueueRunner
from worker.runtime import Runtime, open_runtime
from worker.search_job import run_search_job
from worker.settings import WorkerSettings
from worker.worker_process import run_worker

JobHandler = Callable[[Runtime, JobContext], JsonValue]

HANDLERS: Mapping[str, JobHandler] = {"search": run_search_job}
"""The story of each kind of job; what it returns is the job's result."""


class JobRunner(QueueRunner[Runtime]):
    """Runs the node's jobs in this process."""

    def __init__(self, runtime: Runtime, handlers: Mapping[str, JobHandler] = HANDLERS) -> None:
        super().__init__(runtime, handlers)


@contextmanager
def open_runner(settings: WorkerSettings) -> Generator[JobRunner]:
    """A runner with a runtime of its own, for a worker process of a server-mode node."""
    runtime = open_runtime(settings, embedded=False)
    try:
        yield JobRunner(runtime)
    finally:
        runtime.close()


def main() -> None:
    """Runs a worker of the role that the command line names, with the settings of the environment."""
    settings = WorkerSettings()
    run_worker(settings, sys.argv[1], lambda: open_runner(settings))


if __name__ == "__main__":
    main()
