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
from worker.harness.outcome import AgentOutcome, Selection, Usage, rank_score
from worker.harness.policies.evidence import Evidence
from worker.harness.policies.model import ModelPolicy
from worker.harness.policies.offline import OfflinePolicy
from worker.harness.policies.ranking import Ranked
from worker.harness.policies.survey import one_shot, route, survey
from worker.harness.policies.telling import reason
from worker.harness.profiles.generic import GenericProfile
from worker.harness.trajectory import FORMAT_VERSION, Recorder
from worker.job_context import JobContext
from worker.runtime import Runtime
from worker.store.collections import Collection, get_collection


class SearchRequest(BaseModel):
    """What the job row holds of a search; fields that this story does not need are ignored."""

    model_config = ConfigDict(extra="ignore")

    query: str
    collections: list[str]
    mode: Literal["auto", "one_shot", "agent"] = "auto"
    profile: Literal["auto", "generic", "offline"] = "auto"
    top_k: int = 10
    filter: dict[str, JsonValue] | None = None
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
    passages = [_passage(rank, one) for rank, one in enumerate(space.current(answered.selections)[: request.top_k], 1)]
    outcome = answered.outcome
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

    @property
    def selections(self) -> Sequence[Selection]:
        """The passages, best first."""
        return self.outcome.selections


def answer(runtime: Runtime, space: Space, request: SearchRequest, context: JobContext) -> Answered:
    """Does the search in the mode that the request names, or in the one that `auto` finds fit."""
    if request.mode == "agent":
        return _agent(runtime, space, request, context)
    evidence = survey(request.query, space.insight)
    context.check()
    shot = one_shot(evidence, request.top_k)
    if request.mode == "one_shot":
        return Answered("one_shot", _shot(request, context, evidence, shot))
    chosen = route(evidence, shot)
    context.check()
    if chosen.mode == "one_shot":
        return Answered("one_shot", _shot(request, context, evidence, shot), why=chosen.why)
    return replace(_agent(runtime, space, request, context, evidence), why=chosen.why)


def _shot(request: SearchRequest, context: JobContext, evidence: Evidence, shot: Sequence[Ranked]) -> AgentOutcome:
    context.step("start", {"format_version": FORMAT_VERSION, "question": request.query, "mode": "one_shot"})
    found, chunks = evidence.found, [evidence.candidates[one.row].chunk for one in shot]
    selections = tuple(
        Selection(chunk, rank_score(rank), reason(evidence, chunk.row, []), found_by=(request.query,))
        for rank, chunk in enumerate(chunks, 1)
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
    evidence: Evidence | None = None,
) -> Answered:
    profile = _profile(runtime, request)
    limits = Limits(
        turns=request.max_turns or Limits.turns,
        seconds=request.deadline_seconds or runtime.settings.search_deadline_seconds,
    )
    agent = SearchAgent(
        _policy(runtime, profile, space, request, evidence),
        space,
        limits=limits,
        recorder=Recorder(context.step),
        check=context.check,
    )
    return Answered("agent", agent.run(request.query), profile)


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
    evidence: Evidence | None,
) -> Policy:
    if profile == "generic" and runtime.chat is not None:
        return ModelPolicy(runtime.chat, GenericProfile())
    return OfflinePolicy(space.insight, request.top_k, surveyed=evidence)


def _passage(rank: int, selection: Selection) -> JsonValue:
    chunk = selection.chunk
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
        "justification": selection.justification,
        "found_by": list(selection.found_by),
    }
