"""The story of a search: from the stored request to passages with citations, in one shot or by the agent."""

from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import asdict, dataclass, replace
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue

from hopnode.worker.corpus.corpus import Corpus
from hopnode.worker.corpus.finding.insight import CorpusInsight
from hopnode.worker.corpus.records import Chunk, SearchHits
from hopnode.worker.harness.agent import Policy, SearchAgent
from hopnode.worker.harness.budget import Limits
from hopnode.worker.harness.outcome import AgentOutcome, Selection, Usage
from hopnode.worker.harness.policies.offline import OfflinePolicy
from hopnode.worker.harness.rollouts import ROLLOUTS, run_rollouts
from hopnode.worker.harness.tools import Reranker
from hopnode.worker.harness.trajectory import FORMAT_VERSION, Recorder, rollout_data
from hopnode.worker.queue.job_context import JobContext
from hopnode.worker.ranking.evidence import Evidence
from hopnode.worker.ranking.one_shot import came_by, one_shot, route, survey, trust_in
from hopnode.worker.ranking.reasons import reason
from hopnode.worker.ranking.weighing import Ranked, rank
from hopnode.worker.runtime import Runtime
from hopnode.worker.searches.agents import model_policies, profile_named, reranker_of
from hopnode.worker.searches.answer import Answered, kept_back, write_answer
from hopnode.worker.searches.duplicates import without_duplicates
from hopnode.worker.store.collections import Collection, get_collection

T = TypeVar("T")

TURN_SECONDS = 0.1
"""How often a search that waits for its turn at the cores looks whether it was cancelled."""
SPARE = 10
"""Passages that one shot looks at beyond what is asked for, in place of duplicates."""


class SearchRequest(BaseModel):
    """What the job row holds of a search; fields that this story does not need are ignored."""

    model_config = ConfigDict(extra="ignore")

    query: str
    collections: list[str]
    mode: Literal["auto", "one_shot", "agent"] = "auto"
    effort: Literal["low", "medium", "high"] = "low"
    profile: Literal["auto", "generic", "context-1", "context-1-chat", "offline"] = "auto"
    top_k: int = 10
    filter: dict[str, JsonValue] | None = None
    min_score: float = 0.0
    neighbours: int = 0
    max_turns: int | None = None
    deadline_seconds: float | None = None
    answer: bool = False


@dataclass(frozen=True)
class Space:
    """The collections of one search under its filter: what the harness may look at. `missing_rank` is what counts in a
    fused search where a leg did not find a chunk (None: nothing)."""

    corpus: Corpus
    collections: Sequence[Collection]
    filter: Mapping[str, JsonValue] | None
    missing_rank: int | None = None

    def search(self, query: str, *, k: int, exclude: frozenset[str] = frozenset()) -> SearchHits:
        """At most `k` chunks, best first."""
        return self.corpus.search(
            self.collections, query, k=k, exclude=exclude, filter=self.filter, missing_rank=self.missing_rank
        )

    @property
    def insight(self) -> CorpusInsight:
        """What a policy without a model may know of these collections."""
        return self.corpus.insight(self.collections, self.filter)

    def grep(self, pattern: str, *, limit: int) -> list[Chunk]:
        """The first chunks that match."""
        return self.corpus.grep(self.collections, pattern, limit=limit, filter=self.filter)

    def read(self, document_id: str) -> list[Chunk]:
        """A document's chunks in order."""
        return self.corpus.read(self.collections, document_id)

    def current(self, selections: Sequence[Selection]) -> list[Selection]:
        """Those selections whose chunk still exists, with the chunk as it is now: text may have been deleted, or moved
        within its document, since it was found."""
        now = {chunk.id: chunk for chunk in self.corpus.chunks(self.collections, [one.chunk.id for one in selections])}
        return [replace(one, chunk=now[one.chunk.id]) for one in selections if one.chunk.id in now]


