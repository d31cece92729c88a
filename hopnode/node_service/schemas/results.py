"""The JSON of a search's result: passages with their citations, and how they were found."""

from typing import Literal

from pydantic import ConfigDict, Field, JsonValue

from hopnode.node_service.schemas.base import Outgoing


class NeighbourRead(Outgoing):
    """A chunk beside a passage in its document."""

    chunk_id: str
    text: str
    start: int
    end: int
    page: int | None


class PassageRead(Outgoing):
    """A piece of a document, ranked for the query. `text` is `document[start:end]`, counted in code points."""

    model_config = ConfigDict(extra="allow")

    rank: int = Field(description="From 1.")
    score: float = Field(
        description="0 to 1: how likely the passage is needed for the answer, as the node estimates it from words, vectors, "
        "names and links. It means the same in every mode; the order of a model's list need not follow it."
    )
    document_id: str
    chunk_id: str
    key: str = Field(description="The caller's name of the document.", examples=["guides/setup.md"])
    title: str
    heading: str = Field(default="", description="The headings above it.")
    url: str | None = None
    text: str
    start: int
    end: int
    page: int | None = Field(default=None, description="From 1, for formats that have pages.")
    metadata: dict[str, JsonValue]
    neighbours: list[NeighbourRead] = Field(description="As many as the request asked for, in document order.")
    justification: str
    found_by: list[str] = Field(description="The queries that found it.")
    votes: int = Field(default=1, description="Rollouts that chose it.")
    ranks: list[int | None] = Field(
        default_factory=list[int | None], description="Its place in each rollout, from 1; null where it was not chosen."
    )


class RolloutRead(Outgoing):
    """How one run of the agent ended."""

    model_config = ConfigDict(extra="allow")

    rollout: int = Field(description="From 1; the steps of the trajectory carry it.")
    stop_reason: str = Field(description="As of a search; of a run that failed the code of its error.")
    degraded: list[str]
    counted: bool = Field(description="Whether its list counted in the fusion.")
    turns: int
    tool_calls: int
    chunk_ids: list[str] = Field(description="What it chose, best first.")


class CitationRead(Outgoing):
    """A passage that an answer names; built by the node from what it gave to the model, never from the model's words."""

    number: int = Field(description="As `[n]` in the answer's text; the rank of the passage.")
    chunk_id: str
    document_id: str
    key: str
    title: str
    heading: str
    url: str | None
    start: int
    end: int
    page: int | None


class AnswerRead(Outgoing):
    """An answer that a language model wrote from the passages of the result, and from nothing else."""

    model_config = ConfigDict(extra="allow")

    text: str = Field(
        description="Markdown in the language of the question; `[n]` outside of backticks cites the passage of that rank. "
        "Empty when there were no passages to answer from."
    )
    found: bool = Field(description="Whether the passages hold the answer; when not, `text` says what is missing.")
    citations: list[CitationRead] = Field(description="The passages that `text` cites, in the order of first mention.")
    unknown_citations: int = Field(description="Marks that named no passage and were taken out of the text.")
    passages: int = Field(description="How many passages the model was given, from rank 1 on.")
    model: str


class ResultRead(Outgoing):
    """What a search found."""

    model_config = ConfigDict(extra="allow")

    mode: Literal["one_shot", "agent"] = Field(description="How the search was done in the end.")
    mode_reason: str = Field(description="Why `auto` chose that mode; empty when the request named it.")
    profile: str | None = Field(description="What drove the agent; null for one shot.", examples=["offline"])
    reranker: str | None = Field(
        default=None,
        description="The reranker that ordered candidates; null: the fused order.",
        examples=["score:Qwen3"],
    )
    rollouts: list[RolloutRead] = Field(
        default_factory=list[RolloutRead], description="The runs of the agent; empty for one shot."
    )
    passages: list[PassageRead]
    answer: AnswerRead | None = Field(
        default=None,
        description="Null where none was asked for; where it could not be had `degraded` has a name that begins with "
        "`answer-`.",
    )
    stop_reason: str = Field(description="Why it stopped looking.", examples=["finished"])
    degraded: list[str] = Field(description="Every way in which the result is less than it could be, by name.")
    usage: dict[str, JsonValue] = Field(description="Turns, tool calls, tokens and seconds.")
    index: dict[str, JsonValue] = Field(description="`version` and `vector_lag` of the index that was searched.")
