"""Messages between the harness and a chat model, free of any wire format."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue


@dataclass(frozen=True)
class ToolCall:
    """A call that a model asked for. `arguments` is the raw text; it may not be JSON."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class ToolSpec:
    """A tool as the model sees it; `parameters` is a JSON schema of an object, to which `strict` asks the server to hold
    the arguments."""

    name: str
    description: str
    parameters: Mapping[str, JsonValue]
    strict: bool = True


@dataclass(frozen=True)
class Message:
    """One turn of a conversation; `tool_call_id` is set on tool results (with `name` where a server wants the tool's name),
    `reasoning` is sent back to models that think."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    reasoning: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class Completion:
    """What a chat model answered; token counts are 0 where the endpoint does not report them."""

    message: Message
    finish_reason: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class ChatRequest:
    """One call of a chat model. `bare_arguments` sends the arguments of earlier calls back as they are, also where they are
    no JSON object, which many servers insist on."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    temperature: float = 1.0
    top_p: float = 0.9
    max_tokens: int = 4096
    seed: int | None = None
    bare_arguments: bool = False
    extra: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])


@dataclass(frozen=True)
class PromptRequest:
    """One call of a model that continues token ids."""

    prompt: tuple[int, ...]
    temperature: float = 1.0
    top_p: float = 0.9
    max_tokens: int = 4096
    seed: int | None = None


@dataclass(frozen=True)
class Sampled:
    """The ids that a model continued a prompt with, its stop token included where the server tells it."""

    tokens: tuple[int, ...]
    finish_reason: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
