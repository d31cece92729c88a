"""The profile for any OpenAI-compatible endpoint: instructions as system message, native parallel tool calls.

Knows the shape of the conversation only; what is in it is decided by the context and its rules.
"""

import json
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources

from hopnode.worker.harness.actions import Action
from hopnode.worker.harness.budget import Rules
from hopnode.worker.harness.context import CALL_OVERHEAD, MESSAGE_OVERHEAD, ContextView, Measure, Turn
from hopnode.worker.harness.final_list import parse_final
from hopnode.worker.harness.tools import TOOLS
from hopnode.worker.inference.harmony.reply import tool_name
from hopnode.worker.inference.loose_json import first_balanced
from hopnode.worker.inference.messages import ChatRequest, Completion, Message, ToolCall
from hopnode.worker.tokens import count_tokens

_CONTROL = re.compile(r"<(?=[|｜])")
"""Start of a chat format's control token; in a tool result it would be read as structure by some servers."""


@cache
def _instructions() -> str:
    return resources.files("hopnode.worker.harness").joinpath("prompts/generic.md").read_text(encoding="utf-8").strip()


class GenericProfile:
    """Holds what the operator may set of a request: sampling, and a prompt of their own."""

    def __init__(self, *, temperature: float = 1.0, seed: int | None = None, instructions: str | None = None) -> None:
        self.rules = Rules()
        self.measure: Measure | None = None
        self._temperature, self._seed = temperature, seed
        self._instructions = instructions or _instructions()
        self._tools = tuple(tool.spec for tool in TOOLS.values())

    def opening_tokens(self, question: str) -> int:
        """Tokens of instructions, question and the tool table, the latter counted as the JSON that is sent."""
        tools = sum(
            CALL_OVERHEAD + count_tokens(json.dumps([tool.name, tool.description, dict(tool.parameters)]))
            for tool in self._tools
        )
        return 2 * MESSAGE_OVERHEAD + count_tokens(self._instructions) + count_tokens(_ask(question)) + tools

    def request(self, view: ContextView, draw: int = 0) -> ChatRequest:
        """Instructions, question, the visible turns, and last what is said only this once. While closing the tools stay
        listed, so that the shared start of the prompt stays the same, and their use is switched off."""
        messages = [Message("system", self._instructions), Message("user", _ask(view.question))]
        for turn in view.turns:
            messages += _turn(turn)
        if view.transient:
            messages.append(Message("user", view.transient))
        return ChatRequest(
            messages=tuple(_merged(messages)),
            tools=self._tools,
            temperature=self._temperature,
            max_tokens=view.reply_tokens,
            seed=None if self._seed is None else self._seed + draw,
            extra={"tool_choice": "none"} if view.closing else {},
        )

    def action(self, completion: Completion) -> Action:
        """Calls if there are any, else the final list in the text, else in the reasoning of a model that wrote no text."""
        message = completion.message
        reasoning = message.reasoning or ""
        calls = tuple(ToolCall(call.id, tool_name(call.name), _whole(call.arguments)) for call in message.tool_calls)
        written = message.content if message.content.strip() else reasoning
        return Action(
            reasoning=reasoning,
            calls=calls,
            final=None if calls else parse_final(written),
            text=message.content,
            finish_reason=completion.finish_reason,
        )


def _ask(question: str) -> str:
    return f"<question>\n{question}\n</question>"


def _turn(turn: Turn) -> list[Message]:
    action, messages = turn.action, list[Message]()
    if action.text or action.calls:
        calls = action.calls if turn.results else ()
        messages.append(Message("assistant", action.text, tool_calls=calls, reasoning=action.reasoning or None))
    for result in turn.results:
        messages.append(Message("tool", _CONTROL.sub("< ", result.text), tool_call_id=result.call.id))
    if turn.note:
        messages.append(Message("user", turn.note))
    return messages


def _whole(arguments: str) -> str:
    """Arguments without what stands behind them: of gpt-oss held to a schema, vLLM hands on the end token as text."""
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return first_balanced(arguments) or arguments
    return arguments


def _merged(messages: Sequence[Message]) -> list[Message]:
    """Neighbouring user messages as one: some chat templates insist that roles alternate."""
    merged: list[Message] = []
    for message in messages:
        if merged and message.role == merged[-1].role == "user":
            merged[-1] = Message("user", f"{merged[-1].content}\n\n{message.content}")
        else:
            merged.append(message)
    return merged
