"""A search by the agent: its run or runs, driven by a model or without one, and the scores of what they bring back.

Who drives the agent is chosen in `agents.py`; what the agent may do is the harness's.
"""

from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import replace
from typing import TypeVar

from hopnode.worker.harness.agent import Policy, SearchAgent
from hopnode.worker.harness.budget import Limits
from hopnode.worker.harness.outcome import AgentOutcome
from hopnode.worker.harness.policies.offline import OfflinePolicy
from hopnode.worker.harness.rollouts import ROLLOUTS, run_rollouts
from hopnode.worker.harness.tools import Reranker
from hopnode.worker.harness.trajectory import Recorder
from hopnode.worker.inference.chat import ChatModel
from hopnode.worker.ranking.evidence import Evidence
from hopnode.worker.ranking.one_shot import trust_in
from hopnode.worker.ranking.weighing import rank
from hopnode.worker.searches.agents import ModelProfile, model_policies, profile_named, reranker_of
from hopnode.worker.searches.answer import kept_back
from hopnode.worker.searches.live_search import LiveSearch, Searched

T = TypeVar("T")


def by_agent(search: LiveSearch, evidence: Evidence | None = None) -> Searched:
    """The search as the agent does it; `evidence` is what was looked at already to decide for it."""
    chat = search.runtime.chat
    profile = profile_named(search.request.profile, chat, search.runtime.settings.profile)
    if profile == "offline" or chat is None:
        return _without_model(search, profile, evidence)
    return _with_model(search, profile, chat, evidence)


def _without_model(search: LiveSearch, profile: str, evidence: Evidence | None) -> Searched:
    with search.turn():
        evidence = evidence or search.survey()
        offline = OfflinePolicy(search.space.insight, search.request.top_k, surveyed=evidence)
        outcome = _rollouts(search, lambda: offline, 1)  # without a model every rollout would be the same
        return Searched("agent", _trusted(outcome, evidence, offline.trust), profile)


def _with_model(search: LiveSearch, profile: ModelProfile, chat: ChatModel, evidence: Evidence | None) -> Searched:
    settings = search.runtime.settings
    named, reranker = reranker_of(settings)
    policies = model_policies(settings, chat, profile)

    def weighed() -> Evidence:
        """What scores rest on, with all that it costs to look up: so a model's search finds it there at its end."""
        with search.turn():
            found = evidence or search.survey()
            rank(found)
            return found

    with _beside(weighed) as known:
        outcome = _rollouts(search, policies, ROLLOUTS[search.request.effort], reranker)
        return Searched("agent", _trusted(outcome, known.result(), {}), profile, named)


def _rollouts(
    search: LiveSearch, policies: Callable[[], Policy], count: int, reranker: Reranker | None = None
) -> AgentOutcome:
    """So many runs side by side, in the time that is left."""
    request, seconds = search.request, search.whole_seconds
    seconds -= kept_back(search.runtime.settings, seconds) if request.answer else 0
    limits = Limits(turns=request.max_turns or Limits.turns, seconds=max(0.0, seconds - search.seconds))

    def make(number: int, check: Callable[[], None]) -> SearchAgent:
        recorder = Recorder(search.step, number)
        return SearchAgent(policies(), search.space, limits=limits, recorder=recorder, check=check, reranker=reranker)

    return run_rollouts(make, count, request.query, search.check, search.step)


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
