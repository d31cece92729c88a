"""The seam to chat models: one call in, one completion out, over any OpenAI-compatible endpoint. Knows no rules of a search."""

from collections.abc import Mapping
from typing import Protocol

from pydantic import JsonValue

from hopnode.worker.inference.abort import Abort
from hopnode.worker.inference.chat_wire import read_completion, request_body
from hopnode.worker.inference.endpoint import Endpoint, Named, RetryPolicy
from hopnode.worker.inference.messages import ChatRequest, Completion

CHAT = Named("chat", "HOPNODE_CHAT")
ANSWERS = Named("answer", "HOPNODE_ANSWER")

OPTIONAL_FIELDS = frozenset(
    {
        "temperature",
        "top_p",
        "seed",
        "parallel_tool_calls",
        "max_tokens",
        "strict",
        "reasoning_effort",
        "stop_token_ids",
    }
)
"""Fields without which a request still means the same; `max_tokens` is then sent as `max_completion_tokens`."""


class ChatModel(Protocol):
    """Something that completes a conversation."""

    def complete(self, request: ChatRequest, abort: Abort | None = None) -> Completion:
        """The model's answer. ModelUnavailable: nothing usable came back; ModelRefused: the request itself is wrong."""
        ...


class HttpChat:
    """An OpenAI-compatible chat endpoint; thread-safe. `url` ends in /v1; the limits are those of `Endpoint`."""

    def __init__(
        self,
        url: str,
        model: str,
        api_key: str | None = None,
        timeout_seconds: float = 120.0,
        *,
        named: Named = CHAT,
        total_seconds: float | None = None,
        retries: RetryPolicy | None = None,
    ) -> None:
        self._endpoint = Endpoint(
            url.rstrip("/") + "/chat/completions",
            named,
            api_key,
            timeout_seconds,
            total_seconds=total_seconds,
            retries=retries,
            optional=OPTIONAL_FIELDS,
        )
        self._model = model
        self._reasoning_fields: frozenset[str] = frozenset()

    def complete(self, request: ChatRequest, abort: Abort | None = None) -> Completion:
        """The answer, after as many attempts as the retry policy and the total deadline allow."""

        def body(attempt: int, refused: frozenset[str]) -> Mapping[str, JsonValue]:
            return request_body(request, self._model, attempt, refused=refused, reasoning_fields=self._reasoning_fields)

        completion, fields = self._endpoint.call(body, read_completion, abort)
        self._reasoning_fields |= fields
        return completion
