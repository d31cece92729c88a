"""What the processes of a node run: which story belongs to which kind of job, and the duties of the house.

The one place that knows all stories; the queue's two ends stay free of them.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

from pydantic import JsonValue

from hopnode.connectors.egress import WEBHOOK_SETTINGS, EgressPolicy
from hopnode.worker.corpus.corpus import Corpora
from hopnode.worker.errors import Conflict, NotFound
from hopnode.worker.evaluation.job import run_evaluation_job
from hopnode.worker.logs import get_logger
from hopnode.worker.queue.dispatch import Dispatcher
from hopnode.worker.queue.job_context import JobContext
from hopnode.worker.queue.maintenance import MaintenanceDuty, MaintenanceThreads
from hopnode.worker.queue.queue_duties import queue_duties
from hopnode.worker.queue.runner import QueueRunner
from hopnode.worker.runtime import Runtime, open_runtime
from hopnode.worker.searches.job import run_search_job
from hopnode.worker.settings import WorkerSettings
from hopnode.worker.store.database import Database
from hopnode.worker.store.sources import sources
from hopnode.worker.syncs.job import run_sync_job
from hopnode.worker.webhooks.deliverer import Deliverer

JobHandler: TypeAlias = Callable[[Runtime, JobContext], JsonValue]

HANDLERS: Mapping[str, JobHandler] = {
    "search": run_search_job,
    "sync": run_sync_job,
    "evaluation": run_evaluation_job,
}

VECTOR_SECONDS = 5.0
SCHEDULE_SECONDS = 15.0

_log = get_logger(__name__)


def make_runner(runtime: Runtime) -> QueueRunner[Runtime]:
    """Runs searches, syncs and evaluations over the open runtime."""
    return QueueRunner(runtime, HANDLERS)


@contextmanager
def open_runner(settings: WorkerSettings) -> Generator[QueueRunner[Runtime]]:
    """For a worker process of server mode: a runner over a runtime of its own, which sends what is due beside its jobs."""
    runtime = open_runtime(settings, embedded=False)
    try:
        deliverer = make_deliverer(runtime)
        deliverer.start()
        try:
            yield make_runner(runtime)
        finally:
            deliverer.stop()
    finally:
        runtime.close()


def make_deliverer(runtime: Runtime) -> Deliverer:
    """What sends webhooks and callbacks; every process of a node has one."""
    settings = runtime.settings
    policy = EgressPolicy(settings.webhook_allow_hosts, settings.webhook_allow_cidrs, WEBHOOK_SETTINGS)
    return Deliverer(runtime.db, runtime.vault, policy)


def make_maintenance(runtime: Runtime, dispatcher: Dispatcher) -> MaintenanceThreads:
    """All duties of a node, for the process that serves the API."""
    db = runtime.db
    duties = [
        *queue_duties(db, runtime.settings, dispatcher),
        MaintenanceDuty("vectors", VECTOR_SECONDS, lambda: _drain(runtime.corpora)),
        MaintenanceDuty("schedule", SCHEDULE_SECONDS, lambda: start_due_syncs(db, dispatcher)),
    ]
    return MaintenanceThreads(db, duties)


def start_due_syncs(db: Database, dispatcher: Dispatcher) -> None:
    """Queues a sync for every source whose interval has passed."""
    for source in sources.due_sources(db):
        try:
            sync = sources.create_sync(db, source.workspace_id, source.id)
        except (Conflict, NotFound):  # started by somebody else meanwhile, or deleted
            continue
        _log.info("sync_scheduled", workspace=source.workspace_id, source=source.id, sync=sync.id)
        dispatcher.kick("sync")


def _drain(corpora: Corpora) -> None:
    if applied := corpora.drain_vectors():
        _log.info("vectors_applied", count=applied)
