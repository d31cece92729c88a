"""Counting tokens turn by turn: what goes through a tokeniser is what is new, however long the history has become."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from types import FrameType
from typing import Any

import pytest
from support.harness.agent import Run, nothing_to_check
from support.harness.context1 import DATE, RawRun, sampled
from support.harness.harmony import call, concluded, harmony
from support.harness.space import MemorySpace

from hopnode.worker import tokens
from hopnode.worker.harness.agent import SearchAgent
from hopnode.worker.harness.budget import Limits
from hopnode.worker.harness.policies.model import ModelPolicy
from hopnode.worker.harness.profiles.context1 import Context1Profile
from hopnode.worker.harness.profiles.context1_chat import Context1ChatProfile
from hopnode.worker.harness.profiles.phrasing import shipped
from hopnode.worker.harness.trajectory import Recorder, StepRecord
from hopnode.worker.inference.harmony.rendering import Harmony
from hopnode.worker.inference.scripted import ScriptedChat, final, use

TURNS = 12
DOCUMENTS = {f"d{n}": [f"{'needle in a haystack of words that say nothing at all ' * 6}{n}"] for n in range(12 * TURNS)}
TOKENISERS = {tokens.count_tokens.__code__: "text", Harmony.user.__code__: "text", Harmony.said.__code__: "text"} | {
    Harmony.called.__code__: "arguments",
    Harmony.answered.__code__: "body",
}


class Tokenised:
    """Characters that went through a tokeniser, up to each request of the model."""

    def __init__(self) -> None:
        self.characters = 0
        self.at_requests: list[int] = []

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """What Python tells a profiler about every call."""
        if event == "call" and (name := TOKENISERS.get(frame.f_code)):
            self.characters += len(frame.f_locals[name])

    def script(self, search: Callable[[int], Any], end: Any) -> list[Any]:
        """Lines for a scripted model: a search in every turn, then the list."""

        def line(answer: Any) -> Callable[[object], Any]:
            def reply(_: object) -> Any:
                self.at_requests.append(self.characters)
                return answer

            return reply

        return [*(line(search(n)) for n in range(TURNS)), line(end)]


@contextmanager
def watching() -> Iterator[Tokenised]:
    seen, before = Tokenised(), sys.getprofile()
    threading.setprofile(seen.note)
    sys.setprofile(seen.note)
    try:
        yield seen
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type]


def generic(seen: Tokenised) -> list[StepRecord]:
    script = seen.script(lambda n: use(("search_corpus", {"query": f"needle {n}"})), final("d0_0"))
    run = Run(script, MemorySpace(DOCUMENTS))
    run()
    return run.recorder.steps


def context_1(seen: Tokenised) -> list[StepRecord]:
    script = seen.script(lambda n: sampled(call("search_corpus", {"query": f"needle {n}"})), sampled(concluded("d0_0")))
    run = RawRun(script, MemorySpace(DOCUMENTS))
    run()
    return run.recorder.steps


def context_1_chat(seen: Tokenised) -> list[StepRecord]:
    script = seen.script(lambda n: use(("search_corpus", {"query": f"needle {n}"})), final("d0_0"))
    profile = Context1ChatProfile(Context1Profile(harmony(), DATE), shipped())
    policy, recorder = ModelPolicy(ScriptedChat(script), profile), Recorder()
    SearchAgent(policy, MemorySpace(DOCUMENTS), limits=Limits(), recorder=recorder, check=nothing_to_check).run(
        "Where?"
    )
    return recorder.steps


@pytest.mark.parametrize("profile", [generic, context_1, context_1_chat])
def test_a_turn_tokenises_a_few_times_what_is_new_and_never_the_history(
    profile: Callable[[Tokenised], list[StepRecord]],
) -> None:
    with watching() as seen:
        steps = profile(seen)
    new = [len(str(step.data["text"])) for step in steps if step.kind == "observation"]
    assert len(new) == TURNS and min(new) > 2_000
    turns = [later - earlier for earlier, later in pairwise(seen.at_requests)]
    print(f"\n{profile.__name__}: {turns[-1]:,} characters in the last turn, {sum(new):,} in view")
    assert all(0 < count < 5 * fresh for count, fresh in zip(turns, new, strict=True))
    assert turns[-1] < sum(new) / 2
    assert turns[-1] < 1.5 * turns[1], "and the last turn costs what an early one costs"
