"""Several runs of the agent on one question, side by side, fused into one ranking. Knows no model, network or storage.

Fusion is reciprocal rank fusion over the runs' final lists (k 60, ranks from 1, ties by id, the best 30).
"""

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, fields, replace
from typing import Protocol

from hopnode.worker.corpus.finding.fusion import RRF_K
from hopnode.worker.errors import HopnodeError, ModelRefused, ModelUnavailable
from hopnode.worker.harness.outcome import AgentOutcome, RolloutEnd, Selection, Usage
from hopnode.worker.harness.trajectory import StepData, fusion_step, ignore_step

ROLLOUTS: Mapping[str, int] = {"low": 1, "medium": 2, "high": 4}
"""Rollouts of each effort."""
KEPT = 30
"""Most passages of a fused ranking."""
LEFT_OUT = "rollout-left-out"
FAILED = "rollout-failed"


class Runs(Protocol):
    """One run of the agent, ready to begin."""

    def run(self, question: str) -> AgentOutcome:
        """The outcome; raises as `SearchAgent.run` does."""
        ...


class _Abandoned(HopnodeError):
    """Ends a rollout whose outcome nobody waits for any more."""


@dataclass(frozen=True)
class _Ended:
    """How one rollout ended: with an outcome, or with the error of its model."""

    number: int
    outcome: AgentOutcome | None = None
    error: Exception | None = None

    @property
    def own_list(self) -> bool:
        """Whether the model itself chose what to return, or said that there is nothing."""
        return self.outcome is not None and "fallback-ranking" not in self.outcome.degraded


def run_rollouts(
    make: Callable[[int, Callable[[], None]], Runs],
    count: int,
    question: str,
    check: Callable[[], None],
    on_step: Callable[[str, StepData], object] = ignore_step,
) -> AgentOutcome:
    """Runs `make(number, check)` for the numbers from 1 to `count` side by side, and fuses what they found; of several,
    `on_step` gets the step `fusion`.

    A rollout that its model fails is left out as long as one other succeeds. One that handed in no list of its own is
    left out as long as one other did. Raises what `check` raises, a defect of any rollout, and the first rollout's
    ModelUnavailable or ModelRefused when all failed.
    """
    if count == 1:
        return _alone(make(1, check).run(question))
    abandoned = threading.Event()

    def check_both() -> None:
        if abandoned.is_set():
            raise _Abandoned("Another rollout ended the search.")
        check()

    def run(number: int) -> _Ended:
        try:
            return _Ended(number, make(number, check_both).run(question))
        except (ModelUnavailable, ModelRefused) as error:
            return _Ended(number, error=error)
        except BaseException:
            abandoned.set()
            raise

    with ThreadPoolExecutor(count, thread_name_prefix="rollout") as pool:
        started = [pool.submit(copy_context().run, run, number) for number in range(1, count + 1)]
        errors = [error for future in started if (error := future.exception()) is not None]
        if errors:
            raise next((error for error in errors if not isinstance(error, _Abandoned)), errors[0])
    outcome = fused([future.result() for future in started])
    on_step("fusion", fusion_step(outcome))
    return outcome


def _alone(outcome: AgentOutcome) -> AgentOutcome:
    selections = (replace(one, ranks=(rank,)) for rank, one in enumerate(outcome.selections, start=1))
    return replace(outcome, selections=tuple(selections), rollouts=(_end_of(_Ended(1, outcome), counted=True),))


def fused(ended: Sequence[_Ended]) -> AgentOutcome:
    """One outcome for all rollouts. Usage is summed, context sizes are those of the largest."""
    done = [one for one in ended if one.outcome is not None]
    if not done:
        raise ended[0].error or AssertionError("a rollout ends with an outcome or an error")
    counted = [one for one in done if one.own_list] or done
    outcomes = [one.outcome for one in counted if one.outcome is not None]
    degraded = dict.fromkeys(name for outcome in outcomes for name in outcome.degraded)
    degraded |= dict.fromkeys([LEFT_OUT] if len(counted) < len(done) else [])
    degraded |= dict.fromkeys([FAILED] if len(done) < len(ended) else [])
    ways = [outcome.stop_reason for outcome in outcomes]
    everything = [one.outcome for one in done if one.outcome is not None]
    return AgentOutcome(
        selections=_fused_lists({one.number: one.outcome.selections for one in counted if one.outcome}, len(ended)),
        stop_reason="finished" if "finished" in ways else ways[0],
        degraded=tuple(degraded),
        usage=_sum_of([outcome.usage for outcome in everything]),
        index_version=max(outcome.index_version for outcome in everything),
        vector_lag=max(outcome.vector_lag for outcome in everything),
        rollouts=tuple(_end_of(one, counted=one in counted) for one in ended),
    )


def _fused_lists(lists: Mapping[int, Sequence[Selection]], count: int) -> tuple[Selection, ...]:
    """The best passages of several lists by number of rollout; a score is the share of the best possible one."""
    places: dict[str, dict[int, int]] = {}
    chosen: dict[str, list[Selection]] = {}
    for number, selections in lists.items():
        for rank, one in enumerate(selections, start=1):
            places.setdefault(one.chunk.id, {})[number] = rank
            chosen.setdefault(one.chunk.id, []).append(one)
    # fsum, so that the same ranks give the same score in whatever order the rollouts had them
    scores = {key: math.fsum(1 / (RRF_K + rank) for rank in ranks.values()) for key, ranks in places.items()}
    best = sorted(scores, key=lambda key: (-scores[key], key))[:KEPT]
    return tuple(
        replace(
            min(chosen[key], key=lambda one: -one.score),
            score=scores[key] * (RRF_K + 1) / len(lists),
            found_by=tuple(dict.fromkeys(way for one in chosen[key] for way in one.found_by)),
            ranks=tuple(places[key].get(number) for number in range(1, count + 1)),
        )
        for key in best
    )


_LARGEST = frozenset({"context_tokens_peak", "context_tokens_final", "token_budget"})


def _sum_of(usages: Sequence[Usage]) -> Usage:
    def together(name: str) -> float:
        values = [getattr(usage, name) for usage in usages]
        return max(values) if name in _LARGEST else sum(values)

    return Usage(**{field.name: together(field.name) for field in fields(Usage)})  # type: ignore[arg-type]


def _end_of(one: _Ended, *, counted: bool) -> RolloutEnd:
    if one.outcome is None:
        return RolloutEnd(one.number, getattr(one.error, "code", "failed"), counted=False)
    usage = one.outcome.usage
    return RolloutEnd(
        one.number,
        one.outcome.stop_reason,
        one.outcome.degraded,
        counted,
        usage.turns,
        usage.tool_calls,
        tuple(selection.chunk.id for selection in one.outcome.selections),
    )
