"""The one way to start, join, wait for and cancel the jobs of a node, for every face that it has: HTTP routes and others.

Knows no request and no form of answer: callers hand in typed orders and get jobs back, or an error of `worker.errors`.
"""

import hashlib
import json
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import anyio
from anyio import to_thread
from pydantic import BaseModel, Field, JsonValue

from hopnode.node_service.waiting import wait_until
from hopnode.worker.corpus.finding.filters import compile_filter
from hopnode.worker.errors import Conflict, InvalidField, InvalidRequest, NodeError, NotFound
from hopnode.worker.evaluation.job import EvaluationRequest
from hopnode.worker.queue.dispatch import Dispatcher
from hopnode.worker.searches.job import SearchRequest
from hopnode.worker.store import collections
from hopnode.worker.store.collections import Collection
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs as job_table
from hopnode.worker.store.jobs.jobs import Idempotency, Job, JobStatus
from hopnode.worker.store.jobs.joining import JobOrder, join_or_create_job, join_or_create_jobs
from hopnode.worker.store.secrets.vault import HiddenFields
from hopnode.worker.store.sources import sources
from hopnode.worker.store.sources.sources import Sync

JobKind = Literal["search", "sync", "evaluation"]

EVALUATION_PRIORITY = 10
"""Behind searches (0): whoever waits for an answer goes before whoever waits for a figure."""

_NO_ANSWERS = (
    "This node writes no answers: set HOPNODE_ANSWER_MODEL (and HOPNODE_ANSWER_URL, unless the model is served at "
    "HOPNODE_CHAT_URL) for all its processes, or leave `answer` out"
)


class SearchOrder(SearchRequest):
    """A search as a caller orders it: what the worker reads of it, and what is kept for the caller alone."""

    metadata: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])


@dataclass(frozen=True)
class Callback:
    """Who is told when a job ends: what the job row keeps (`url`, `events`, `metadata`), and the headers, which are secret."""

    told: Mapping[str, JsonValue]
    hidden: HiddenFields


@dataclass(frozen=True)
class PartOfBatch:
    """One search of several that are ordered at once; see `JobDesk.start_search`."""

    order: SearchOrder
    callback: Callback | None
    join: bool


@dataclass(frozen=True)
class Started:
    """The job that an order led to. `is_new` is False where the order joined a job that was there before."""

    job: Job
    is_new: bool


async def stays() -> bool:
    """The `gone` of a caller who cannot hang up."""
    return False


