"""The steps of a search as people read them: one line each, and the hops of a whole run. Knows the form of steps only."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_VERBS = {"search_corpus": "search", "grep_corpus": "grep", "read_document": "read", "prune_chunks": "prune"}


@dataclass(frozen=True)
class Step:
    """One recorded step: its kind and its data, as `docs/harness.md` lists them."""

    kind: str
    data: dict[str, Any]


@dataclass(frozen=True)
class LookupStep:
    """One tool call of the agent that looks for something, and what it brought; `shown` are chunk ids."""

    turn: int
    verb: str
    subject: str
    shown: tuple[str, ...]
    tokens: int
    failed: bool


def describe(step: Step) -> str | None:
    """What a step says in a line; None for steps that only programs need. Those of a second or later rollout say so."""
    line = _line(step)
    rollout = step.data.get("rollout", 1)
    return f"[{rollout}] {line}" if line and rollout > 1 else line


def _line(step: Step) -> str | None:
    data = step.data
    if step.kind == "action":
        return f"turn {data['turn']}: {_action(data)}"
    if step.kind == "observation" and data["tool"] != "prune_chunks":
        return f"    {_outcome(data)}"
    if step.kind == "prune":
        return f"    pruned {count(len(data['chunk_ids']), 'passage')}, freed {data['freed_tokens']:,} tokens"
    if step.kind == "restart":
        return f"begun again (attempt {data['attempt']}): the steps above ended without a result"
    if step.kind == "nudge":
        return f"    asked again: {data['reason']}"
    return None


def hops(steps: Sequence[Step]) -> list[LookupStep]:
    """Every search, grep and read of a run in order; of a search that was begun again, those of the last attempt."""
    steps = _last_attempt(steps)
    calls = {
        (step.data.get("rollout"), call["id"]): call
        for step in steps
        if step.kind == "action"
        for call in step.data["calls"]
    }
    seen = (step.data for step in steps if step.kind == "observation" and step.data["tool"] != "prune_chunks")
    return [
        LookupStep(
            turn=data["turn"],
            verb=str(_VERBS.get(data["tool"], data["tool"])),
            subject=_subject(made["arguments"]) if (made := calls.get((data.get("rollout"), data["call_id"]))) else "",
            shown=tuple(data["shown"]),
            tokens=data["tokens"],
            failed=bool(data["error"]),
        )
        for data in seen
    ]


def pruned(steps: Sequence[Step]) -> list[str]:
    """Ids of the chunks that a run pruned, in order, each once; as with `hops`, those of the last attempt."""
    ids = (chunk_id for step in _last_attempt(steps) if step.kind == "prune" for chunk_id in step.data["chunk_ids"])
    return list(dict.fromkeys(ids))


def _last_attempt(steps: Sequence[Step]) -> Sequence[Step]:
    starts = [at for at, step in enumerate(steps, start=1) if step.kind == "restart"]
    return steps[starts[-1] :] if starts else steps


def _action(data: dict[str, Any]) -> str:
    if data["calls"]:
        calls = (f"{_VERBS.get(call['name'], call['name'])} {_subject(call['arguments'])}" for call in data["calls"])
        return " | ".join(calls)
    return f"ranks {count(len(data['final']), 'passage')}" if data["final"] is not None else "says nothing of use"


def _outcome(data: dict[str, Any]) -> str:
    if data["error"]:
        return f"refused: {data['text'].splitlines()[0] if data['text'] else ''}"
    return f"{count(len(data['shown']), 'passage')}, {data['tokens']:,} tokens"


def _subject(arguments: str) -> str:
    """The argument of a call in quotes, or how many there are; a model may have written something that is no JSON."""
    try:
        value = next(iter(json.loads(arguments).values()))
    except (ValueError, AttributeError, StopIteration):
        return arguments
    return count(len(value), "passage") if isinstance(value, list) else f"“{value}”"


def count(number: int, noun: str) -> str:
    """A number with its noun, in the plural where it belongs."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
