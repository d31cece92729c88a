"""Runs of the agent with the raw Context-1 profile and a scripted model, whose completions are written as text."""

from collections.abc import Sequence

from pydantic import JsonValue

from hopnode.worker.harness.agent import SearchAgent
from hopnode.worker.harness.budget import Limits, Rules
from hopnode.worker.harness.outcome import AgentOutcome
from hopnode.worker.harness.policies.model import ModelPolicy
from hopnode.worker.harness.profiles.context1 import CONTEXT_1_RULES, Context1Profile
from hopnode.worker.harness.profiles.phrasing import Phrasing
from hopnode.worker.harness.tools import Reranker
from hopnode.worker.harness.trajectory import Recorder
from hopnode.worker.inference.messages import Sampled
from hopnode.worker.inference.scripted import SampledLine, ScriptedSampler
from support.harness.agent import FILMS, nothing_to_check
from support.harness.harmony import harmony, tokens
from support.harness.space import MemorySpace

DATE = "2026-03-26"
QUESTION = "Where was the director of Moonrise born?"


def sampled(completion: str, finish_reason: str = "stop") -> Sampled:
    """A completion as the model server would send it."""
    ids = tuple(tokens(completion))
    return Sampled(ids, finish_reason, 0, len(ids))


class RawRun:
    """One run; `sampler` is the scripted model, `prompts` what it was sent, as text with spelled-out structure."""

    def __init__(
        self,
        script: Sequence[str | SampledLine],
        space: MemorySpace | None = None,
        *,
        limits: Limits | None = None,
        rules: Rules = CONTEXT_1_RULES,
        phrasing: Phrasing | None = None,
        reranker: Reranker | None = None,
        seed: int | None = None,
    ) -> None:
        self.sampler = ScriptedSampler([sampled(line) if isinstance(line, str) else line for line in script])
        self.space = space or MemorySpace(FILMS)
        self.profile = Context1Profile(harmony(), DATE, phrasing=phrasing, rules=rules, seed=seed)
        self.recorder = Recorder()
        self.agent = SearchAgent(
            ModelPolicy(self.sampler, self.profile),
            self.space,
            limits=limits or Limits(),
            recorder=self.recorder,
            check=nothing_to_check,
            reranker=reranker,
        )

    def __call__(self, question: str = QUESTION) -> AgentOutcome:
        return self.agent.run(question)

    @property
    def prompts(self) -> list[str]:
        """Every prompt that was sent."""
        return [harmony().decode(request.prompt) for request in self.sampler.requests]

    def data(self, kind: str) -> list[dict[str, JsonValue]]:
        """The data of all steps of one kind."""
        return [step.data for step in self.recorder.steps if step.kind == kind]
