"""The seam to models that continue token ids: `/v1/completions` with integer prompts, as vLLM serves it. Knows no format."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from pydantic import BaseModel, Field, JsonValue, ValidationError

from hopnode.worker.inference.abort import Abort
from hopnode.worker.inference.chat import CHAT
from hopnode.worker.inference.endpoint import Endpoint, RetryPolicy
from hopnode.worker.inference.messages import PromptRequest, Sampled
from hopnode.worker.inference.remote_error import error_of

OPTIONAL_FIELDS = frozenset({"temperature", "top_p", "seed", "return_token_ids", "skip_special_tokens"})
"""Fields without which a request still means the same. Without token ids the text is read."""


class Sampler(Protocol):
    """Something that continues token ids."""

    def complete(self, request: PromptRequest, abort: Abort | None = None) -> Sampled:
        """The continuation. ModelUnavailable: nothing usable came back; ModelRefused: the request itself is wrong."""
        ...


class HttpCompletions:
    """An endpoint at `url` (which ends in /v1); thread-safe, with the limits of `Endpoint`.

    `encode` turns text with spelled-out structural tokens into ids, for servers that send no ids. Generation ends at
    `stop_tokens`.
    """

    def __init__(
        self,
        url: str,
        model: str,
        encode: Callable[[str], Sequence[int]],
        stop_tokens: Sequence[int],
        api_key: str | None = None,
        timeout_seconds: float = 120.0,
        *,
        total_seconds: float | None = None,
        retries: RetryPolicy | None = None,
    ) -> None:
        self._endpoint = Endpoint(
            url.rstrip("/") + "/completions",
            CHAT,
            api_key,
            timeout_seconds,
            total_seconds=total_seconds,
            retries=retries,
            optional=OPTIONAL_FIELDS,
        )
        self._model, self._encode, self._stop_tokens = model, encode, list(stop_tokens)

    def complete(self, request: PromptRequest, abort: Abort | None = None) -> Sampled:
        """The continuation, after as many attempts as the retry policy and the total deadline allow. An attempt that is
        repeated shifts the seed, so that a reply that broke the server is not drawn again."""

        def body(attempt: int, refused: frozenset[str]) -> Mapping[str, JsonValue]:
            return self._body(request, attempt, refused)

        return self._endpoint.call(body, self._read, abort)

    def _body(self, request: PromptRequest, attempt: int, refused: frozenset[str]) -> dict[str, JsonValue]:
        body: dict[str, JsonValue] = {
            "model": self._model,
            "prompt": list(request.prompt),
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
            "stop_token_ids": list[JsonValue](self._stop_tokens),
            "return_token_ids": True,
            "skip_special_tokens": False,
        }
        if request.seed is not None:
            body["seed"] = request.seed + attempt - 1
        return {name: value for name, value in body.items() if name not in refused}

    def _read(self, content: bytes, seconds: float) -> Sampled:
        try:
            reply = _Reply.model_validate_json(content)
        except ValidationError as error:
            raise ValueError(error_of(content).message or f"{error.error_count()} defects in the answer") from error
        choice, usage = reply.choices[0], reply.usage or _Tokens()
        tokens = choice.token_ids if choice.token_ids is not None else self._encode(choice.text or "")
        return Sampled(
            tuple(tokens),
            choice.finish_reason or "",
            usage.prompt_tokens or 0,
            usage.completion_tokens or len(tokens),
            seconds,
        )


class _Choice(BaseModel):
    text: str | None = None
    token_ids: list[int] | None = None
    finish_reason: str | None = None


class _Tokens(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Reply(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Tokens | None = None


def sampled_body(sampled: Sampled, model: str) -> dict[str, JsonValue]:
    """The JSON of an answer, as vLLM sends it when token ids are asked for."""
    return {
        "id": "cmpl-scripted",
        "object": "text_completion",
        "created": 0,
        "model": model,
        "choices": [
            {
                "index": 0,
                "text": "",
                "token_ids": list(sampled.tokens),
                "finish_reason": sampled.finish_reason,
                "stop_reason": sampled.tokens[-1] if sampled.finish_reason == "stop" and sampled.tokens else None,
            }
        ],
        "usage": {
            "prompt_tokens": sampled.prompt_tokens,
            "completion_tokens": sampled.completion_tokens,
            "total_tokens": sampled.prompt_tokens + sampled.completion_tokens,
        },
    }
