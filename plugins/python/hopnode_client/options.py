"""What callers may say about searches, collections, sources, evaluations and new documents, as types.

The node checks every value and refuses what it does not know; nothing is checked twice here.
"""

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from hopnode_client.errors import Misuse
from hopnode_client.requests import given

Mode = Literal["auto", "one_shot", "agent"]
Effort = Literal["low", "medium", "high"]
Profile = Literal["auto", "generic", "context-1", "context-1-chat", "offline"]

BATCH_DOCUMENTS = 100
"""The most that the node takes at once."""
BATCH_CHARACTERS = 20_000_000
"""Less than half of what a node takes by default (HOPNODE_MAX_DOCUMENT_BYTES), since a character may weigh more than a byte."""


class Callback(TypedDict, total=False):
    """Who is called when a search ends; docs/webhooks.md explains it. Only `url` is needed."""

    url: str
    events: Sequence[str]
    headers: Mapping[str, str]
    metadata: Mapping[str, Any]


class SearchOptions(TypedDict, total=False):
    """The fields of a search beyond query and collection; docs/http-api.md explains each."""

    mode: Mode
    effort: Effort
    profile: Profile
    top_k: int
    filter: Mapping[str, Any]
    min_score: float
    neighbours: int
    max_turns: int
    deadline_seconds: float
    answer: bool
    metadata: Mapping[str, Any]
    callback: Callback
    join: bool


class CollectionChanges(TypedDict, total=False):
    """What can be changed of a collection. A `dense_weight` of None is the default of its embedder."""

    description: str
    dense_weight: float | None
    metadata: Mapping[str, Any]


class SourceChanges(TypedDict, total=False):
    """What can be changed of a source; a new `config` replaces the whole old one."""

    name: str
    config: Mapping[str, Any]
    sync_every_seconds: int | None


class EvaluationOptions(TypedDict, total=False):
    """The fields of an evaluation beyond collection and questions."""

    name: str
    mode: Mode
    profile: Profile
    top_k: int
    seed: int
    compare_with: str


class _QuestionNeeds(TypedDict):
    question: str
    gold: Sequence[str] | Mapping[str, int]


class Question(_QuestionNeeds, total=False):
    """A question and the keys of the documents that answer it, or an object from key to gain (1 to 100)."""

    id: str
    hops: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDocument:
    """One document of a batch: either `text`, or the `content` of a file with its `media_type` or `filename`."""

    key: str
    text: str | None = None
    content: bytes | None = None
    media_type: str | None = None
    filename: str | None = None
    title: str | None = None
    url: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def to_json(self) -> dict[str, Any]:
        """As the node wants it. Raises Misuse unless there is exactly one of text and content."""
        if (self.text is None) == (self.content is None):
            raise Misuse(f"The document {self.key!r} has not exactly one of text and content.", "Give one of them.")
        fields = ("key", "text", "media_type", "filename", "title", "url")
        encoded = None if self.content is None else base64.b64encode(self.content).decode()
        return given(**{name: getattr(self, name) for name in fields}, base64=encoded, metadata=dict(self.metadata))


def batches(documents: Iterable[NewDocument]) -> Iterator[list[dict[str, Any]]]:
    """The documents in JSON, in as few batches as the limits allow; a document over the limit has one to itself."""
    batch: list[dict[str, Any]] = []
    weight = 0
    for document in documents:
        one = document.to_json()
        heavy = len(one.get("text") or one.get("base64") or "")
        if batch and (len(batch) == BATCH_DOCUMENTS or weight + heavy > BATCH_CHARACTERS):
            yield batch
            batch, weight = [], 0
        batch.append(one)
        weight += heavy
    if batch:
        yield batch


def search_body(query: str, collection: str | Sequence[str], options: SearchOptions) -> dict[str, Any]:
    """The JSON that starts a search in one collection, or in several."""
    named = {"collection": collection} if isinstance(collection, str) else {"collections": list(collection)}
    return {"query": query, **named, **options}
