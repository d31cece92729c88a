"""The search agent's loop: ask the policy, act on what it says, until it hands in its list or a limit ends the run.

Knows no model, network or storage: a policy decides, a search space finds, a recorder listens, `check` says when to stop.
Limits and token rules live in `budget.py`, what is visible in `context.py`, the tools in `tools.py`.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar, runtime_checkable

from hopnode.worker.errors import DeadlineExceeded, ModelRefused, ModelUnavailable, StopSignal
from hopnode.worker.harness.actions import Action
from hopnode.worker.harness.budget import CutShort, LimitReached, Limits, Meter, Rules
from hopnode.worker.harness.context import Context, ContextView, Measure, Observation
from hopnode.worker.harness.final_list import Resolved, fallback, resolve
from hopnode.worker.harness.outcome import AgentOutcome, Usage
from hopnode.worker.harness.tools import PRUNE, Reranker, SearchSpace, Toolbox
from hopnode.worker.harness.trajectory import Recorder
from hopnode.worker.inference.messages import ToolCall

POLL_SECONDS = 0.1
"""How often a running call is interrupted to look whether somebody cancelled; a cancel takes effect within about this."""
SIDE_BY_SIDE = 8
"""Tool calls of one turn that are fetched at the same time."""

T = TypeVar("T")


class Policy(Protocol):
    """Decides what to do next; one object serves one run."""

    rules: Rules

    def opening_tokens(self, question: str) -> int:
        """Tokens of everything that stands before the first turn: instructions, tool table, question."""
        ...

    def next_action(self, view: ContextView) -> Action:
        """The next action; ModelUnavailable or ModelRefused when there is none. Runs on a thread of its own."""
        ...

    def stop(self) -> None:
        """Called from another thread when nobody waits for the action any more: end what is in flight."""
        ...


@runtime_checkable
class Measuring(Protocol):
    """A policy whose wire format can be counted exactly; None where it cannot."""

    measure: Measure | None


class Finished(StopSignal):
    """The policy handed in a final list."""

    def __init__(self, resolved: Resolved) -> None:
        super().__init__("finished" if resolved.selections else "nothing-found")
        self.resolved = resolved


def _named(stop: StopSignal) -> dict[str, None]:
    """The degradation that an end brings with it: failures of the model do, limits do not."""
    return {stop.reason: None} if isinstance(stop, CutShort) and stop.reason != "time-limit" else {}


class SearchAgent:
    """One run of the agent over one search space. `check` raises when the job was cancelled, lost or is past its time."""

    def __init__(
        self,
        policy: Policy,
        space: SearchSpace,
        *,
        limits: Limits,
        recorder: Recorder,
        check: Callable[[], None],
        reranker: Reranker | None = None,
    ) -> None:
        self.policy, self.space, self.reranker = policy, space, reranker
        self.limits, self.rules = limits, policy.rules
        self.recorder, self.check = recorder, check

    def run(self, question: str) -> AgentOutcome:
        """Searches until an end and returns what is held then. Raises what `check` raises, and ModelUnavailable or
        ModelRefused when the policy failed before anything was found."""
        self.meter = Meter(self.limits)
        measure = self.policy.measure if isinstance(self.policy, Measuring) else None
        self.context = Context(question, self.policy.opening_tokens(question), self.rules, measure)
        self.toolbox = Toolbox(self.space, self.context, self.rules, self.reranker)
        self._call_ids: set[str] = set()
        self.recorder.start(question, self.rules, self.limits)
        self._pool = ThreadPoolExecutor(SIDE_BY_SIDE, thread_name_prefix="agent")
        try:
            while True:
                self.step()
        except StopSignal as stop:
            return self.close(stop)
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def step(self) -> None:
        """One turn. A StopSignal ends the run."""
        self.meter.admit()
        if self.rules.no_room(self.context.used):
            raise LimitReached("context-full")
        action = self.ask()
        if action.calls:
            self.act(action.calls)
        else:
            self.judge(action)

    def ask(self, *, closing: bool = False) -> Action:
        """Asks the policy while watching for a cancel and for the clock."""
        view = self.context.view(closing=closing)
        started = time.monotonic()
        try:
            action = self._await(self._submit(lambda: self.policy.next_action(view)), abandon=self.policy.stop)
        except (ModelUnavailable, ModelRefused) as error:
            if not self.context.held():
                raise
            too_long = error.details.get("reason") == "prompt-too-long"
            raise CutShort("prompt-too-long" if too_long else error.code) from error
        seconds = time.monotonic() - started
        action = self._with_own_ids(action)
        self.context.act(action)
        self.meter.asked(action, seconds)
        self.recorder.action(self.meter.turns, action, view.used, seconds, closing=closing)
        return action

    def act(self, calls: Sequence[ToolCall]) -> None:
        """Runs the calls of one turn: fetched side by side, shown in call order, so that the result is the same as one
        after the other. Prunes take effect first, wherever they stand: they make room for the whole turn."""
        started = time.monotonic()
        allowed, refused = calls[: self.meter.calls_left], calls[self.meter.calls_left :]
        seen = frozenset(self.toolbox.seen)
        fetches = [self._submit(lambda call=call: self.toolbox.prefetch(call, seen)) for call in allowed]
        pruned = {call.id: self.toolbox.call(call) for call in allowed if call.name == PRUNE}
        observations: list[Observation] = []
        for call, fetch in zip(allowed, fetches, strict=True):
            answer = partial(self.toolbox.call, call, self._await(fetch))
            observations.append(self._observe((lambda done=pruned[call.id]: done) if call.id in pruned else answer))
        observations += [self._observe(partial(self.toolbox.refused, call)) for call in refused]
        self.recorder.usage(self.meter.turns, *self.context.seal())
        fruitful = any(not observation.error for observation in observations)
        self.meter.acted(len(allowed), time.monotonic() - started, fruitful)

    def judge(self, action: Action) -> None:
        """Takes a final list, or asks once for a better one; the second useless reply in a row ends the run."""
        resolved = self._resolved(action)
        if resolved is not None:
            raise Finished(resolved)
        wording, blank = self.rules.wording, not action.text.strip()
        if action.finish_reason == "length":
            reason, text = "cut-off", wording.cut_off
        else:
            reason, text = ("empty", wording.empty_reply) if blank else ("no-ids", wording.no_ids)
        self.context.note(text)
        self.recorder.nudge(self.meter.turns, reason, text)
        self.meter.strike(fruitful=False, reason="no-final-list", allowed=2)

    def close(self, stop: StopSignal) -> AgentOutcome:
        """The outcome of a run that ends here: the list handed in, else one asked for, else a ranking of what is held."""
        resolved = stop.resolved if isinstance(stop, Finished) else None
        degraded = dict.fromkeys(self.toolbox.degraded)
        if isinstance(stop, LimitReached) and self.context.held():
            try:
                resolved = self._resolved(self.ask(closing=True))
            except CutShort as cut:
                stop = cut if cut.reason == "time-limit" else stop
                degraded.update(_named(cut))
        degraded.update(_named(stop))
        if resolved is None:
            resolved = fallback(self.context, self.rules.final_documents)
            degraded["fallback-ranking"] = None
        outcome = AgentOutcome(
            selections=resolved.selections,
            stop_reason=stop.reason,
            degraded=tuple(degraded),
            usage=self._usage(),
            index_version=self.toolbox.index_version,
            vector_lag=self.toolbox.vector_lag,
        )
        self.recorder.end(outcome, resolved.unknown)
        return outcome

    def _resolved(self, action: Action) -> Resolved | None:
        """The action's final list against what was shown. Returns None without a list, or when it names nothing known."""
        if action.final is None:
            return None
        resolved = resolve(action.final, self.context, self.rules.final_documents)
        return resolved if resolved.selections or not action.final else None

    def _observe(self, answer: Callable[[], Observation]) -> Observation:
        started = time.monotonic()
        observation = self._await(self._submit(answer))
        before = self.context.used
        self.context.observe(observation)
        tokens = self.context.used - before
        self.recorder.observation(self.meter.turns, observation, self.rules, tokens, time.monotonic() - started)
        return observation

    def _with_own_ids(self, action: Action) -> Action:
        """Some endpoints count their call ids from zero in every reply; within a run each id names one call."""
        calls: list[ToolCall] = []
        for at, call in enumerate(action.calls):
            taken = call.id in self._call_ids
            calls.append(replace(call, id=f"call_{self.meter.turns + 1}_{at}") if taken else call)
            self._call_ids.add(calls[-1].id)
        return replace(action, calls=tuple(calls))

    def _submit(self, work: Callable[[], T]) -> Future[T]:
        return self._pool.submit(copy_context().run, work)

    def _await(self, future: Future[T], abandon: Callable[[], None] = lambda: None) -> T:
        """The future's result; meanwhile looks at `check` and at the clock, and abandons the work when either says so."""
        try:
            while not wait([future], timeout=POLL_SECONDS).done:
                self.check()
                if self.meter.out_of_time:
                    raise CutShort("time-limit")
            self.check()
        except DeadlineExceeded as error:
            abandon()
            raise CutShort("time-limit") from error
        except BaseException:
            abandon()
            raise
        return future.result()

    def _usage(self) -> Usage:
        meter, context = self.meter, self.context
        return Usage(
            turns=meter.turns,
            tool_calls=meter.tool_calls,
            parallel_calls=meter.parallel_calls,
            pruned_chunks=context.pruned_chunks,
            prompt_tokens=meter.prompt_tokens,
            completion_tokens=meter.completion_tokens,
            model_seconds=meter.model_seconds,
            tool_seconds=meter.tool_seconds,
            rerank_seconds=self.toolbox.rerank_seconds,
            context_tokens_peak=context.peak,
            context_tokens_final=context.used,
            token_budget=self.rules.window,
        )
