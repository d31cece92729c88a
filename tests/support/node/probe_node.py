"""Programs of a node that runs nothing but probe jobs: `supervisor ROLE`, `worker ROLE` and `embedded`.

A probe job takes the seconds that its request names, and writes into a run log (`PROBE_LOG`) that it lives. Settings come
from the environment, as they do for the real programs.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from pydantic import JsonValue

from hopnode.worker import logs
from hopnode.worker.queue.dispatch import ThreadDispatcher
from hopnode.worker.queue.job_context import JobContext
from hopnode.worker.queue.maintenance import MaintenanceThreads
from hopnode.worker.queue.queue_duties import queue_duties
from hopnode.worker.queue.runner import QueueRunner
from hopnode.worker.queue.supervised_worker import run_supervised_worker
from hopnode.worker.queue.worker_process import run_worker
from hopnode.worker.settings import WorkerSettings
from hopnode.worker.store.database import Database
from support.node.queue import Probe
from support.node.run_log import write_line

BEAT_SECONDS = 0.1


def run_probe(_: Probe, context: JobContext) -> JsonValue:
    """Lives for as long as the request says, and notes start, life and end."""
    log, job = Path(os.environ["PROBE_LOG"]), context.job
    who = {"job": job.id, "token": job.lease_token, "attempt": job.attempt, "pid": os.getpid()}
    write_line(log, at=time.time(), event="start", **who)
    context.step("start", {"pid": os.getpid()})
    alive_at = time.time()
    until = time.monotonic() + float(str(job.request["seconds"]))
    while time.monotonic() < until:
        alive_at = time.time()  # read before the check: what is written was true even if the process freezes in between
        context.check()
        write_line(log, at=alive_at, event="alive", **who)
        time.sleep(BEAT_SECONDS)
    write_line(log, at=alive_at, event="end", **who)
    return {"attempt": job.attempt}


@contextmanager
def open_runner(settings: WorkerSettings) -> Generator[QueueRunner[Probe]]:
    """A runner for probe jobs, over its own connections."""
    db = Database(settings.sql_url)
    try:
        yield QueueRunner(Probe(db, settings), {"probe": run_probe})
    finally:
        db.close()


def embedded(settings: WorkerSettings) -> None:
    """Threads and duties in one process, until SIGTERM."""
    logs.configure(settings.log_level, settings.log_format)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with open_runner(settings) as runner:
        slots = {"agent": settings.agent_slots, "sync": settings.sync_slots}
        dispatcher = ThreadDispatcher(runner, slots, settings.poll_seconds)
        db = Database(settings.sql_url)
        duties = MaintenanceThreads(db, queue_duties(db, settings, dispatcher))
        dispatcher.start()
        duties.start()
        stop.wait()
        duties.stop()
        dispatcher.stop(settings.shutdown_seconds)
        db.close()


def main() -> None:
    """Runs the program that the command line names."""
    settings = WorkerSettings()
    program, *roles = sys.argv[1:]
    if program == "embedded":
        embedded(settings)
    elif program == "supervisor":
        logs.configure(settings.log_level, settings.log_format)
        worker = [sys.executable, "-m", "support.node.probe_node", "worker", roles[0]]
        sys.exit(run_supervised_worker(settings, roles[0], worker))
    else:
        run_worker(settings, roles[0], lambda: open_runner(settings))


if __name__ == "__main__":
    main()
