"""What a policy decides in one turn; knows nothing of how the decision was reached or of what comes of it."""

from dataclasses import dataclass

from hopnode.worker.inference.messages import ToolCall


@dataclass(frozen=True)
class FinalEntry:
    """One entry of a final list: a chunk id or a document id, as the policy wrote it."""

    id: str
    justification: str = ""


@dataclass(frozen=True)
class Action:
    """Reasoning plus tool calls, or a final list. Calls win when both are there.

    `final` is None when there is no list at all, and empty when the policy says that nothing in the corpus helps.
    `text` is what the model wrote beside its calls; token counts are 0 where nobody counted them, and `measured` where the
    model's own server did. `malformed` says that
    the reply broke its format, `redraws` how many such replies were drawn and dropped before this one.
    """

    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    final: tuple[FinalEntry, ...] | None = None
    text: str = ""
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    measured: bool = False
    malformed: bool = False
    redraws: int = 0
