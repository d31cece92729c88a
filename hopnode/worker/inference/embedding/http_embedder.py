"""Embeddings from any OpenAI-compatible `/embeddings` endpoint; knows the wire format, one retry policy and one error table."""

import random
import time
from collections.abc import Callable, Sequence
from typing import cast

import httpx
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field, SecretStr, ValidationError

from hopnode.worker import tracing
from hopnode.worker.errors import ModelRefused, ModelUnavailable, NodeError

Vectors = NDArray[np.float32]

BATCH_TEXTS = 64
BATCH_CHARACTERS = 200_000
ATTEMPTS = 4
QUERY_ATTEMPTS = 2
QUERY_TIMEOUT_SECONDS = 10.0
"""A search goes on without vectors when its query cannot be embedded soon; documents can wait longer."""
LONGEST_PAUSE_SECONDS = 20.0


class _Entry(BaseModel):
    index: int = Field(ge=0)
    embedding: list[float] = Field(min_length=1)


class _Answer(BaseModel):
    data: list[_Entry]


class HttpEmbedder:
    """A remote embedding model; the dimension is learnt from its first answer. Its id is `http:<model>`."""

    def __init__(
        self,
        url: str,
        model: str,
        api_key: SecretStr | None = None,
        *,
        timeout_seconds: float = 60,
        first_pause_seconds: float = 0.5,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        headers = {"authorization": f"Bearer {api_key.get_secret_value()}"} if api_key else {}
        self._client = httpx.Client(base_url=url.rstrip("/") + "/", headers=headers)
        self._model = model
        self._timeout = timeout_seconds
        self._first_pause = first_pause_seconds
        self._pause = pause
        self._dimension: int | None = None

    @property
    def id(self) -> str:
        """`http:<model>`."""
        return f"http:{self._model}"

    @property
    def dimension(self) -> int:
        """Length of a vector; asks the endpoint once when nothing was embedded yet."""
        if self._dimension is None:
            self._fetch(["dimension"])
        return cast(int, self._dimension)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Unit rows of `texts`, fetched in batches; `ModelUnavailable` after four tries, `ModelRefused` on a 4xx."""
        parts = [self._fetch(batch) for batch in _batches(texts)]
        return np.concatenate(parts) if parts else np.zeros((0, self._dimension or 0), np.float32)

    def embed_query(self, text: str) -> Vectors:
        """Unit vector of one text; gives up earlier than `embed`."""
        return self._fetch([text], QUERY_ATTEMPTS, min(self._timeout, QUERY_TIMEOUT_SECONDS))[0]

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def _fetch(self, texts: Sequence[str], attempts: int = ATTEMPTS, timeout: float | None = None) -> Vectors:
        # An endpoint may refuse an empty string; a space has no meaning either.
        body = {"model": self._model, "input": [text or " " for text in texts], "encoding_format": "float"}
        limit = httpx.Timeout(timeout or self._timeout, connect=10)
        for attempt in range(1, attempts + 1):
            try:
                with tracing.span("embedder call", "client", texts=len(texts)):
                    answer = self._client.post("embeddings", json=body, timeout=limit, headers=tracing.headers())
                return self._rows(answer, len(texts))
            except (httpx.HTTPError, NodeError) as error:
                failure = error if isinstance(error, NodeError) else translate(error)
                if not failure.retryable or attempt == attempts:
                    raise failure from error
                self._pause(self._delay(attempt, failure))
        raise AssertionError("unreachable")  # pragma: no cover

    def _delay(self, attempt: int, failure: NodeError) -> float:
        asked = failure.details.get("retry_after")
        if isinstance(asked, float):
            return min(asked, LONGEST_PAUSE_SECONDS)
        return random.uniform(0.5, 1) * min(self._first_pause * 2 ** (attempt - 1), LONGEST_PAUSE_SECONDS)  # noqa: S311

    def _rows(self, response: httpx.Response, count: int) -> Vectors:
        if response.status_code != 200:
            raise refusal(response)
        try:
            entries = sorted(_Answer.model_validate_json(response.content).data, key=lambda entry: entry.index)
        except ValidationError as error:
            raise ModelRefused("The embeddings endpoint answered with something that is no list of vectors.") from error
        widths = {len(entry.embedding) for entry in entries}
        if [entry.index for entry in entries] != list(range(count)) or len(widths) != 1:
            raise ModelRefused(f"The embeddings endpoint did not answer with one vector for each of {count} texts.")
        width = widths.pop()
        if self._dimension not in (None, width):
            raise ModelRefused(f"The embeddings endpoint changed its dimension from {self._dimension} to {width}.")
        self._dimension = width
        rows = np.array([entry.embedding for entry in entries], np.float32)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        return np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)


def translate(error: httpx.HTTPError) -> NodeError:
    """The node's error for a call that got no answer."""
    if isinstance(error, httpx.TimeoutException):
        return ModelUnavailable("The embeddings endpoint did not answer in time.")
    if isinstance(error, httpx.TransportError):
        return ModelUnavailable(f"The embeddings endpoint cannot be reached ({type(error).__name__}).")
    return ModelUnavailable(f"The call of the embeddings endpoint failed ({type(error).__name__}).")


RETRYABLE_STATUSES = frozenset({408, 409, 425, 429})


def refusal(response: httpx.Response) -> NodeError:
    """The node's error for an answer that is not 200: 5xx and the retryable 4xx may pass, any other 4xx will not."""
    status = response.status_code
    if status >= 500 or status in RETRYABLE_STATUSES:
        after = response.headers.get("retry-after", "")
        details: dict[str, object] = {"retry_after": float(after)} if after.isdigit() else {}
        return ModelUnavailable(f"The embeddings endpoint answered {status}.", **details)
    hint = {401: " Check HOPNODE_EMBEDDER_API_KEY.", 403: " Check HOPNODE_EMBEDDER_API_KEY."}.get(status, "")
    hint = hint or {404: " Check HOPNODE_EMBEDDER_URL and HOPNODE_EMBEDDER_MODEL."}.get(status, "")
    return ModelRefused(f"The embeddings endpoint refused the request with {status}.{hint}")


def _batches(texts: Sequence[str]) -> list[list[str]]:
    batches: list[list[str]] = []
    size = 0
    for text in texts:
        if not batches or len(batches[-1]) >= BATCH_TEXTS or size + len(text) > BATCH_CHARACTERS:
            batches.append([])
            size = 0
        batches[-1].append(text)
        size += len(text)
    return batches
