"""What `hopnode worker` is: a supervised Celery worker, and the queue's duties beside it. Opens no corpus and no model."""

from hopnode.worker.queue.celery_app import worker_argv
from hopnode.worker.queue.dispatch import CeleryDispatcher
from hopnode.worker.queue.maintenance import MaintenanceThreads
from hopnode.worker.queue.queue_duties import queue_duties
from hopnode.worker.queue.supervise import supervise
from hopnode.worker.settings import WorkerSettings
from hopnode.worker.store.database import Database

KILL_AFTER_SECONDS = 20.0
"""What a worker gets beyond `shutdown_seconds` before it is killed."""


def run_supervised_worker(settings: WorkerSettings, role: str, argv: list[str] | None = None) -> int:
    """Keeps a worker of `role` alive until SIGTERM or SIGINT, and returns its exit code; call it from the main thread.

    The process reads its settings from the environment again; `argv` replaces its command line. Raises
    `ConfigurationError` without Redis.
    """
    argv = argv or worker_argv(settings, role)
    db = Database(settings.sql_url)
    dispatcher = CeleryDispatcher(settings)
    maintenance = MaintenanceThreads(db, queue_duties(db, settings, dispatcher))
    dispatcher.start()
    maintenance.start()
    try:
        return supervise(argv, grace_seconds=settings.shutdown_seconds + KILL_AFTER_SECONDS)
    finally:
        maintenance.stop()
        dispatcher.stop(1.0)
        db.close()
