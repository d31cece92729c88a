"""Short ways to set up an agent with a scripted model over a small search space."""

import json
from collections.abc import Callable, Mapping, Sequence

from pydantic import JsonValue

from hopnode.worker.harness.actions import Action
from hopnode.worker.harness.agent import SearchAgent
from hopnode.worker.harness.budget import Limits, Rules
from hopnode.worker.harness.context import Context, Observation
from hopnode.worker.harness.outcome import AgentOutcome
from hopnode.worker.harness.policies.model import ModelPolicy
from hopnode.worker.harness.profiles.generic import GenericProfile
from hopnode.worker.harness.tools import Toolbox
from hopnode.worker.harness.trajectory import Recorder
from hopnode.worker.inference.chat import ChatModel
from hopnode.worker.inference.messages import ChatRequest, ToolCall
from hopnode.worker.inference.scripted import ScriptedChat, ScriptLine
from support.harness.space import MemorySpace

FILMS = {
    "d1": ["Moonrise is a film directed by Anna Berg.", "The film Moonrise was shot in Norway."],
    "d2": ["Anna Berg was born in Oslo.", "Anna Berg studied in Bergen."],
    "d3": ["Oslo lies on a fjord."],
    "d4": ["A film about trains, with no moon in it."],
}


def nothing_to_check() -> None:
    """The check of a job that nobody cancels."""


def tool_call(name: str, number: int = 0, **arguments: JsonValue) -> ToolCall:
    """A call with proper arguments."""
    return ToolCall(f"call_{number}", name, json.dumps(arguments, ensure_ascii=False))


def toolbox(documents: Mapping[str, Sequence[str]] | MemorySpace, rules: Rules | None = None, used: int = 0) -> Toolbox:
    """A toolbox over documents, with a context that starts at `used` tokens and an open turn."""
    rules = rules or Rules()
    space = documents if isinstance(documents, MemorySpace) else MemorySpace(documents)
    context = Context("question", used, rules)
    context.act(Action())
    context.used = used
    return Toolbox(space, context, rules)


def observe(box: Toolbox, call: ToolCall) -> Observation:
    """Runs a call and shows its result, as the loop does."""
    observation = box.call(call)
    box.context.observe(observation)
    return observation


class Run:
    """One run of an agent; `events` are the steps as (kind, data), `chat` the scripted model."""

    def __init__(
        self,
        script: Sequence[ScriptLine] | ChatModel,
        space: MemorySpace | None = None,
        *,
        limits: Limits | None = None,
        rules: Rules | None = None,
        check: Callable[[], None] = nothing_to_check,
    ) -> None:
        self.chat = ScriptedChat(script) if isinstance(script, Sequence) else script
        self.space = space or MemorySpace(FILMS)
        profile = GenericProfile()
        profile.rules = rules or profile.rules
        self.recorder = Recorder()
        self.agent = SearchAgent(
            ModelPolicy(self.chat, profile),
            self.space,
            limits=limits or Limits(),
            recorder=self.recorder,
            check=check,
        )

    def __call__(self, question: str = "Where was the director of Moonrise born?") -> AgentOutcome:
        return self.agent.run(question)

    @property
    def requests(self) -> list[ChatRequest]:
        """What the scripted model was asked."""
        assert isinstance(self.chat, ScriptedChat)
        return self.chat.requests

    def kinds(self) -> list[str]:
        """The kinds of the recorded steps, in order."""
        return [step.kind for step in self.recorder.steps]

    def data(self, kind: str) -> list[dict[str, JsonValue]]:
        """The data of all steps of one kind."""
        return [step.data for step in self.recorder.steps if step.kind == kind]
