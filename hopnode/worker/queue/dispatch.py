"""Wakes workers: threads of this process, or Celery workers through Redis. A kick is a hint, never a promise.

Kicks carry no job: whoever wakes up asks the job table what is next, so a lost or doubled kick costs time only.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Mapping
from typing import Any, Protocol

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from hopnode.worker.errors import BrokerUnavailable, ConfigurationError
from hopnode.worker.logs import get_logger
from hopnode.worker.queue.celery_app import RUN_NEXT, make_app
from hopnode.worker.queue.runner import QueueRunner
from hopnode.worker.queue.supervise import supervise
from hopnode.worker.settings import WorkerSettings

__all__ = ["CeleryDispatcher", "Dispatcher", "ThreadDispatcher", "ping_broker", "supervise"]

MOST_PENDING_KICKS = 256
MOST_PAUSE_SECONDS = 10.0
INTERRUPT_SECONDS = 2.0

_log = get_logger(__name__)


class Dispatcher(Protocol):
    """Tells the workers of a role that there may be work; both methods return at once and never raise."""

    def kick(self, role: str) -> None:
        """One more job of `role` may be waiting."""
        ...

    def top_up(self, role: str, wanted: int) -> None:
        """At least `wanted` kicks of `role` should be on their way."""
        ...

    def start(self) -> None:
        """Starts the threads."""
        ...

    def stop(self, timeout: float) -> None:
        """Ends the threads, waiting for `timeout` seconds or little more."""
        ...


class ThreadDispatcher:
    """Embedded mode: threads of this process run the jobs; kicks wake them, and of a role's idle threads one looks by itself
    about every `poll_seconds`, however many there are."""

    def __init__(self, runner: QueueRunner[Any], roles: Mapping[str, int], poll_seconds: float) -> None:
        """`roles` says how many threads each role gets."""
        self._runner = runner
        self._poll_seconds = poll_seconds
        self._slots = dict(roles)
        self._stopping = threading.Event()
        self._kicks: dict[str, queue.Queue[None]] = {role: queue.Queue(slots) for role, slots in roles.items()}
        self._threads = [
            threading.Thread(target=self._work, args=(role, n), name=f"{role}-{n}", daemon=True)
            for role, slots in roles.items()
            for n in range(slots)
        ]

    def kick(self, role: str) -> None:
        """Wakes one thread of `role`; when as many kicks wait as there are threads, one more would say nothing new."""
        with contextlib.suppress(queue.Full):
            self._kicks[role].put_nowait(None)

    def top_up(self, role: str, wanted: int) -> None:
        """Wakes up to `wanted` threads of `role`."""
        for _ in range(min(wanted, self._kicks[role].maxsize)):
            self.kick(role)

    def start(self) -> None:
        """Starts the threads; what waits in the table is picked up at once."""
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float) -> None:
        """Takes no new jobs, gives running ones `timeout` seconds to end, then sends them back to the queue.

        A handler that does not look is left behind in its daemon thread; its lease ends with the process.
        """
        self._stopping.set()
        for role, kicks in self._kicks.items():
            self.top_up(role, kicks.maxsize)
        if not self._join(timeout):
            self._runner.interrupt()
            if not self._join(INTERRUPT_SECONDS):
                _log.warning("jobs_left_behind", threads=sum(thread.is_alive() for thread in self._threads))

    def _join(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0, until - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self, role: str, place: int) -> None:
        failures, idle = 0, self._poll_seconds * (place + 1)  # one after the other
        while not self._stopping.is_set():
            try:
                worked = self._runner.run_next(role)
                failures = 0
            except Exception as error:  # noqa: BLE001 - the thread is a boundary: it outlives a database that is away
                _log.warning("claim_failed", role=role, error=str(error))
                worked, failures = False, min(failures + 1, 10)
            if not worked:
                pause = min(self._poll_seconds * 2**failures, MOST_PAUSE_SECONDS) if failures else idle
                idle = self._poll_seconds * self._slots[role]
                with contextlib.suppress(queue.Empty):
                    self._kicks[role].get(timeout=pause)


class CeleryDispatcher:
    """Server mode: one thread publishes kicks to Redis, so that nobody else ever waits for Redis."""

    def __init__(self, settings: WorkerSettings) -> None:
        """Connects to nothing yet. Raises `ConfigurationError` without a Redis URL."""
        self._app = make_app(settings)
        self._pending: dict[str, int] = {}
        self._wanted: dict[str, int] = {}
        self._wake = threading.Condition()
        self._stopping = False
        self._connection: Any = None
        self._thread = threading.Thread(target=self._publish_all, name="kicks", daemon=True)

    def kick(self, role: str) -> None:
        """Counts one more kick to publish; counting stops at 256, since kicks are alike."""
        with self._wake:
            self._pending[role] = min(self._pending.get(role, 0) + 1, MOST_PENDING_KICKS)
            self._wake.notify()

    def top_up(self, role: str, wanted: int) -> None:
        """Publishes as many kicks as the queue in Redis lacks of `wanted`."""
        with self._wake:
            self._wanted[role] = min(wanted, MOST_PENDING_KICKS)
            self._wake.notify()

    def start(self) -> None:
        """Starts the publishing thread."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """Publishes what is left if Redis answers within `timeout` seconds, and leaves the rest to the reaper."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join(timeout)

    def _publish_all(self) -> None:
        failures = 0
        while self._wait_for_kicks():
            try:
                self._publish_pending()
                failures = 0
            except Exception as error:  # noqa: BLE001 - the thread is a boundary: it outlives every fault of Redis
                self._drop_connection()
                failures = min(failures + 1, 10)
                pause = min(0.5 * 2**failures, MOST_PAUSE_SECONDS)
                _log.warning("kicks_not_sent", error=f"{type(error).__name__}: {error}", retry_in_seconds=pause)
                if self._pause(pause):
                    break
        self._drop_connection()

    def _wait_for_kicks(self) -> bool:
        """Blocks until there is something to publish. Returns False when the end has come and nothing is left."""
        with self._wake:
            self._wake.wait_for(lambda: self._pending or self._wanted or self._stopping)
            return bool(self._pending) or not self._stopping

    def _publish_pending(self) -> None:
        """Publishes until nothing is pending; what fails stays pending."""
        self._connection = self._connection or self._app.connection_for_write()
        producer = self._app.amqp.Producer(self._connection.default_channel)
        self._count_missing(self._connection.default_channel)
        while role := next(iter(self._pending), None):
            self._app.send_task(RUN_NEXT, (role,), queue=role, producer=producer, retry=False)
            with self._wake:
                self._pending[role] -= 1
                if self._pending[role] == 0:
                    del self._pending[role]

    def _count_missing(self, channel: Any) -> None:
        """Turns what is wanted into pending kicks, less those that wait in Redis already."""
        with self._wake:
            wanted, self._wanted = self._wanted, {}
        for role, count in wanted.items():
            missing = count - int(channel.queue_declare(queue=role).message_count)
            with self._wake:
                if missing > self._pending.get(role, 0):
                    self._pending[role] = missing

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(OSError, redis.RedisError):
                connection.close()

    def _pause(self, seconds: float) -> bool:
        """Waits, and says whether to stop instead of going on."""
        with self._wake:
            return self._wake.wait_for(lambda: self._stopping, seconds)


def ping_broker(settings: WorkerSettings, timeout_seconds: float) -> None:
    """Asks Redis for a sign of life within about `timeout_seconds`; raises `BrokerUnavailable`."""
    if not settings.redis_url:
        raise ConfigurationError("HOPNODE_REDIS_URL is not set.")
    client = redis.Redis.from_url(
        settings.redis_url,
        socket_timeout=timeout_seconds,
        socket_connect_timeout=timeout_seconds,
        retry=Retry(NoBackoff(), 0),
    )
    try:
        client.ping()
    except redis.RedisError as error:
        raise BrokerUnavailable(f"Redis does not answer: {error}") from error
    finally:
        client.close()
