"""The story of a search: from the stored request to passages with citations, in one shot or by the agent."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue

from worker.corpus.corpus import Corpus
from worker.corpus.insight import CorpusInsight
from worker.corpus.records import Chunk, SearchHits
from worker.errors import ConfigurationError
from worker.harness.agent import Policy, SearchAgent
from worker.harness.budget import Limits
from worker.harness.duplicates import without_duplicates
from worker.harness.outcome import AgentOutcome, Selection, Usage
from worker.harness.policies.evidence import Evidence
from worker.harness.policies.model import ModelPolicy
from worker.harness.policies.offline import OfflinePolicy
from worker.harness.policies.ranking import Ranked
from worker.harness.policies.survey import one_shot, route, survey, trust_in
from worker.harness.policies.telling import reason
from worker.harness.profiles.generic import GenericProfile
from worker.harness.trajectory import FORMAT_VERSION, Recorder
from worker.job_context import JobContext
from worker.runtime import Runtime
from worker.store.collections import Collection, get_collection

SPARE = 10
"""Passages that one shot looks at beyond what is asked for, in place of duplicates."""


class SearchRequest(BaseModel):
    """What the job row holds of a search; fields that this story does not need are ignored."""

    model_config = ConfigDict(extra="ignore")

    query: str
    collections: list[str]
    mode: Literal["auto", "one_shot", "agent"] = "auto"
    profile: Literal["auto", "generic", "offline"] = "auto"
    top_k: int = 10
    filter: dict[str, JsonValue] | None = None
    min_score: float = 0.0
    neighbours: int = 0
    max_turns: int | None = None
    deadline_seconds: float | None = None


@dataclass(frozen=True)
class Space:
    """The collections of one search under its filter: what the harness may look at."""

    corpus: Corpus
    collections: Sequence[Collection]
    filter: Mapping[str, JsonValue] | None

    def search(self, query: str, *, k: int, exclude: frozenset[str] = frozenset()) -> SearchHits:
        """At most `k` chunks, best first."""
        return self.corpus.search(self.collections, query, k=k, exclude=exclude, filter=self.filter)

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
        return [
            Selection(now[one.chunk.id], one.score, one.justification, one.found_by)
            for one in selections
            if one.chunk.id in now
        ]


def run_search_job(runtime: Runtime, context: JobContext) -> JsonValue:
    """Answers the query of a search job; the result is what `GET /v1/searches/{id}` shows."""
    request = SearchRequest.model_validate(context.job.request)
    workspace = context.job.workspace_id
    collections = [get_collection(runtime.db, workspace, name) for name in request.collections]
    space = Space(runtime.corpora.open(workspace), collections, request.filter)
    context.check()
    answered = answer(runtime, space, request, context)
    outcome = answered.outcome
    wanted = [one for one in space.current(outcome.selections) if one.score >= request.min_score]
    kept = without_duplicates(wanted)[: request.top_k]
    passages = [_passage(rank, one, space, request.neighbours) for rank, one in enumerate(kept, 1)]
    return {
        "mode": answered.mode,
        "mode_reason": answered.why,
        "profile": answered.profile,
        "passages": passages,
        "answer": None,
        "stop_reason": outcome.stop_reason,
        "degraded": list(outcome.degraded),
        "usage": asdict(outcome.usage),
        "index": {"version": outcome.index_version, "vector_lag": outcome.vector_lag},
    }


@dataclass(frozen=True)
class Answered:
    """How a search was done in the end, and what came of it. `why` tells how `auto` decided, and is empty otherwise."""

    mode: str
    outcome: AgentOutcome
    profile: str | None = None
    why: str = ""


def answer(runtime: Runtime, space: Space, request: SearchRequest, context: JobContext) -> Answered:
    """Does the search in the mode that the request names, or in the one that `auto` finds fit."""
    evidence = survey(request.query, space.insight)
    context.check()
    if request.mode == "agent":
        return _agent(runtime, space, request, context, evidence)
    shot = one_shot(evidence, request.top_k + SPARE)
    if request.mode == "one_shot":
        return Answered("one_shot", _shot(request, context, evidence, shot))
    chosen = route(evidence, shot[: request.top_k])
    context.check()
    if chosen.mode == "one_shot":
        return Answered("one_shot", _shot(request, context, evidence, shot), why=chosen.why)
    return replace(_agent(runtime, space, request, context, evidence), why=chosen.why)


def _shot(request: SearchRequest, context: JobContext, evidence: Evidence, shot: Sequence[Ranked]) -> AgentOutcome:
    context.step("start", {"format_version": FORMAT_VERSION, "question": request.query, "mode": "one_shot"})
    found = evidence.found
    selections = tuple(
        Selection(evidence.candidates[one.row].chunk, one.trust, reason(evidence, one.row, []), (request.query,))
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
    runtime: Runtime,
    space: Space,
    request: SearchRequest,
    context: JobContext,
    evidence: Evidence,
) -> Answered:
    profile = _profile(runtime, request)
    limits = Limits(
        turns=request.max_turns or Limits.turns,
        seconds=request.deadline_seconds or runtime.settings.search_deadline_seconds,
    )
    policy = _policy(runtime, profile, space, request, evidence)
    agent = SearchAgent(policy, space, limits=limits, recorder=Recorder(context.step), check=context.check)
    outcome = agent.run(request.query)
    trusted = policy.trust if isinstance(policy, OfflinePolicy) else {}
    if any(one.chunk.row not in trusted for one in outcome.selections):
        trusted = trust_in(evidence, [one.chunk for one in outcome.selections])
    scored = tuple(replace(one, score=trusted[one.chunk.row]) for one in outcome.selections)
    return Answered("agent", replace(outcome, selections=scored), profile)


def _profile(runtime: Runtime, request: SearchRequest) -> Literal["generic", "offline"]:
    if request.profile == "auto":
        return "generic" if runtime.chat else "offline"
    if request.profile == "generic" and runtime.chat is None:
        raise ConfigurationError(
            "The profile `generic` needs a chat endpoint: set HOPNODE_CHAT_URL and HOPNODE_CHAT_MODEL, or use `offline`."
        )
    return request.profile


def _policy(
    runtime: Runtime,
    profile: Literal["generic", "offline"],
    space: Space,
    request: SearchRequest,
    evidence: Evidence,
) -> Policy:
    if profile == "generic" and runtime.chat is not None:
        return ModelPolicy(runtime.chat, GenericProfile())
    return OfflinePolicy(space.insight, request.top_k, surveyed=evidence)


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
    }
