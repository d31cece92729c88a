"""The program of a Celery worker process: `python -m hopnode.worker.tasks agent|sync`; settings come from the environment."""

import sys

from hopnode.worker.job_handlers import open_runner
from hopnode.worker.queue.worker_process import run_worker
from hopnode.worker.settings import WorkerSettings


def main(arguments: list[str]) -> None:
    """Runs a worker of the role that the command line names, until it is told to stop."""
    settings = WorkerSettings()
    run_worker(settings, arguments[0], lambda: open_runner(settings))


if __name__ == "__main__":
    main(sys.argv[1:])
