"""The harmony format for tests: one encoding for all of them, and completions written as people read them."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from pydantic import JsonValue

from hopnode.worker.inference.harmony.rendering import Harmony

VOCABULARY = Path(tempfile.gettempdir()) / "hopnode-tests-vocabulary"


@cache
def harmony() -> Harmony:
    """The one encoding."""
    return Harmony(VOCABULARY)


def thought(text: str) -> str:
    """Reasoning."""
    return f"<|start|>assistant<|channel|>analysis<|message|>{text}<|end|>"


def call(name: str, arguments: JsonValue) -> str:
    """A call in the form that the model was trained on."""
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return f"<|start|>assistant to=functions.{name}<|channel|>commentary <|constrain|>json<|message|>{written}<|call|>"


def several(*calls: tuple[str, Mapping[str, JsonValue]]) -> str:
    """Calls side by side: the bare list in the carrier."""
    listed: list[JsonValue] = [{"tool_name": name, "parameters": dict(parameters)} for name, parameters in calls]
    return call("multi_tool_use", listed)


def concluded(*ids: str, reason: str = "It answers.") -> str:
    """A final list."""
    entries = (f"<Document id={one}>\n<Justification>\n{reason}\n</Justification>\n</Document>" for one in ids)
    return "<|start|>assistant<|channel|>final<|message|>" + "\n".join(entries) + "<|return|>"


def tokens(*parts: str) -> Sequence[int]:
    """The token ids of a completion."""
    return harmony().encode("".join(parts))
