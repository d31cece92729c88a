"""What a search found, as frozen records: passages with their citations, answers, steps. Open to new fields, like all records."""

from datetime import datetime
from typing import Any

from pydantic import Field, JsonValue

from hopnode_client.records import Job, Record


class Neighbour(Record):
    """A chunk beside a passage in its document."""

    chunk_id: str
    text: str
    start: int
    end: int
    page: int | None = None


class Passage(Record):
    """A piece of a document that answers the query: `text` is `document.text[start:end]`. `rank` counts from 1."""

    rank: int
    score: float
    document_id: str
    chunk_id: str
    key: str
    title: str = ""
    heading: str = ""
    url: str | None = None
    text: str
    start: int
    end: int
    page: int | None = None
    metadata: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    neighbours: tuple[Neighbour, ...] = ()
    justification: str = ""
    found_by: tuple[str, ...] = ()
    votes: int = 1
    ranks: tuple[int | None, ...] = ()

    @property
    def citation(self) -> dict[str, Any]:
        """Where the passage stands, for the metadata of other libraries; the document's own metadata come under theirs."""
        fields = ("rank", "score", "document_id", "chunk_id", "key", "title", "heading", "url", "start", "end", "page")
        return {**self.metadata, "source": self.url or self.key} | {name: getattr(self, name) for name in fields}


class Citation(Record):
    """A passage that an answer names; `number` is the `[n]` in its text and the rank of the passage."""

    number: int
    chunk_id: str
    document_id: str
    key: str
    title: str = ""
    heading: str = ""
    url: str | None = None
    start: int
    end: int
    page: int | None = None


class Answer(Record):
    """What a language model wrote from the passages. `found` is False where they do not hold the answer."""

    text: str
    found: bool
    citations: tuple[Citation, ...] = ()
    unknown_citations: int = 0
    passages: int = 0
    model: str = ""


class Rollout(Record):
    """How one run of the agent ended."""

    rollout: int
    stop_reason: str = ""
    degraded: tuple[str, ...] = ()
    counted: bool = True
    turns: int = 0
    tool_calls: int = 0
    chunk_ids: tuple[str, ...] = ()


class SearchResult(Record):
    """What a search found. `degraded` names every way in which it is less than it could be."""

    mode: str
    mode_reason: str = ""
    profile: str | None = None
    reranker: str | None = None
    rollouts: tuple[Rollout, ...] = ()
    passages: tuple[Passage, ...] = ()
    answer: Answer | None = None
    stop_reason: str = ""
    degraded: tuple[str, ...] = ()
    usage: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    index: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])


class Search(Job):
    """A search; `result` is there once it succeeded, and never in lists. `answer` tells whether one was asked for."""

    query: str
    collections: tuple[str, ...] = ()
    mode: str = ""
    effort: str = ""
    profile: str = ""
    top_k: int = 0
    filter: dict[str, JsonValue] | None = None
    min_score: float = 0
    neighbours: int = 0
    max_turns: int | None = None
    deadline_seconds: float | None = None
    answer: bool = False
    metadata: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    attempt: int = 0
    last_step: int = 0
    result: SearchResult | None = None

    @property
    def passages(self) -> tuple[Passage, ...]:
        """The passages of the result, best first; none before there is one."""
        return self.result.passages if self.result else ()


class Step(Record):
    """One recorded step of a search. A step `restart` says that what came before it is void."""

    seq: int
    attempt: int = 1
    kind: str
    created_at: datetime
    data: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])


class Trajectory(Record):
    """All steps of a search in order; `complete` once no step will follow."""

    format_version: int
    search_id: str
    status: str
    complete: bool
    steps: tuple[Step, ...] = ()