def run_search_job(runtime: Runtime, context: JobContext) -> JsonValue:
    """Carries out a search job; the result is what `GET /v1/searches/{id}` shows."""
    request = SearchRequest.model_validate(context.job.request)
    workspace = context.job.workspace_id
    collections = [get_collection(runtime.db, workspace, name) for name in request.collections]
    space = Space(runtime.corpora.open(workspace), collections, request.filter)
    context.check()
    if context.job.last_step:  # of an attempt that was lost, failed or stopped: nothing of it is taken over
        context.step("restart", {"attempt": context.job.attempt, "last_step": context.job.last_step})
    found = find(runtime, space, request, context)
    outcome = found.outcome
    wanted = [one for one in space.current(outcome.selections) if one.score >= request.min_score]
    kept = without_duplicates(wanted, request.top_k)
    answered = Answered(None)
    if request.answer:
        answered, kept = _answer(runtime, space, request, context, kept)
    passages = [_passage(rank, one, space, request.neighbours) for rank, one in enumerate(kept, 1)]
    return {
        "mode": found.mode,
        "mode_reason": found.why,
        "profile": found.profile,
        "reranker": found.reranker,
        "rollouts": [rollout_data(one) for one in outcome.rollouts],
        "passages": passages,
        "answer": answered.answer,
        "stop_reason": outcome.stop_reason,
        "degraded": [*outcome.degraded, *answered.degraded],
        "usage": {**asdict(outcome.usage), **answered.usage},
        "index": {"version": outcome.index_version, "vector_lag": outcome.vector_lag},
    }


def _answer(
    runtime: Runtime, space: Space, request: SearchRequest, context: JobContext, kept: list[Selection]
) -> tuple[Answered, list[Selection]]:
    """The answer from the passages, and those that are still there once it is written: what was deleted meanwhile must not
    live on in an answer."""
    until = context.claimed_at + _whole_time(runtime, request)
    chunks = [one.chunk for one in kept]
    answered = write_answer(runtime.answers, runtime.settings, request.query, chunks, context, until)
    still = space.current(kept)
    return (answered, still) if len(still) == len(kept) else (answered.outdated(), still)


def _whole_time(runtime: Runtime, request: SearchRequest) -> float:
    return request.deadline_seconds or runtime.settings.search_deadline_seconds


@dataclass(frozen=True)
class Found:
    """How a search was done in the end, and what came of it. `why` tells how `auto` decided, and is empty otherwise;
    `reranker` names the one that was asked."""

    mode: str
    outcome: AgentOutcome
    profile: str | None = None
    reranker: str | None = None
    why: str = ""


def find(runtime: Runtime, space: Space, request: SearchRequest, context: JobContext) -> Found:
    """Does the search in the mode that the request names, or in the one that `auto` finds fit."""
    if request.mode == "agent":
        return _agent(runtime, space, request, context)
    with computing(runtime, context):
        evidence = survey(request.query, space.insight, request.top_k + SPARE)
        context.check()
        shot = one_shot(evidence, request.top_k + SPARE)
        if request.mode == "one_shot":
            return Found("one_shot", _shot(request, context, evidence, shot))
        chosen = route(evidence, shot[: request.top_k])
        context.check()
    if chosen.mode == "one_shot":
        shot = chosen.shot[: request.top_k + SPARE]
        return Found("one_shot", _shot(request, context, evidence, shot), why=chosen.why)
    return replace(_agent(runtime, space, request, context, evidence), why=chosen.why)


def _shot(request: SearchRequest, context: JobContext, evidence: Evidence, shot: Sequence[Ranked]) -> AgentOutcome:
    context.step("start", {"format_version": FORMAT_VERSION, "question": request.query, "mode": "one_shot"})
    found, rows = evidence.found, [one.row for one in shot]
    selections = tuple(
        Selection(
            evidence.candidates[one.row].chunk,
            one.trust,
            reason(evidence, one.row, rows),
            (came_by(evidence, one.row, rows),),
        )
        for one in shot
    )
    outcome = AgentOutcome(
        selections=selections,
        stop_reason="finished" if selections else "nothing-found",
        degraded=found.degraded,
        usage=Usage(turns=1, tool_calls=1),
        index_version=found.index_version,
        vector_lag=found.vector_lag,
    )
    shown: list[JsonValue] = [one.chunk.id for one in selections]
    context.step("end", {"stop_reason": outcome.stop_reason, "degraded": list(found.degraded), "shown": shown})
    return outcome


