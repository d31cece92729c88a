"""Rerankers behind HTTP: scores texts against a query over the forms of vLLM and of Text Embeddings Inference (TEI).

Knows no chunks and no rules. There is no local reranker: none comes with its weights in a package.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import BaseModel, Field, JsonValue, TypeAdapter, ValidationError

from hopnode.worker.inference.endpoint import Endpoint, Named, RetryPolicy
from hopnode.worker.inference.remote_error import error_of

RERANKER = Named("reranker", "HOPNODE_RERANKER")
TIMEOUT_SECONDS = 30.0

Kind = Literal["score", "rerank", "tei"]
"""vLLM's /score, /rerank as vLLM, Jina and Cohere have it, or TEI's own /rerank."""
PromptForm = Literal["plain", "qwen3"]


class HttpReranker:
    """A reranker at `url`, behind which /score or /rerank is put; thread-safe, with the limits of `Endpoint`.

    `form` is how query and text are put: `plain`, or as Qwen3-Reranker was trained, for servers that have no template of
    their own for it.
    """

    def __init__(
        self,
        kind: Kind,
        url: str,
        model: str | None = None,
        api_key: str | None = None,
        *,
        form: PromptForm = "plain",
        timeout_seconds: float = TIMEOUT_SECONDS,
        retries: RetryPolicy | None = None,
    ) -> None:
        self.id = f"{kind}:{model or ''}".rstrip(":")
        self._row = _KINDS[kind]
        self._model, self._form = model, _FORMS[form]
        self._endpoint = Endpoint(
            f"{url.rstrip('/')}/{self._row.path}", RERANKER, api_key, timeout_seconds, retries=retries
        )

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """A score for each text, higher is better, in as many calls as the server's batches ask for."""
        asked, put = self._form.query(query), [self._form.text(text) for text in texts]
        scores: list[float] = []
        for start in range(0, len(put), self._row.batch):
            scores += self._call(asked, put[start : start + self._row.batch])
        return scores

    def _call(self, query: str, texts: Sequence[str]) -> list[float]:
        row, sent = self._row, list[JsonValue](texts)
        body: dict[str, JsonValue] = {row.query: query, row.texts: sent, **row.extra}
        if self._model is not None and row.takes_model:
            body["model"] = self._model
        return self._endpoint.call(lambda _attempt, _refused: body, lambda content, _: _read(content, len(texts)))


@dataclass(frozen=True)
class _Row:
    path: str
    query: str
    texts: str
    batch: int
    takes_model: bool = True
    extra: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])


_KINDS: Mapping[Kind, _Row] = {
    "score": _Row("score", "text_1", "text_2", batch=64),
    "rerank": _Row("rerank", "query", "documents", batch=64),
    # TEI takes 32 texts at once unless told otherwise, and refuses long ones unless it may cut them.
    "tei": _Row("rerank", "query", "texts", batch=32, takes_model=False, extra={"truncate": True}),
}


@dataclass(frozen=True)
class _Form:
    before_query: str = ""
    after_query: str = ""
    before_text: str = ""
    after_text: str = ""

    def query(self, query: str) -> str:
        return f"{self.before_query}{query}{self.after_query}"

    def text(self, text: str) -> str:
        return f"{self.before_text}{text}{self.after_text}"


_FORMS: Mapping[PromptForm, _Form] = {
    "plain": _Form(),
    # The prompt that Qwen publishes with the weights, and the instruction that it takes for the default.
    "qwen3": _Form(
        before_query=(
            "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
            'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a '
            "web search query, retrieve relevant passages that answer the query\n<Query>: "
        ),
        after_query="\n",
        before_text="<Document>: ",
        after_text="<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    ),
}


class _Scored(BaseModel):
    index: int = Field(ge=0)
    score: float | None = None
    relevance_score: float | None = None


class _Reply(BaseModel):
    data: list[_Scored] | None = None
    results: list[_Scored] | None = None


_BARE: TypeAdapter[list[_Scored]] = TypeAdapter(list[_Scored])


def _read(content: bytes, count: int) -> list[float]:
    """Scores in the order of the texts. Raises ValueError when it is not one number for each."""
    try:
        if content.lstrip().startswith(b"["):
            entries = _BARE.validate_json(content)
        else:
            reply = _Reply.model_validate_json(content)
            entries = reply.data if reply.data is not None else reply.results or []
    except ValidationError as error:
        raise ValueError(error_of(content).message or f"{error.error_count()} defects in the answer") from error
    scores = {entry.index: entry.relevance_score if entry.score is None else entry.score for entry in entries}
    found = [scores.get(at) for at in range(count)]
    if len(entries) != count or any(score is None for score in found):
        raise ValueError(f"not one score for each of {count} texts")
    return [score for score in found if score is not None]
