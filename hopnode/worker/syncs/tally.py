"""Counts what a sync meets and tells about it: job steps for who watches, counts and resume token for the next attempt."""

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pydantic import JsonValue

from hopnode.worker.queue.job_context import JobContext
from hopnode.worker.store.database import Database
from hopnode.worker.store.sources.sources import Sync, SyncCounts, note_progress

STEP_SECONDS = 0.5
"""Least time between two progress steps; it grows to ten times as much within the first minutes."""

LARGE_TOKEN = 100_000
LARGE_SAVE_SECONDS = 10.0

_MOST_FAILURE_STEPS = 100


class Tally:
    """The counts of one sync, over all attempts of its job."""

    def __init__(self, db: Database, sync: Sync, context: JobContext) -> None:
        before = _Saved(sync.resume)
        self._db = db
        self._sync_id = sync.id
        self._context = context
        self._numbers: Counter[str] = Counter(asdict(sync.counts))
        self.failed: Counter[str] = before.failed
        self.unreachable: int = before.unreachable
        self.token: Mapping[str, JsonValue] | None = before.token
        self.skipped: Counter[str] = before.skipped
        self._skipped_at_token = Counter(self.skipped)
        self._numbers["skipped"] = self.skipped.total()
        self._started = self._told_at = time.monotonic()
        self._told: SyncCounts | None = None
        self._saved_at = self._save_seconds = 0.0
        self._failure_steps = 0

    @property
    def counts(self) -> SyncCounts:
        """The counts so far."""
        return SyncCounts.from_json(self._numbers)

    def count(self, name: str, number: int = 1) -> None:
        """Adds to one of the counts of `SyncCounts`."""
        self._numbers[name] += number

    def skip(self, reason: str) -> None:
        """Counts something that is left out on purpose."""
        self.skipped[reason] += 1
        self.count("skipped")

    def fail(self, item_id: str, reason: str, message: str, *, unreachable: bool) -> None:
        """Counts an item that could not be taken in; `unreachable`: the source's fault and not the document's."""
        self.failed[reason] += 1
        self.unreachable += unreachable
        self.count("failed")
        if self._failure_steps < _MOST_FAILURE_STEPS:
            self._failure_steps += 1
            self._context.step("item_failed", {"item": item_id, "reason": reason, "message": message[:500]})

    def save(self, token: Mapping[str, JsonValue] | None = None) -> None:
        """Keeps counts, and a new token if there is one: all that was listed before it is done.

        Next to a large token, which is written with them, counts alone are kept every ten seconds only.
        """
        if token is not None:
            self.token = token
            self._skipped_at_token = Counter(self.skipped)
            self._save_seconds = LARGE_SAVE_SECONDS if len(json.dumps(dict(token))) > LARGE_TOKEN else 0.0
        elif time.monotonic() - self._saved_at < self._save_seconds:
            return
        self._saved_at = time.monotonic()
        resume: dict[str, JsonValue] = {
            "token": None if self.token is None else dict(self.token),
            "skipped": dict(self._skipped_at_token),
            "failed": dict(self.failed),
            "unreachable": self.unreachable,
        }
        note_progress(self._db, self._sync_id, self.counts, resume)

    def tell(self, *, now: bool = False) -> None:
        """Records a progress step, unless the last one is too fresh or says the same."""
        at = time.monotonic()
        pause = min(STEP_SECONDS * (1 + (at - self._started) / 30), STEP_SECONDS * 10)
        if (not now and at - self._told_at < pause) or self.counts == self._told:
            return
        self._told, self._told_at = self.counts, at
        self._context.step("progress", self.counts.to_json())


class _Saved:
    """What an earlier attempt left in the resume field of the sync; skips after its token are met, and counted, again."""

    def __init__(self, resume: JsonValue) -> None:
        saved: dict[str, Any] = resume if isinstance(resume, dict) else {}
        self.token: Mapping[str, JsonValue] | None = saved.get("token")
        self.skipped: Counter[str] = Counter(saved.get("skipped") or {})
        self.failed: Counter[str] = Counter(saved.get("failed") or {})
        self.unreachable = int(saved.get("unreachable") or 0)
