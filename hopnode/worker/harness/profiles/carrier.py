"""How Context-1 calls several tools at once, and how results go back to it: the fifth tool and the JSON around texts.

gpt-oss models end a turn at their first call, so calls made side by side travel in one call of `multi_tool_use`. Knows
the shape of these calls and results only, and nothing of tokens, HTTP or rules.
"""

import json
from collections.abc import Mapping, Sequence
from typing import cast

from pydantic import JsonValue

from hopnode.worker.harness.context import Turn
from hopnode.worker.harness.profiles.phrasing import Phrasing
from hopnode.worker.inference.harmony.reply import tool_name
from hopnode.worker.inference.loose_json import loads
from hopnode.worker.inference.messages import ToolCall, ToolSpec

CARRIER = "multi_tool_use"
ESCAPED_SHARE = 20
"""Texts are escaped to ASCII, as the model was trained, unless more than one letter in this many would be: then the escapes
would take several times the tokens of the letters."""

_TEXT: JsonValue = {"type": "string"}
_CALL: JsonValue = {
    "type": "object",
    "properties": {"tool_name": _TEXT, "parameters": {"type": "object"}},
    "required": ["tool_name", "parameters"],
}
_ARGUMENTS: Mapping[str, tuple[str, Mapping[str, JsonValue]]] = {
    "search_corpus": ("query", {"type": "string"}),
    "grep_corpus": ("pattern", {"type": "string"}),
    "read_document": ("doc_id", {"type": "string"}),
    CARRIER: ("tool_calls", {"type": "array", "items": _CALL}),
    "prune_chunks": ("chunk_ids", {"type": "array", "items": _TEXT}),
}
"""The five tools in the order in which the model is told of them, each with its only argument."""


def tool_specs(phrasing: Phrasing) -> tuple[ToolSpec, ...]:
    """The five tools in these words. An argument without a description has none in the schema either."""
    specs: list[ToolSpec] = []
    for name, (argument, schema) in _ARGUMENTS.items():
        words = phrasing.described.get(f"{name}.{argument}", "")
        described: dict[str, JsonValue] = {"type": schema["type"]}
        if words:
            described["description"] = words
        described |= schema
        parameters: dict[str, JsonValue] = {
            "type": "object",
            "properties": {argument: described},
            "required": [argument],
        }
        specs.append(ToolSpec(name, phrasing.described[name], parameters, strict=False))
    return tuple(specs)


def unwrapped(calls: Sequence[ToolCall]) -> tuple[tuple[ToolCall, ...], bool]:
    """The calls with each carrier replaced by what it carries, and whether every carrier could be read.

    A carrier that cannot be read stays, for the tools to complain of. Arguments come out as JSON wherever they can be
    read as such, else as they were written.
    """
    single: list[ToolCall] = []
    readable = True
    for call in calls:
        if call.name != CARRIER:
            single.append(ToolCall(call.id, call.name, _mended(call.arguments)))
        elif carried := _carried(call):
            single += carried
        else:
            single.append(call)
            readable = False
    return tuple(single), readable


def _carried(call: ToolCall) -> list[ToolCall]:
    try:
        value = loads(call.arguments)
    except ValueError:
        return []
    if isinstance(value, dict) and "tool_calls" in value:
        value = value["tool_calls"]
    items = value if isinstance(value, list) else [value]
    made = [_one(item, f"{call.id}_{at}") for at, item in enumerate(items)]
    whole = [one for one in made if one is not None]
    return whole if len(whole) == len(made) else []


def _one(item: JsonValue, call_id: str) -> ToolCall | None:
    """One carried call. Returns None when it names no tool."""
    if not isinstance(item, dict):
        return None
    name = item.get("tool_name", item.get("name"))
    if not isinstance(name, str) or not tool_name(name) or tool_name(name) == CARRIER:
        return None
    given = item.get("parameters", item.get("arguments"))
    return ToolCall(call_id, tool_name(name), _mended(given) if isinstance(given, str) else encoded(given))


def spelled_out(text: str) -> tuple[ToolCall, ...]:
    """Calls that were written as the whole text of an answer instead of being made; empty when the text is anything else."""
    try:
        value = cast(JsonValue, json.loads(text))
    except (ValueError, RecursionError):
        return ()
    made = _carried(ToolCall("call", CARRIER, text)) if isinstance(value, dict | list) else []
    return tuple(made) if all(call.name in _ARGUMENTS for call in made) else ()


def _mended(arguments: str) -> str:
    try:
        value = loads(arguments)
    except ValueError:
        return arguments
    return encoded(value)


def encoded(value: JsonValue) -> str:
    """JSON as the model reads and writes it."""
    plain = json.dumps(value, ensure_ascii=False)
    foreign = sum(not letter.isascii() for letter in plain)
    return plain if foreign * ESCAPED_SHARE > len(plain) else json.dumps(value)


def wrapped(calls: Sequence[ToolCall]) -> tuple[str, str]:
    """Name and arguments of the one call that stands for these in the conversation: itself, or the carrier of a bare list."""
    if len(calls) == 1:
        return calls[0].name, calls[0].arguments
    listed: list[JsonValue] = [{"tool_name": call.name, "parameters": _value(call.arguments)} for call in calls]
    return CARRIER, encoded(listed)


def _value(arguments: str) -> JsonValue:
    try:
        return cast(JsonValue, json.loads(arguments))
    except ValueError:
        return arguments


def results(turn: Turn) -> tuple[str, str]:
    """Tool and body of the one message that answers a turn's calls: the encoded text, or the list of all texts."""
    if len(turn.results) == 1:
        (only,) = turn.results
        return only.call.name, encoded(only.text)
    listed: list[JsonValue] = [
        {"type": "tool_result", "name": result.call.name, "content": [result.text]} for result in turn.results
    ]
    return CARRIER, encoded(listed)
