"""The JSON of Dify's External Knowledge API, and what its conditions on metadata mean as a filter of the node.

The form is Dify's, not ours: what it leaves out, doubles or misspells is taken as it comes. Source: Dify's documentation of the
API, and how its client behaves. Knows no search.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from hopnode.node_service.schemas.base import Outgoing

QUERY_CHARACTERS = 4_000
TOP_K_DEFAULT, TOP_K_MOST = 10, 50
_RESERVED = ("score", "title", "dataset_id", "dataset_name", "document_id")
"""Dify overwrites these keys of a record's metadata, or takes them for its own."""

Filter = dict[str, JsonValue]
Value = JsonValue


class RetrievalSetting(BaseModel):
    """How much is wanted. Dify sends null for what is switched off."""

    model_config = ConfigDict(extra="ignore")

    top_k: int | None = None
    score_threshold: float | None = None


class Condition(BaseModel):
    """One condition on metadata; `name` was a list in earlier versions of Dify."""

    model_config = ConfigDict(extra="ignore")

    name: str | list[str]
    comparison_operator: str
    value: Value = None


class MetadataCondition(BaseModel):
    """All or some of the conditions must hold."""

    model_config = ConfigDict(extra="ignore")

    logical_operator: Literal["and", "or"] | None = "and"
    conditions: list[Condition] | None = None


class RetrievalRequest(BaseModel):
    """What Dify's client sends."""

    model_config = ConfigDict(
        extra="ignore",
        json_schema_extra={
            "example": {
                "knowledge_id": "handbook",
                "query": "Who founded the company that built the tower?",
                "retrieval_setting": {"top_k": 5, "score_threshold": 0.2},
                "metadata_condition": None,
            }
        },
    )

    knowledge_id: str = Field(
        min_length=1,
        max_length=1_000,
        description="A collection, or several with commas between; `:agent` or `:fast` behind it says how to search.",
    )
    query: str = Field(min_length=1)
    retrieval_setting: RetrievalSetting = Field(default_factory=RetrievalSetting)
    metadata_condition: MetadataCondition | None = None

    @property
    def collections(self) -> list[str]:
        """The names of the collections, each once."""
        names = self.knowledge_id.partition(":")[0].split(",")
        return list(dict.fromkeys(name.strip() for name in names if name.strip()))

    @property
    def way(self) -> str:
        """`fast` or `agent`; whatever else stands behind the colon is for the caller to refuse."""
        return self.knowledge_id.partition(":")[2].strip() or "fast"

    @property
    def question(self) -> str:
        """The query without the backslashes that Dify's retrieval test puts before quotes, and no longer than may be."""
        return self.query.replace('\\"', '"')[:QUERY_CHARACTERS]

    @property
    def top_k(self) -> int:
        """How many records at most, within what the node allows."""
        asked = self.retrieval_setting.top_k
        return TOP_K_DEFAULT if asked is None else max(1, min(asked, TOP_K_MOST))

    @property
    def threshold(self) -> float:
        """The least score; Dify does not apply its own to external knowledge."""
        return self.retrieval_setting.score_threshold or 0.0

    @property
    def filter(self) -> Filter | None:
        """The conditions as a filter of the node. Returns None without conditions. Raises ValueError for an unknown operator."""
        asked = self.metadata_condition
        if asked is None or not asked.conditions:
            return None
        parts: list[JsonValue] = [filter_of(condition) for condition in asked.conditions]
        return {asked.logical_operator or "and": parts}


class Record(Outgoing):
    """A passage as Dify reads it."""

    content: str
    score: float = Field(ge=0, le=1)
    title: str
    metadata: dict[str, JsonValue] = Field(description="An object always; `document_id` is unique for each passage.")


class RetrievalRead(Outgoing):
    """The passages, best score first."""

    records: list[Record]


class RetrievalError(Outgoing):
    """Why there are no records, in Dify's form."""

    error_code: int = Field(examples=[1002])
    error_msg: str


