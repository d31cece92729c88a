"""The OpenAI chat format: requests and answers as JSON. Knows neither network nor what a request is for.

Written once here, read by the client and by the scripted server, so that both speak the same form.
"""

import json
from collections.abc import Sequence
from typing import cast

from pydantic import BaseModel, Field, JsonValue, ValidationError

from hopnode.worker.inference.messages import ChatRequest, Completion, Message, ToolCall, ToolSpec
from hopnode.worker.inference.remote_error import error_of

REASONING_FIELDS = ("reasoning", "reasoning_content")
"""Where endpoints put a model's reasoning; newer ones use the first, older ones the second."""


class _Function(BaseModel):
    name: str | None = None
    arguments: str | dict[str, JsonValue] | None = None


class _Call(BaseModel):
    id: str | None = None
    function: _Function = Field(default_factory=_Function)


class _Part(BaseModel):
    text: str | None = None


class _Answer(BaseModel):
    content: str | list[_Part] | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(BaseModel):
    message: _Answer
    finish_reason: str | None = None


class _Tokens(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Reply(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Tokens | None = None


def request_body(
    request: ChatRequest,
    model: str,
    attempt: int = 1,
    *,
    refused: frozenset[str] = frozenset(),
    reasoning_fields: frozenset[str] = frozenset(),
) -> dict[str, JsonValue]:
    """The JSON of a request. Fields in `refused` are left out; reasoning goes back under the names it came with (both
    when none is known); a repeated attempt shifts the seed, so that a reply that broke the server is not drawn again."""
    names = sorted(reasoning_fields) or list(REASONING_FIELDS)
    body: dict[str, JsonValue] = {
        "model": model,
        "messages": [_message(message, names, bare=request.bare_arguments) for message in request.messages],
        "temperature": request.temperature,
        "top_p": request.top_p,
        "max_tokens": request.max_tokens,
    }
    if request.seed is not None:
        body["seed"] = request.seed + attempt - 1
    if request.tools:
        body["tools"] = [_tool(tool, strict=tool.strict and "strict" not in refused) for tool in request.tools]
        body["parallel_tool_calls"] = True
    body.update(request.extra)
    if "max_tokens" in refused:
        body["max_completion_tokens"] = body["max_tokens"]
    return {name: value for name, value in body.items() if name not in refused}


def _tool(tool: ToolSpec, *, strict: bool) -> JsonValue:
    function: dict[str, JsonValue] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    if strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _message(message: Message, reasoning_names: Sequence[str], *, bare: bool) -> JsonValue:
    wire: dict[str, JsonValue] = {"role": message.role, "content": message.content}
    if message.tool_call_id is not None:
        wire["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        wire["name"] = message.name
    if message.reasoning:
        wire.update(dict.fromkeys(reasoning_names, message.reasoning))
    if message.tool_calls:
        wire["content"] = message.content or None
        wire["tool_calls"] = [
            _sent(call.id, call.name, call.arguments if bare else _object(call.arguments))
            for call in message.tool_calls
        ]
    return wire


def _sent(call_id: str, name: str, arguments: str) -> JsonValue:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _object(arguments: str) -> str:
    """Arguments as they go back into history: many servers parse them there, and fail on what is no JSON object."""
    try:
        parsed = cast(object, json.loads(arguments))
    except ValueError:
        return "{}"
    return arguments if isinstance(parsed, dict) else "{}"


def read_completion(content: bytes, seconds: float = 0.0) -> tuple[Completion, frozenset[str]]:
    """A completion from an answer's body, and the names under which reasoning came. ValueError when there is none."""
    try:
        reply = _Reply.model_validate_json(content)
    except ValidationError as error:
        problem = error_of(content).message or f"{error.error_count()} defects in the answer"
        raise ValueError(problem) from error
    answer, usage = reply.choices[0].message, reply.usage or _Tokens()
    message = Message(
        "assistant",
        _text(answer.content),
        tool_calls=tuple(_call(call, at) for at, call in enumerate(answer.tool_calls or ())),
        reasoning=answer.reasoning or answer.reasoning_content,
    )
    fields = frozenset(name for name in REASONING_FIELDS if getattr(answer, name))
    completion = Completion(
        message,
        reply.choices[0].finish_reason or "",
        usage.prompt_tokens or 0,
        usage.completion_tokens or 0,
        seconds,
    )
    return completion, fields


def _text(content: str | list[_Part] | None) -> str:
    if isinstance(content, list):
        return "".join(part.text or "" for part in content)
    return content or ""


def _call(call: _Call, at: int) -> ToolCall:
    arguments = call.function.arguments
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return ToolCall(call.id or f"call_{at}", call.function.name or "", raw)


def completion_body(completion: Completion, model: str) -> dict[str, JsonValue]:
    """The JSON of an answer, as an endpoint sends it."""
    message: dict[str, JsonValue] = {"role": "assistant", "content": completion.message.content or None}
    if completion.message.reasoning:
        message["reasoning"] = completion.message.reasoning
    if completion.message.tool_calls:
        message["tool_calls"] = [_sent(call.id, call.name, call.arguments) for call in completion.message.tool_calls]
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": completion.finish_reason}],
        "usage": {
            "prompt_tokens": completion.prompt_tokens,
            "completion_tokens": completion.completion_tokens,
            "total_tokens": completion.prompt_tokens + completion.completion_tokens,
        },
    }