def _agent(
    runtime: Runtime, space: Space, request: SearchRequest, context: JobContext, evidence: Evidence | None = None
) -> Found:
    """The agent's run or runs; `evidence` is what was looked at already to decide for them."""
    profile = profile_named(request.profile, runtime.chat, runtime.settings.profile)
    seconds = _whole_time(runtime, request)
    seconds -= kept_back(runtime.settings, seconds) if request.answer else 0

    def run(policies: Callable[[], Policy], count: int, reranker: Reranker | None = None) -> AgentOutcome:
        limits = Limits(turns=request.max_turns or Limits.turns, seconds=max(0.0, seconds - context.seconds))

        def make(number: int, check: Callable[[], None]) -> SearchAgent:
            policy, recorder = policies(), Recorder(context.step, number)
            seen = replace(space, missing_rank=policy.rules.missing_rank)
            return SearchAgent(policy, seen, limits=limits, recorder=recorder, check=check, reranker=reranker)

        return run_rollouts(make, count, request.query, context.check, context.step)

    if profile == "offline" or runtime.chat is None:
        with computing(runtime, context):
            evidence = evidence or survey(request.query, space.insight, request.top_k + SPARE)
            offline = OfflinePolicy(space.insight, request.top_k, surveyed=evidence)
            outcome = run(lambda: offline, 1)  # without a model every rollout would be the same
            return Found("agent", _trusted(outcome, evidence, offline.trust), profile)
    named, reranker = reranker_of(runtime.settings)
    policies = model_policies(runtime.settings, runtime.chat, profile)

    def weighed() -> Evidence:
        """What scores rest on, with all that it costs to look up: so a model's search finds it there at its end."""
        with computing(runtime, context):
            found = evidence or survey(request.query, space.insight, request.top_k + SPARE)
            rank(found)
            return found

    with _beside(weighed) as known:
        outcome = run(policies, ROLLOUTS[request.effort], reranker)
        return Found("agent", _trusted(outcome, known.result(), {}), profile, named)


@contextmanager
def computing(runtime: Runtime, context: JobContext) -> Generator[None]:
    """A turn at the cores, waited for as long as the job may go on."""
    while not runtime.computing.acquire(timeout=TURN_SECONDS):
        context.check()
    try:
        yield
    finally:
        runtime.computing.release()


@contextmanager
def _beside(work: Callable[[], T]) -> Generator[Future[T]]:
    """Something done on a thread of its own while the block waits for a model."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="beside")
    try:
        yield pool.submit(copy_context().run, work)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _trusted(outcome: AgentOutcome, evidence: Evidence, trusted: Mapping[int, float]) -> AgentOutcome:
    """The outcome with the scores that mean the same in every mode, as far as they are not known already."""
    if any(one.chunk.row not in trusted for one in outcome.selections):
        trusted = trust_in(evidence, [one.chunk for one in outcome.selections])
    return replace(outcome, selections=tuple(replace(one, score=trusted[one.chunk.row]) for one in outcome.selections))


def _passage(rank: int, selection: Selection, space: Space, neighbours: int) -> JsonValue:
    chunk = selection.chunk
    near = space.insight.around(chunk, neighbours) if neighbours else []
    return {
        "rank": rank,
        "score": round(selection.score, 6),
        "document_id": chunk.document_id,
        "chunk_id": chunk.id,
        "key": chunk.key,
        "title": chunk.title,
        "heading": chunk.heading,
        "url": chunk.url,
        "text": chunk.text,
        "start": chunk.start,
        "end": chunk.end,
        "page": chunk.page,
        "metadata": dict(chunk.metadata),
        "neighbours": [
            {"chunk_id": one.id, "text": one.text, "start": one.start, "end": one.end, "page": one.page} for one in near
        ],
        "justification": selection.justification,
        "found_by": list(selection.found_by),
        "votes": sum(one is not None for one in selection.ranks) or 1,
        "ranks": list(selection.ranks) or [rank],
    }
