"""The record of a run: every action and observation as it happened, unpruned. Knows no storage; a callback gets each step.

`docs/harness.md` lists the kinds and their fields; a change of meaning raises FORMAT_VERSION.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TypeAlias

from pydantic import JsonValue

from hopnode.worker.harness.actions import Action, FinalEntry
from hopnode.worker.harness.budget import Limits, Rules
from hopnode.worker.harness.context import Observation, render
from hopnode.worker.harness.outcome import AgentOutcome, RolloutEnd
from hopnode.worker.inference.messages import ToolCall

FORMAT_VERSION = 1
RESTART = "restart"
"""The kind of the step with which a search begins again after an attempt that ended without a result."""

StepData: TypeAlias = dict[str, JsonValue]


@dataclass(frozen=True)
class StepRecord:
    """One recorded step; `kind` is start, action, observation, prune, usage, nudge or end, `data` is JSON."""

    kind: str
    data: StepData


def ignore_step(kind: str, data: Mapping[str, JsonValue]) -> None:
    """The callback of a recorder whose steps nobody waits for."""


class Recorder:
    """Keeps the steps of one run and hands each on at once, as `on_step(kind, data)`; `rollout` numbers the runs of one
    search from 1."""

    def __init__(self, on_step: Callable[[str, StepData], object] = ignore_step, rollout: int = 1) -> None:
        self._on_step, self._rollout = on_step, rollout
        self.steps: list[StepRecord] = []

    def start(self, question: str, rules: Rules, limits: Limits) -> None:
        """The run begins under these rules."""
        shown: dict[str, JsonValue] = {"window": rules.window, "soft": rules.soft, "hard": rules.hard}
        self._add(
            "start",
            {"format_version": FORMAT_VERSION, "question": question, "tokens": shown, "limits": asdict(limits)},
        )

    def action(self, turn: int, action: Action, context_tokens: int, seconds: float, *, closing: bool) -> None:
        """The policy decided; `context_tokens` is our count of the view that it was shown."""
        self._add(
            "action",
            {
                "turn": turn,
                "reasoning": action.reasoning,
                "text": action.text,
                "calls": [_call(call) for call in action.calls],
                "final": None if action.final is None else [_entry(entry) for entry in action.final],
                "finish_reason": action.finish_reason,
                "redraws": action.redraws,
                "closing": closing,
                "context_tokens": context_tokens,
                "prompt_tokens": action.prompt_tokens,
                "completion_tokens": action.completion_tokens,
                "measured": action.measured,
                "seconds": round(seconds, 6),
            },
        )

    def observation(self, turn: int, observation: Observation, rules: Rules, tokens: int, seconds: float) -> None:
        """A tool answered; `tokens` is what the answer took in the context, `text` the whole of it as shown then."""
        data: StepData = {
            "turn": turn,
            "call_id": observation.call.id,
            "tool": observation.call.name,
            "text": render(observation, observation.chunks, rules),
            "shown": [chunk.id for chunk in observation.chunks],
            "error": observation.error,
            "tokens": tokens,
            "seconds": round(seconds, 6),
        }
        self._add("observation", data)
        if (pruned := observation.pruned) is not None:
            self._add(
                "prune",
                {
                    "turn": turn,
                    "call_id": observation.call.id,
                    "chunk_ids": list(pruned.chunk_ids),
                    "document_ids": list(pruned.document_ids),
                    "unknown": list(pruned.unknown),
                    "freed_tokens": pruned.freed_tokens,
                },
            )

    def usage(self, turn: int, used: int, text: str) -> None:
        """The results of a turn are complete; `text` is the usage line under the last of them, `used` its count."""
        self._add("usage", {"turn": turn, "used": used, "text": text})

    def nudge(self, turn: int, reason: str, text: str) -> None:
        """The harness told the policy to mend its reply."""
        self._add("nudge", {"turn": turn, "reason": reason, "text": text})

    def end(self, outcome: AgentOutcome, unknown: Sequence[str]) -> None:
        """The run ended; `unknown` are ids of the final list that name nothing this run displayed."""
        self._add(
            "end",
            {
                "stop_reason": outcome.stop_reason,
                "degraded": list(outcome.degraded),
                "selections": [
                    {
                        "chunk_id": selection.chunk.id,
                        "score": selection.score,
                        "justification": selection.justification,
                        "found_by": list(selection.found_by),
                    }
                    for selection in outcome.selections
                ],
                "unknown_ids": list(unknown),
                "usage": asdict(outcome.usage),
            },
        )

    def _add(self, kind: str, data: StepData) -> None:
        data = {"rollout": self._rollout, **data}
        self.steps.append(StepRecord(kind, data))
        self._on_step(kind, data)


def last_attempt(steps: Sequence[StepRecord]) -> Sequence[StepRecord]:
    """The steps behind the last `restart`: a search that is begun again takes nothing over from before."""
    starts = [at for at, step in enumerate(steps, start=1) if step.kind == RESTART]
    return steps[starts[-1] :] if starts else steps


def fusion_step(outcome: AgentOutcome) -> StepData:
    """The data of the step `fusion`, which follows the ends of several rollouts: how each ended, and what they chose
    together."""
    return {
        "rollouts": [rollout_data(one) for one in outcome.rollouts],
        "stop_reason": outcome.stop_reason,
        "degraded": list(outcome.degraded),
        "selections": [
            {"chunk_id": one.chunk.id, "score": one.score, "ranks": list(one.ranks)} for one in outcome.selections
        ],
        "usage": asdict(outcome.usage),
    }


def rollout_data(end: RolloutEnd) -> JsonValue:
    """How one rollout ended, as JSON."""
    return {**asdict(end), "degraded": list(end.degraded), "chunk_ids": list(end.chunk_ids)}


def _call(call: ToolCall) -> JsonValue:
    return {"id": call.id, "name": call.name, "arguments": call.arguments}


def _entry(entry: FinalEntry) -> JsonValue:
    return {"id": entry.id, "justification": entry.justification}
