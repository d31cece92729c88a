"""The JSON of OpenAI's chat completions, as far as a node speaks it, and how a search's answer is told in it.

The form is OpenAI's, not ours. Source: OpenAI's API reference, and what its Python client reads. Knows no search.
"""

import json
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from hopnode.node_service.schemas.base import Outgoing
from hopnode.node_service.schemas.results import CitationRead, ResultRead
from hopnode.worker.store.collections import Collection
from hopnode.worker.store.jobs.jobs import Job

MODEL_PREFIX = "hopnode/"
WAYS = ("auto", "one_shot", "agent")
PIECE_CHARACTERS = 100
"""Most characters of text in one piece of a stream."""
_CHANGE_THE_FORM = (
    "audio",
    "function_call",
    "functions",
    "logprobs",
    "modalities",
    "prediction",
    "response_format",
    "tool_choice",
    "tools",
    "top_logprobs",
    "web_search_options",
)
_HARMLESS: tuple[JsonValue, ...] = (None, False, 0, [], ["text"], "none", "auto", {"type": "text"})
_NOTHING_FOUND = "The documents that were searched hold no answer to this."


class ContentPart(BaseModel):
    """A part of a message; the node reads parts of text only."""

    model_config = ConfigDict(extra="allow")

    type: str
    text: str | None = None


class ChatMessage(BaseModel):
    """One turn of the conversation."""

    model_config = ConfigDict(extra="allow")

    role: str
    content: str | list[ContentPart] | None = None


class StreamOptions(BaseModel):
    """What a stream holds beyond its text."""

    model_config = ConfigDict(extra="allow")

    include_usage: bool = False


class ChatCompletionRequest(BaseModel):
    """A conversation; its last message is the question. Parameters that would only colour the text are ignored."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "example": {
                "model": "hopnode/handbook",
                "messages": [{"role": "user", "content": "Who founded the company that built the tower?"}],
            }
        },
    )

    model: str = Field(
        max_length=1_000,
        description="`hopnode/` and a collection, or several with commas between; `:agent`, `:one_shot` or `:auto` behind it "
        "says how to search.",
    )
    messages: list[ChatMessage] = Field(min_length=1, description="The last one must be the user's.")
    stream: bool | None = Field(default=None, description="Whether the answer comes in pieces, as server-sent events.")
    stream_options: StreamOptions | None = None
    n: int | None = Field(default=None, description="1, where it is given.")

    @property
    def collections(self) -> list[str]:
        """The names of the collections, each once; empty where the model is not one of this node's form."""
        if not self.model.startswith(MODEL_PREFIX):
            return []
        names = self.model.removeprefix(MODEL_PREFIX).partition(":")[0].split(",")
        return list(dict.fromkeys(name.strip() for name in names if name.strip()))

    @property
    def way(self) -> str:
        """How to search; whatever else stands behind the colon is for the caller to refuse."""
        return self.model.partition(":")[2].strip() or "auto"

    @property
    def question(self) -> str | None:
        """The text of the last message; None where it is not the user's, or where it is not text alone."""
        last = self.messages[-1]
        if last.role != "user":
            return None
        if not isinstance(last.content, list):
            return last.content
        texts = [part.text for part in last.content if part.type == "text" and part.text is not None]
        return "\n".join(texts) if len(texts) == len(last.content) else None

    @property
    def unsupported(self) -> str | None:
        """The first parameter that asks for another form of answer than a node can give."""
        if self.n not in (None, 1):
            return "n"
        given = self.model_extra or {}
        return next((name for name in _CHANGE_THE_FORM if given.get(name) not in _HARMLESS), None)

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with its usage."""
        return self.stream_options is not None and self.stream_options.include_usage


class ModelRead(Outgoing):
    """A collection, as a model that can be asked."""

    id: str = Field(examples=["hopnode/handbook"])
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "hopnode"

    @classmethod
    def of(cls, collection: Collection) -> "ModelRead":
        """The model that answers from `collection`."""
        return cls(id=MODEL_PREFIX + collection.name, created=int(collection.created_at))


class ModelList(Outgoing):
    """What can be asked."""

    object: Literal["list"] = "list"
    data: list[ModelRead]


class OpenAIErrorDetail(Outgoing):
    """What went wrong."""

    message: str
    type: Literal["invalid_request_error", "server_error"]
    param: str | None = None
    code: str | None = Field(default=None, examples=["model_not_found"])


class OpenAIError(Outgoing):
    """Why there is no answer, in OpenAI's form."""

    error: OpenAIErrorDetail


