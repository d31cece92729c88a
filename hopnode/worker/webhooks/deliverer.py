"""Sends what is due, a few deliveries side by side; any number of processes may do so, for each attempt is claimed first."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from hopnode.connectors.http import EgressPolicy, open_client
from hopnode.worker.logs import get_logger
from hopnode.worker.store.database import Database
from hopnode.worker.store.secrets.vault import Vault
from hopnode.worker.store.webhooks.outbox import Claim, Outcome, claim_due, record
from hopnode.worker.webhooks.sending import TIMEOUT_SECONDS, Sender

SLOTS = 8
POLL_SECONDS = 0.5
STOP_SECONDS = 3.0
LEASE_SECONDS = 4 * TIMEOUT_SECONDS
"""Longer than an attempt can take, so that nobody else makes the same one; after a crash it is made again under its id."""

_log = get_logger(__name__)


class Deliverer:
    """One thread that claims, and up to `SLOTS` that send. Begun with `start`, ended with `stop`."""

    def __init__(self, db: Database, vault: Vault, policy: EgressPolicy) -> None:
        self._db = db
        self._client = open_client(policy, user_agent="hopnode-webhooks/1")
        self._sender = Sender(db, vault, self._client)
        self._stopping = threading.Event()
        self._free = threading.Semaphore(SLOTS)
        self._pool = ThreadPoolExecutor(SLOTS, thread_name_prefix="webhook")
        self._thread = threading.Thread(target=self._run, name="webhooks", daemon=True)

    def start(self) -> None:
        """Starts the threads; what is due is sent at once."""
        self._thread.start()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Claims no more, waits so long for attempts under way, and breaks off the rest: they are made again."""
        self._stopping.set()
        until = time.monotonic() + seconds
        self._thread.join(seconds)
        for _ in range(SLOTS):
            self._free.acquire(timeout=max(0.0, until - time.monotonic()))
        self._client.close()
        self._pool.shutdown(wait=False)

    def _run(self) -> None:
        while not self._stopping.is_set():
            if not self._free.acquire(timeout=POLL_SECONDS):
                continue
            claim = self._claim()
            if claim is None:
                self._free.release()
                self._stopping.wait(POLL_SECONDS)
            else:
                self._pool.submit(self._deliver, claim)

    def _claim(self) -> Claim | None:
        try:
            return claim_due(self._db, LEASE_SECONDS)
        except Exception as error:  # noqa: BLE001 - the thread is a boundary: it looks again
            _log.warning("delivery_claim_failed", error=f"{type(error).__name__}: {error}")
            return None

    def _deliver(self, claim: Claim) -> None:
        delivery = claim.delivery
        try:
            attempt, verdict = self._sender.send(claim)
            record(self._db, claim, attempt, verdict.outcome, verdict.delay_seconds)
            log = _log.info if verdict.outcome is Outcome.DELIVERED else _log.warning
            log(
                "delivery_attempted",
                delivery=delivery.id,
                workspace=delivery.workspace_id,
                job=delivery.job_id,
                attempt=attempt.number,
                outcome=str(verdict.outcome),
                status=attempt.status,
            )
        except Exception as error:  # noqa: BLE001 - the thread is a boundary: the lease ends, and the attempt is made again
            _log.warning("delivery_broke_off", delivery=delivery.id, error=f"{type(error).__name__}: {error}")
        finally:
            self._free.release()