@dataclass(frozen=True)
class JobDesk:
    """Where jobs are ordered, followed and called off. Every verb takes the workspace, and sees nothing of another.

    `index_versions` tells the version of each collection's index in a workspace: while it stays, the same search finds the
    same. `writes_answers` says whether the node has a model for answers. `most_waiting` jobs of a workspace may wait, None
    means any number. `stopping` ends all waits; no wait takes longer than `longest_wait_seconds`. Methods that are not
    `async` block for a short transaction: call them from a thread.
    """

    db: Database
    dispatcher: Dispatcher
    index_versions: Callable[[str, Sequence[Collection]], Sequence[int]]
    writes_answers: bool
    most_waiting: int | None
    stopping: threading.Event
    longest_wait_seconds: float

    def start_search(
        self,
        workspace_id: str,
        order: SearchOrder,
        *,
        idempotency_key: str | None = None,
        callback: Callback | None = None,
        join: bool = True,
    ) -> Started:
        """Queues a search, or finds one that was there: that of the idempotency key; without a key, one that joins.

        With `join`, an order that equals one under way in everything, `metadata` and the state of its collections included,
        leads to that search. An order with a key or a callback of its own joins nothing. The callback of an earlier search
        stays what it was.

        Raises `NotFound` for a collection, `InvalidRequest` for a filter, `InvalidField` for an answer that nobody can
        write, `QueueFull`, and `IdempotencyMismatch` where the key belongs to another order.
        """
        found = self._check_search(workspace_id, order)
        if idempotency_key or callback or not join:
            return self._start(workspace_id, "search", order, idempotency_key=idempotency_key, callback=callback)
        return self._join(workspace_id, order, self._state(workspace_id, found))

    def start_searches(
        self,
        workspace_id: str,
        searches: Sequence[PartOfBatch],
        *,
        idempotency: tuple[str, JsonValue] | None = None,
    ) -> list[Started | NodeError]:
        """Several searches in one transaction: for each, in their order, what it led to, or why there is none.

        `idempotency` is a key and what was asked with it as a whole: the same again
        gives the same searches. Raises `IdempotencyMismatch` where the key belongs to something else.
        """
        outcomes: dict[int, Started | NodeError] = {}
        wanted: dict[int, JobOrder] = {}
        for number, one in enumerate(searches):
            try:
                wanted[number] = self._part(workspace_id, one, may_join=idempotency is None)
            except (InvalidRequest, NotFound) as error:
                outcomes[number] = error
        found = join_or_create_jobs(
            self.db,
            workspace_id,
            list(wanted.values()),
            idempotency=_keys_of_parts(idempotency, wanted) if idempotency else None,
            most_waiting=self.most_waiting,
        )
        for number, one in zip(wanted, found, strict=True):
            outcomes[number] = one if isinstance(one, NodeError) else self._kicked(Started(*one))
        return [outcomes[number] for number in range(len(searches))]

    def join_search(self, workspace_id: str, order: SearchOrder, *, ended_within_seconds: float = 0) -> Started:
        """The search of this workspace that answers the very same order and has not ended; else a new one.

        For callers who repeat themselves within seconds and wait for the first: it is joined although documents came
        meanwhile. Two at once get the same search. One that succeeded within the last `ended_within_seconds` is joined too:
        what it found may be gone by now, so look before you show it. Raises what `start_search` raises.
        """
        self._check_search(workspace_id, order)
        return self._join(workspace_id, order, None, ended_within_seconds)

    def start_evaluation(
        self, workspace_id: str, order: EvaluationRequest, *, idempotency_key: str | None = None
    ) -> Started:
        """Queues an evaluation, or finds the earlier one of this idempotency key.

        Raises `NotFound` for the collection or the evaluation to compare with, `Conflict` where that one has no report,
        `InvalidField` where its questions are others, `QueueFull` and `IdempotencyMismatch`.
        """
        collections.get_collection(self.db, workspace_id, order.collection)
        if order.compare_with is not None:
            self._check_comparable(workspace_id, order.compare_with, order)
        return self._start(
            workspace_id, "evaluation", order, priority=EVALUATION_PRIORITY, idempotency_key=idempotency_key
        )

    def start_sync(self, workspace_id: str, source_id: str, *, confirm_deletes: bool = False) -> Sync:
        """Queues a run of the source; `confirm_deletes` lets it forget more at once than the brake allows.

        Raises `NotFound` for the source, and `Conflict` with the detail `sync_id` while another run of it has not ended.
        """
        sync = sources.create_sync(self.db, workspace_id, source_id, confirm_deletes=confirm_deletes)
        self.dispatcher.kick("sync")
        return sync

    def call_back(self, workspace_id: str, search_id: str, callback: Callback) -> Job:
        """Has the end of a search told to `callback`; returns the search, which tells nobody if it has ended already.

        Raises `NotFound`.
        """
        self.get(workspace_id, search_id, "search")
        return job_table.call_back(self.db, workspace_id, search_id, callback.told, callback.hidden)

    def get(self, workspace_id: str, job_id: str, kind: JobKind) -> Job:
        """The job as it is now. One of another workspace or kind is `NotFound`, as if it did not exist."""
        job = job_table.get_job(self.db, workspace_id, job_id)
        if job.kind != kind:
            raise NotFound(f"There is no job {job_id} in this workspace.")
        return job

    async def wait_for_end(
        self, workspace_id: str, job_id: str, *, seconds: float, gone: Callable[[], Awaitable[bool]] = stays
    ) -> Job:
        """The job when it has ended, or as it is after `seconds`, when the caller is `gone` or when the node stops.

        Holds no thread while it waits. Raises `NotFound`, also when the job is forgotten meanwhile.
        """
        return await wait_until(
            lambda: job_table.get_job(self.db, workspace_id, job_id),
            lambda job: job.status.final,
            seconds=min(seconds, self.longest_wait_seconds),
            stopping=self.stopping,
            gone=gone,
        )

    async def wait_or_cancel(
        self, workspace_id: str, job_id: str, *, seconds: float, gone: Callable[[], Awaitable[bool]]
    ) -> Job:
        """As `wait_for_end`, for the only one who waits for this job: when that caller leaves, the job is cancelled.

        The caller has left when `gone` says so, or when the task that waits is cancelled.
        """
        try:
            job = await self.wait_for_end(workspace_id, job_id, seconds=seconds, gone=gone)
            left = not job.status.final and await gone()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(self._call_off, workspace_id, job_id)
            raise
        if left:
            await to_thread.run_sync(self._call_off, workspace_id, job_id)
        return job

    def cancel(self, workspace_id: str, job_id: str, kind: JobKind) -> Job:
        """Ends a queued or running job at once; its worker learns of it by itself, and nothing it brings is kept.

        Raises `NotFound`, and `Conflict` when the job has ended already.
        """
        return job_table.cancel(self.db, workspace_id, self.get(workspace_id, job_id, kind).id)

    def _call_off(self, workspace_id: str, job_id: str) -> None:
        """Cancels what nobody waits for any more; where that cannot be done, the job ends by itself."""
        with suppress(NodeError):
            job_table.cancel(self.db, workspace_id, job_id)

    def _check_search(self, workspace_id: str, order: SearchOrder) -> list[Collection]:
        """The collections of the order, which can be carried out as it is; else one of the errors of `start_search`."""
        found = [collections.get_collection(self.db, workspace_id, name) for name in order.collections]
        compile_filter(order.filter or {})
        if order.answer and not self.writes_answers:
            raise InvalidField("answer", "no_answer_endpoint", _NO_ANSWERS)
        return found

    def _state(self, workspace_id: str, found: Sequence[Collection]) -> JsonValue:
        """What a search can find depends on this; a collection that was made anew under its name has another id."""
        versions = self.index_versions(workspace_id, found)
        return [[one.id, one.dense_weight, version] for one, version in zip(found, versions, strict=True)]

    def _part(self, workspace_id: str, part: PartOfBatch, *, may_join: bool) -> JobOrder:
        state = self._state(workspace_id, self._check_search(workspace_id, part.order))
        request, callback = _request(part.order), part.callback
        fingerprint = _sha256([request, state]) if may_join and part.join and not callback else None
        told, hidden = (callback.told, callback.hidden) if callback else (None, None)
        return JobOrder("search", "agent", request, fingerprint, told, hidden)

    def _join(
        self, workspace_id: str, order: SearchOrder, state: JsonValue, ended_within_seconds: float = 0
    ) -> Started:
        request = _request(order)
        job, is_new = join_or_create_job(
            self.db,
            workspace_id,
            JobOrder("search", "agent", request, _sha256([request, state])),
            ended_within_seconds=ended_within_seconds,
            most_waiting=self.most_waiting,
        )
        return self._kicked(Started(job, is_new))

    def _check_comparable(self, workspace_id: str, earlier_id: str, order: EvaluationRequest) -> None:
        earlier = self.get(workspace_id, earlier_id, "evaluation")
        if earlier.status is not JobStatus.SUCCEEDED:
            raise Conflict(f"The evaluation to compare with has no report: it is {earlier.status}.")
        if why := order.differs_from(EvaluationRequest.model_validate(earlier.request)):
            raise InvalidField("compare_with", "other_questions", why)

    def _start(
        self,
        workspace_id: str,
        kind: JobKind,
        order: BaseModel,
        *,
        priority: int = 0,
        idempotency_key: str | None,
        callback: Callback | None = None,
    ) -> Started:
        request = _request(order)
        meant = request if callback is None else request | {"callback": dict(callback.told)}
        job, is_new = job_table.create_job(
            self.db,
            workspace_id=workspace_id,
            kind=kind,
            role="agent",
            request=request,
            priority=priority,
            callback=callback.told if callback else None,
            hidden=callback.hidden if callback else None,
            idempotency=Idempotency(idempotency_key, _sha256(meant)) if idempotency_key else None,
            most_waiting=self.most_waiting,
        )
        return self._kicked(Started(job, is_new))

    def _kicked(self, started: Started) -> Started:
        if started.is_new:
            self.dispatcher.kick(started.job.role)
        return started


def _request(order: BaseModel) -> dict[str, JsonValue]:
    """What the job row keeps of an order."""
    return order.model_dump(mode="json")


def _keys_of_parts(whole: tuple[str, JsonValue], parts: Iterable[int]) -> list[Idempotency]:
    """A key for each part of what one key was given for, long enough to meet no key of a caller."""
    key, body = _sha256(whole[0]), _sha256(whole[1])
    return [Idempotency(f"{key}:{number}", body) for number in parts]


def _sha256(meaning: JsonValue | Mapping[str, object]) -> str:
    """A hash of what was ordered: a caller may arrange and space its JSON as it likes."""
    return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()
