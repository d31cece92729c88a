"""Context-1 over a chat endpoint: the portable form, for servers that render the harmony format themselves (vLLM does).

Knows the shape of the conversation only. The rules are those of the exact form, `context1.py`, and so is the count.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from pydantic import JsonValue

from hopnode.worker.harness.actions import Action
from hopnode.worker.harness.context import ContextView, Measure, Turn
from hopnode.worker.harness.profiles.carrier import results, tool_specs, wrapped
from hopnode.worker.harness.profiles.context1 import Context1Profile, action_of
from hopnode.worker.harness.profiles.phrasing import Phrasing
from hopnode.worker.inference.harmony.rendering import STOP_TOKENS
from hopnode.worker.inference.harmony.reply import HarmonyReply, looks_like_harmony, pieces_of, read_reply, tool_name
from hopnode.worker.inference.messages import ChatRequest, Completion, Message, ToolCall

_CONTROL = re.compile(r"<(?=[|｜])")
"""Start of a chat format's control token; in a tool result it would be read as structure by some servers."""

_EXTRA: Mapping[str, JsonValue] = {"reasoning_effort": "high", "stop_token_ids": list[JsonValue](STOP_TOKENS)}
"""vLLM ends a reply where the weights' own configuration says, and Context-1's lacks the end of a call: without the stop tokens
the model writes on behind its call, and invents what the tool answers."""


class Context1ChatProfile:
    """Serves one run; `exact` is the same conversation in the exact form, by which it is counted."""

    def __init__(self, exact: Context1Profile, phrasing: Phrasing, *, seed: int | None = None) -> None:
        self.rules = exact.rules
        self.measure: Measure | None = self._turn_tokens
        self._exact, self._seed = exact, seed
        self._tools = tool_specs(phrasing)

    def opening_tokens(self, question: str) -> int:
        """Tokens of system and developer message, which the server adds, and of the prompt with the question."""
        return self._exact.opening_tokens(question)

    def request(self, view: ContextView, draw: int = 0) -> ChatRequest:
        """One user message with prompt and question, the visible turns, and last what is said only this once."""
        messages = [Message("user", self._exact.ask(view.question))]
        for turn in view.turns:
            messages += _turn(turn)
        if view.transient:
            messages.append(Message("user", view.transient))
        return ChatRequest(
            messages=tuple(messages),
            tools=self._tools,
            max_tokens=view.reply_tokens,
            seed=None if self._seed is None else self._seed + draw,
            bare_arguments=True,
            extra={**_EXTRA, "tool_choice": "none"} if view.closing else _EXTRA,
        )

    def action(self, completion: Completion) -> Action:
        """What the model decided, also where the server left the format's tokens in content or reasoning."""
        message = completion.message
        return action_of(_reply(message), completion.finish_reason)

    def _turn_tokens(self, turn: Turn) -> int:
        """As in the exact form, without the reasoning of a turn that made no call: it is not sent, or dropped by the server."""
        sent = turn.action if turn.action.calls else replace(turn.action, reasoning="")
        return self._exact.turn_tokens(replace(turn, action=sent))


def _turn(turn: Turn) -> Iterator[Message]:
    action = turn.action
    if action.calls:
        name, arguments = wrapped(action.calls)
        call = ToolCall(action.calls[0].id, name, arguments)
        yield Message("assistant", action.text, tool_calls=(call,), reasoning=action.reasoning or None)
        if turn.results:
            answered, body = results(turn)
            yield Message("tool", _CONTROL.sub("< ", body), tool_call_id=call.id, name=answered)
    elif action.text:
        yield Message("assistant", action.text)
    if turn.note:
        yield Message("user", turn.note)


def _reply(message: Message) -> HarmonyReply:
    reasoning, content = message.reasoning or "", message.content
    calls = tuple(ToolCall(call.id, tool_name(call.name), call.arguments) for call in message.tool_calls)
    if calls:
        text = "" if looks_like_harmony(content) else content
        return HarmonyReply(reasoning, text, calls)
    if looks_like_harmony(content):
        spilled = read_reply(pieces_of(content))
        return HarmonyReply(f"{reasoning}\n{spilled.reasoning}".strip(), spilled.text, spilled.calls, spilled.broken)
    if looks_like_harmony(reasoning):
        return read_reply(pieces_of(f"<|channel|>analysis<|message|>{reasoning}"))
    return HarmonyReply(reasoning, content.strip())
