"""The profile of Chroma's Context-1 in token ids: the harmony format, as in the training of the model.

Knows the shape of the conversation only; what is in it is decided by the context and its rules. The portable form over a
chat endpoint is `context1_chat.py`; both share CONTEXT_1_RULES.
"""

from collections.abc import Callable, Iterator

from hopnode.worker.harness.actions import Action
from hopnode.worker.harness.budget import Rules
from hopnode.worker.harness.context import ContextView, Measure, Turn
from hopnode.worker.harness.final_list import parse_final, parse_tagged
from hopnode.worker.harness.profiles.carrier import CARRIER, results, spelled_out, tool_specs, unwrapped, wrapped
from hopnode.worker.harness.profiles.phrasing import Phrasing, shipped
from hopnode.worker.harness.wording import Wording
from hopnode.worker.inference.harmony.rendering import Harmony, Rendering, Tokens
from hopnode.worker.inference.harmony.reply import HarmonyReply
from hopnode.worker.inference.messages import PromptRequest, Sampled

CONTEXT_1_WORDING = Wording(
    list_lead="\n",
    chunk_header="# DOCUMENT ID: {id} ({tokens} tokens) ",
    rejected=(
        "Error: over the token budget ({used}/{shown} tokens). Call prune_chunks to make room, or write your final "
        "answer."
    ),
    nothing_fits="No results found",
    emptied="",
)
CONTEXT_1_RULES = Rules(
    missing_rank=20,
    soft_message=False,
    prune_documents=False,
    titles=False,
    collapse_blank_lines=True,
    redraws=1,
    carrier=CARRIER,
    wording=CONTEXT_1_WORDING,
)
"""Where they differ from the generic ones: the letters of headers and errors, nothing shown that the model never saw."""


class Context1Profile:
    """Serves one run. `date` (YYYY-MM-DD) is the same for all rollouts of a search, so that their prompts begin alike."""

    def __init__(
        self,
        harmony: Harmony,
        date: str,
        *,
        phrasing: Phrasing | None = None,
        rules: Rules = CONTEXT_1_RULES,
        seed: int | None = None,
    ) -> None:
        self.rules = rules
        self.measure: Measure | None = self.turn_tokens
        self.rendering = Rendering()
        self._harmony = harmony
        self._phrasing = phrasing or shipped()
        self._seed = seed
        self._opening = harmony.opening(date, tool_specs(self._phrasing))

    def opening_tokens(self, question: str) -> int:
        """Tokens of system and developer message and of the prompt with the question."""
        return len(self._begin(question))

    def request(self, view: ContextView, draw: int = 0) -> PromptRequest:
        """The whole conversation in token ids. The model itself writes the start of its message."""
        prompt = [*self._begin(view.question)]
        for turn in view.turns:
            for render, *parts in self._messages(turn):
                prompt += self.rendering.of(render, *parts)
        if view.transient:
            prompt += self._harmony.user(view.transient)
        return PromptRequest(
            tuple(prompt),
            max_tokens=self.rules.reply_cap(view.used, len(prompt)),
            seed=None if self._seed is None else self._seed + draw,
        )

    def action(self, answer: Sampled) -> Action:
        """What the model decided."""
        return action_of(self._harmony.read(answer.tokens), answer.finish_reason)

    def ask(self, question: str) -> str:
        """The text of the one user message: role prompt and question. It is an observation too, so it ends with a usage
        line, which counts what stands above it."""
        prompt = self._phrasing.ask(question)
        above = len(self._opening) + len(self.rendering.of(self._harmony.user, prompt))
        return f"{prompt}\n\n{self.rules.say(self.rules.wording.usage_line, above)}"

    def _begin(self, question: str) -> Tokens:
        return self._opening + self.rendering.of(self._harmony.user, self.ask(question))

    def turn_tokens(self, turn: Turn) -> int:
        """What a turn takes in the conversation, exactly."""
        return sum(self.rendering.count(render, *parts) for render, *parts in self._messages(turn))

    def _messages(self, turn: Turn) -> Iterator[tuple[Callable[..., Tokens], *tuple[str, ...]]]:
        """How each message of a turn is rendered, and from what."""
        action = turn.action
        if action.reasoning:
            yield self._harmony.said, action.reasoning, "analysis"
        if action.text:
            yield self._harmony.said, action.text, "commentary" if action.calls else "final"
        if action.calls:
            yield self._harmony.called, *wrapped(action.calls)
        if turn.results:
            yield self._harmony.answered, *results(turn)
        if turn.note:
            yield self._harmony.user, turn.note


def action_of(reply: HarmonyReply, finish_reason: str) -> Action:
    """Calls if there are any, unwrapped, or written out as the text; else the final list in the text, or in the reasoning
    of a model that wrote no text.

    Malformed is a reply that holds none of these and no text, unless it was cut off, and a carrier that cannot be read.
    """
    calls, readable = unwrapped(reply.calls)
    calls = calls or spelled_out(reply.text)
    final = parse_final(reply.text) if reply.text else parse_tagged(reply.reasoning)
    empty = not calls and final is None and not reply.text
    return Action(
        reasoning=reply.reasoning,
        calls=calls,
        final=None if calls else final,
        text=reply.text,
        malformed=not readable or (empty and finish_reason != "length"),
    )
