"""A search from its request to its result: finds passages, has them answered where that is wanted, and says what came of it.

Needs no job and no database; who runs it as a job is `job.py`, and an evaluation runs it as it is.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict

from pydantic import JsonValue

from hopnode.worker.harness.outcome import Selection
from hopnode.worker.harness.trajectory import ignore_step, rollout_data
from hopnode.worker.searches.answer import Answered, write_answer
from hopnode.worker.searches.live_search import LiveSearch, SearchRuntime
from hopnode.worker.searches.modes import find
from hopnode.worker.searches.passages import kept, passages
from hopnode.worker.searches.request import SearchRequest
from hopnode.worker.searches.space import Space


def run_search(
    request: SearchRequest,
    space: Space,
    runtime: SearchRuntime,
    *,
    check: Callable[[], None],
    step: Callable[[str, Mapping[str, JsonValue]], object] = ignore_step,
    started: float | None = None,
) -> dict[str, JsonValue]:
    """The result of a search, as `GET /v1/searches/{id}` shows it.

    `check` is called between any two things that take time, and raises when the search has to end. `step(kind, data)` gets
    each step of its trajectory. Its time counts from `started` on the monotonic clock, else from now. Raises what `check`
    raises, and ConfigurationError for a profile that the node is not set up for. Raises ModelUnavailable or ModelRefused
    when the agent's model failed before anything was found.
    """
    search = LiveSearch(request, space, runtime, check, step, time.monotonic() if started is None else started)
    found = find(search)
    outcome, answered = found.outcome, Answered(None)
    selections = kept(outcome.selections, request, space)
    if request.answer:
        answered, selections = _answer(search, selections)
    return {
        "mode": found.mode,
        "mode_reason": found.why,
        "profile": found.profile,
        "reranker": found.reranker,
        "rollouts": [rollout_data(one) for one in outcome.rollouts],
        "passages": passages(selections, space, request.neighbours),
        "answer": answered.answer,
        "stop_reason": outcome.stop_reason,
        "degraded": [*outcome.degraded, *answered.degraded],
        "usage": {**asdict(outcome.usage), **answered.usage},
        "index": {"version": outcome.index_version, "vector_lag": outcome.vector_lag},
    }


def _answer(search: LiveSearch, selections: list[Selection]) -> tuple[Answered, list[Selection]]:
    """The answer from the passages, and those that are still there once it is written: what was deleted meanwhile must not
    live on in an answer."""
    answered = write_answer(search, [one.chunk for one in selections])
    still = search.space.current(selections)
    return (answered, still) if len(still) == len(selections) else (answered.outdated(), still)
