"""The Celery application that carries wake-ups through Redis, and how a worker process of each role is started.

A message is a bare "look into the job table", and names no job. So losing or doubling one costs time only. The settings
are those under which no job suffered when we killed workers, connections and Redis (`tests/e2e/losses/test_chaos.py`).
"""

import os
import sys
from collections.abc import Callable
from typing import Any

from celery import Celery, signals

from hopnode.worker.errors import ConfigurationError
from hopnode.worker.settings import WorkerSettings

ROLES = ("agent", "sync")
"""Queue names as well: `agent` runs searches and evaluations in threads, `sync` runs syncs in forked processes."""

RUN_NEXT = "hopnode.run_next"
"""Name of the one task: run the next job of a role, whichever that is."""

TRANSPORT_OPTIONS: dict[str, Any] = {
    "global_keyprefix": "hopnode:",
    "visibility_timeout": 3600,
    "unacked_restore_interval": 10,
    "unacked_restore_throttle": 1,
    "socket_timeout": 10,
    "socket_connect_timeout": 3,
    "socket_keepalive": True,
    "health_check_interval": 25,
    "queue_order_strategy": "priority",
}

_DELIVERY: dict[str, Any] = {
    "task_acks_late": True,
    "worker_prefetch_multiplier": 1,
    "task_reject_on_worker_lost": False,  # the reaper brings jobs back, bounded by their attempts
    "worker_cancel_long_running_tasks_on_connection_loss": False,  # Celery 6 turns the default round
    "task_ignore_result": True,
    "result_backend": None,
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,  # the default gives up after 100 attempts
    "accept_content": ["json"],
    "task_serializer": "json",
    "worker_send_task_events": False,
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,  # our log lines go to stderr as they are
}


def make_app(settings: WorkerSettings, role: str | None = None) -> Celery:
    """The application; with `role` also what a worker of that role needs. Raises `ConfigurationError` without Redis."""
    if not settings.redis_url:
        raise ConfigurationError("HOPNODE_REDIS_URL is not set: server mode needs Redis, `hopnode serve` does not.")
    app = Celery("hopnode", broker=settings.redis_url, set_as_current=False)
    app.conf.update(_DELIVERY, broker_transport_options=dict(TRANSPORT_OPTIONS))
    if role == "sync":
        app.conf.update(
            task_time_limit=settings.sync_time_limit_seconds,
            worker_max_tasks_per_child=200,
            worker_max_memory_per_child=700_000,  # kB; a child that grew is replaced after its job
            worker_soft_shutdown_timeout=settings.shutdown_seconds,
        )
    return app


def work(
    settings: WorkerSettings,
    role: str,
    *,
    run_next: Callable[[str], None],
    stopping: Callable[[], None],
    stopped: Callable[[], None],
) -> None:
    """Runs a Celery worker of `role` in this process until a signal ends it, and the process with it.

    `run_next` is the body of the one task. `stopping` is called when the shutdown begins; `stopped` at its end, in each
    pool child as well.
    """
    if role == "sync":  # SIGTERM: wait for a while, then end although a child is busy; read when the pool is imported
        os.environ["REMAP_SIGTERM"] = "SIGQUIT"
    app = make_app(settings, role)

    def on_stopping(**_: object) -> None:
        stopping()

    def on_stopped(**_: object) -> None:
        stopped()

    app.task(name=RUN_NEXT)(run_next)
    signals.worker_shutting_down.connect(on_stopping, weak=False)
    signals.worker_process_shutdown.connect(on_stopped, weak=False)
    signals.worker_shutdown.connect(on_stopped, weak=False)
    app.worker_main(celery_arguments(settings, role))


def celery_arguments(settings: WorkerSettings, role: str) -> list[str]:
    """Arguments of `Celery.worker_main` for a worker of `role`; the name stays the same over restarts."""
    pool, slots = ("threads", settings.agent_slots) if role == "agent" else ("prefork", settings.sync_slots)
    return [
        "--quiet",  # no banner between our log lines
        "worker",
        f"--pool={pool}",
        f"--concurrency={slots}",
        f"--queues={role}",
        f"--hostname={role}-{os.getppid()}@%h",
        "--loglevel=WARNING",
        "--without-mingle",
        "--without-gossip",
    ]


def worker_argv(settings: WorkerSettings, role: str) -> list[str]:
    """Command line of a worker process, for `supervise`; the process reads its settings from the environment again.

    Raises `ConfigurationError` without Redis or for a role that does not exist.
    """
    if role not in ROLES:
        raise ConfigurationError(f"There is no worker role `{role}`; use one of: {', '.join(ROLES)}.")
    make_app(settings)
    return [sys.executable, "-P", "-m", "hopnode.worker.tasks", role]