class AnswerMessage(Outgoing):
    """The answer, with the list of its sources at the end."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None


class AnswerChoice(Outgoing):
    """The one answer."""

    index: Literal[0] = 0
    message: AnswerMessage
    finish_reason: Literal["stop", "length"]
    logprobs: None = None


class TokenUsage(Outgoing):
    """Tokens of the call that wrote the answer; the search has its own usage."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Grounds(Outgoing):
    """What the answer rests on. OpenAI's form has no place for it."""

    search_id: str
    found: bool = Field(description="Whether the passages hold the answer.")
    citations: list[CitationRead] = Field(description="What `[n]` in the text means.")
    degraded: list[str] = Field(description="Every way in which the result is less than it could be, by name.")


class ChatCompletionRead(Outgoing):
    """An answer from the passages of a search."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[AnswerChoice]
    usage: TokenUsage
    hopnode: Grounds

    @classmethod
    def of(cls, job: Job, result: ResultRead, model: str) -> "ChatCompletionRead":
        """The answer of a search that has one."""
        assert result.answer is not None
        answer, used = result.answer, result.usage
        prompt, reply = (int(str(used.get(f"answer_{part}_tokens", 0))) for part in ("prompt", "completion"))
        cut_off = "answer-cut-off" in result.degraded
        return cls(
            id=completion_id(job),
            created=int(job.created_at),
            model=model,
            choices=[
                AnswerChoice(
                    message=AnswerMessage(content=_with_sources(answer.text or _NOTHING_FOUND, answer.citations)),
                    finish_reason="length" if cut_off else "stop",
                )
            ],
            usage=TokenUsage(prompt_tokens=prompt, completion_tokens=reply, total_tokens=prompt + reply),
            hopnode=Grounds(search_id=job.id, found=answer.found, citations=answer.citations, degraded=result.degraded),
        )

    def pieces(self, *, with_usage: bool) -> Iterator[str]:
        """The same as the JSON of `chat.completion.chunk`s, behind the one that opens a stream."""
        [choice] = self.choices
        text = choice.message.content
        for start in range(0, len(text), PIECE_CHARACTERS):
            yield piece(self.id, self.created, self.model, {"content": text[start : start + PIECE_CHARACTERS]})
        last = {"hopnode": self.hopnode.model_dump(mode="json")}
        yield piece(self.id, self.created, self.model, {}, finish_reason=choice.finish_reason, **last)
        if with_usage:
            yield piece(self.id, self.created, self.model, None, usage=self.usage.model_dump())


def completion_id(job: Job) -> str:
    """The id of the answer to a search."""
    return f"chatcmpl-{job.id}"


def piece(
    identity: str, created: int, model: str, delta: dict[str, str] | None, finish_reason: str | None = None, **more: Any
) -> str:
    """The JSON of one piece of a stream; without a `delta` one that has no choice."""
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}]
    head = {"id": identity, "object": "chat.completion.chunk", "created": created, "model": model, "choices": choices}
    return json.dumps(head | more, ensure_ascii=False)


def _with_sources(text: str, citations: list[CitationRead]) -> str:
    if not citations:
        return text
    lines = [_source(citation) for citation in sorted(citations, key=lambda each: each.number)]
    return "\n".join([text, "", "Sources:", *lines])


def _source(citation: CitationRead) -> str:
    name = " › ".join(part for part in (citation.title or citation.key, citation.heading) if part)
    page = f", page {citation.page}" if citation.page is not None else ""
    return f"[{citation.number}] {name}{page} ({citation.url or citation.key})"