def record_of(passage: dict[str, Any], notes: dict[str, JsonValue]) -> Record:
    """A passage of a search's result as a record; `notes` go into its metadata."""
    own = {name: value for name, value in passage["metadata"].items() if name not in _RESERVED}
    about: dict[str, JsonValue] = {
        "document_id": passage["chunk_id"],
        "key": passage["key"],
        "url": passage["url"],
        "heading": passage["heading"],
        "start": passage["start"],
        "end": passage["end"],
        "page": passage["page"],
        "justification": passage["justification"],
    }
    return Record(
        content=passage["text"],
        score=min(max(float(passage["score"]), 0.0), 1.0),
        title=passage["title"] or passage["key"],
        metadata=own | about | notes,
    )


def filter_of(condition: Condition) -> Filter:
    """What one condition asks of a document. Raises ValueError for an operator that Dify does not have.

    A variable that Dify did not resolve (`{{#…#}}`) is known to match nothing.
    """
    name = condition.name if isinstance(condition.name, str) else "".join(condition.name[:1])
    asked = condition.comparison_operator.strip().lower()
    make = _OPERATORS.get(asked)
    if make is None:
        raise ValueError(f"Unknown comparison_operator {asked!r}; there are {', '.join(_OPERATORS)}.")
    if "{{#" in str(condition.value):
        return _NOTHING
    return make(name, condition.value)


_NOTHING: Filter = {"not": {}}
"""The empty filter holds for every document, so this holds for none."""


def _any(name: str, tests: list[Filter]) -> Filter:
    parts: list[JsonValue] = [{name: dict(test)} for test in tests]
    return {"or": parts} if parts else _NOTHING


def _not(filter: Filter) -> Filter:
    return {"not": filter}


def _is(name: str, value: Value) -> Filter:
    """Dify sends most values as text, whatever kind they have in the metadata."""
    return {name: {"in": _spellings(value)}}


def _in(name: str, value: Value) -> Filter:
    given = value if isinstance(value, list) else str("" if value is None else value).split(",")
    wanted = [spelling for one in given for spelling in _spellings(one.strip() if isinstance(one, str) else one)]
    return {name: {"in": wanted}}


def _spellings(value: Value) -> list[JsonValue]:
    if isinstance(value, str):
        number = _number(value)
        truth: list[JsonValue] = [value.lower() == "true"] if value.lower() in ("true", "false") else []
        return [value, *([] if number is None else [number]), *truth]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return [value, f"{value:g}"]
    return [value]


def _text(operator: str, name: str, value: Value) -> Filter:
    return {name: {operator: "" if value is None else str(value)}}


def _ordered(operator: str, name: str, value: Value) -> Filter:
    number = _number(value)
    return _NOTHING if number is None else {name: {operator: number}}


def _timed(operator: str, name: str, value: Value) -> Filter:
    """Dify's times are seconds since 1970; metadata may hold those, or dates as text in the order of RFC 3339."""
    number = _number(value)
    if number is not None:
        day = datetime.fromtimestamp(number, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if 0 <= number < 1e11 else None
        return _any(name, [{operator: number}, *([] if day is None else [Filter({operator: day})])])
    if isinstance(value, str) and re.match(r"\d{4}-\d{2}-\d{2}", value):
        return {name: {operator: value}}
    return _NOTHING


def _number(value: Value) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if number == number and abs(number) != float("inf") else None


_OPERATORS: Mapping[str, Callable[[str, Value], Filter]] = {
    "contains": lambda name, value: _text("contains", name, value),
    "not contains": lambda name, value: _not(_text("contains", name, value)),
    "start with": lambda name, value: _text("starts_with", name, value),
    "end with": lambda name, value: _text("ends_with", name, value),
    "is": _is,
    "is not": lambda name, value: _not(_is(name, value)),
    "empty": lambda name, _: Filter({name: {"empty": True}}),
    "not empty": lambda name, _: Filter({name: {"empty": False}}),
    "in": _in,
    "not in": lambda name, value: _not(_in(name, value)),
    "=": _is,
    "≠": lambda name, value: _not(_is(name, value)),
    ">": lambda name, value: _ordered("gt", name, value),
    "<": lambda name, value: _ordered("lt", name, value),
    "≥": lambda name, value: _ordered("gte", name, value),
    "≤": lambda name, value: _ordered("lte", name, value),
    "before": lambda name, value: _timed("lt", name, value),
    "after": lambda name, value: _timed("gt", name, value),
}
