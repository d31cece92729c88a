"""The ground of all bodies, and the JSON of workspaces, keys and collections: what may be sent, and what comes back.

`XCreate` and `XChange` come in, `XRead` goes out; unknown fields are refused, so that a typing error is not lost.
"""

import math
from datetime import datetime
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    Strict,
    StringConstraints,
    field_validator,
)
from pydantic_core import PydanticCustomError

from hopnode.worker.store.workspaces import SCOPES

T = TypeVar("T")

_JSON_DEPTH = 64
NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]*$"
LABEL_PATTERN = r"^[^\x00-\x1f\x7f]*$"


def _storable(text: str) -> str:
    if "\x00" in text:
        raise PydanticCustomError("nul_character", "Text may not hold the character NUL")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise PydanticCustomError("lone_surrogate", "Text may not hold half of a surrogate pair") from error
    return text


def _storable_json(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    _check_json(value)
    return value


def _check_json(value: JsonValue, depth: int = 0) -> None:
    """What every database keeps as it came, and every reader of JSON can read."""
    if depth > _JSON_DEPTH:
        raise PydanticCustomError("too_deep", "JSON may be nested {most} levels deep", {"most": _JSON_DEPTH})
    if isinstance(value, str):
        _storable(value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise PydanticCustomError("not_finite", "JSON has no NaN and no infinite numbers")
    elif isinstance(value, dict):
        for name, inner in value.items():
            _storable(name)
            _check_json(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            _check_json(inner, depth + 1)


def _written_time(value: Any) -> Any:
    """A number could be seconds or milliseconds."""
    if value is not None and not isinstance(value, (str, datetime)):
        raise PydanticCustomError("time_type", "Send a time as text, for example 2027-01-31T00:00:00Z")
    return value


STORABLE = AfterValidator(_storable)
"""Goes last in an annotation, so that length and pattern are judged, and described, as those of a string."""

Text = Annotated[str, STORABLE]
JsonObject = Annotated[dict[str, JsonValue], AfterValidator(_storable_json)]
Slug = Annotated[str, StringConstraints(pattern=NAME_PATTERN, min_length=1, max_length=63)]
Label = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=128, pattern=LABEL_PATTERN), STORABLE
]
Description = Annotated[str, StringConstraints(max_length=10_000), STORABLE]
Url = Annotated[str, StringConstraints(max_length=2048), STORABLE]
Title = Annotated[str, StringConstraints(max_length=1000), STORABLE]
Whole = Annotated[int, Strict()]
Number = Annotated[float, Strict()]
Flag = Annotated[bool, Strict()]
Weight = Annotated[Number, Field(ge=0, le=1)]


class Incoming(BaseModel):
    """A body that callers send."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    def given(self) -> dict[str, Any]:
        """Only the fields that were in the body: a field that is left out is not changed."""
        return {name: getattr(self, name) for name in self.model_fields_set}


class Outgoing(BaseModel):
    """A body that the node sends, readable from the records of the store."""

    model_config = ConfigDict(from_attributes=True)


class Page(Outgoing, Generic[T]):
    """One page of a list."""

    model_config = ConfigDict(json_schema_extra={"description": "One page of a list."})

    items: list[T]
    next_cursor: str | None = Field(default=None, description="Pass as `?cursor=` for the next page; null: the end.")

    @classmethod
    def model_parametrized_name(cls, params: tuple[Any, ...]) -> str:
        """`CollectionReadPage` for `Page[CollectionRead]`: a name that generated clients can use."""
        return f"{params[0].__name__}Page"


class WorkspaceRead(Outgoing):
    """A tenant: its keys, collections, sources and searches."""

    id: str
    name: str = Field(examples=["default"])
    created_at: datetime


class KeyRead(Outgoing):
    """A key without its secret, which nobody can read again."""

    id: str = Field(description="The 8 characters after `hn_`.", examples=["1f0a2b3c"])
    name: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None = Field(description="Accurate to a minute.")
    revoked_at: datetime | None

    @field_validator("scopes", mode="before")
    @classmethod
    def _sorted(cls, value: Any) -> list[str]:
        return sorted(value)


class KeyCreate(Incoming):
    """A new key for the caller's workspace; it cannot hold scopes that the caller's own key lacks."""

    model_config = ConfigDict(json_schema_extra={"example": {"name": "n8n", "scopes": ["search:read", "search:write"]}})

    name: Label
    scopes: list[str] = Field(min_length=1, description="Some of: " + ", ".join(f"`{scope}`" for scope in SCOPES) + ".")
    expires_at: Annotated[datetime | None, BeforeValidator(_written_time)] = Field(
        default=None, description="With a time zone; null: never."
    )

    @field_validator("scopes")
    @classmethod
    def _known(cls, value: list[str]) -> list[str]:
        if unknown := sorted(set(value) - set(SCOPES)):
            raise PydanticCustomError(
                "unknown_scope",
                "Unknown scopes: {unknown}; there are {known}",
                {"unknown": ", ".join(unknown), "known": ", ".join(SCOPES)},
            )
        return value

    @field_validator("expires_at")
    @classmethod
    def _zoned(cls, value: datetime | None) -> datetime | None:
        if value is not None and value.tzinfo is None:
            raise PydanticCustomError("no_time_zone", "The time needs a time zone, for example 2027-01-31T00:00:00Z")
        return value


class KeyCreated(KeyRead):
    """A new key with its secret, shown this one time."""

    token: str = Field(description="The key itself; keep it now.", examples=["hn_1f0a2b3c_…"])


class KeyRotate(Incoming):
    """How long the old key stays valid beside the new one."""

    model_config = ConfigDict(json_schema_extra={"example": {"grace_seconds": 3600}})

    grace_seconds: float = Field(default=86_400, ge=0, le=31_536_000, description="0: it ends at once.")


class WorkspaceCreate(Incoming):
    """A new tenant."""

    model_config = ConfigDict(json_schema_extra={"example": {"name": "research"}})

    name: Slug


class WorkspaceCreated(WorkspaceRead):
    """A new tenant and the key that opens it, which holds every scope except `node:admin`."""

    key: KeyCreated


class WhoamiRead(Outgoing):
    """Who the caller is to the node."""

    workspace: WorkspaceRead
    key: KeyRead
    scopes: list[str] = Field(description="What the key may do.")
    version: str = Field(description="Version of the node.", examples=["0.1.0"])


class CollectionCreate(Incoming):
    """A new collection."""

    model_config = ConfigDict(json_schema_extra={"example": {"name": "handbook", "description": "How we work"}})

    name: Slug
    description: Description = ""
    embedder: Literal["minilm", "use", "http"] | None = Field(
        default=None,
        description="`minilm`: English; `use`: multilingual; `http`: the embeddings API that the node is set up with. "
        "Null: the node's own choice when the first documents come. Cannot be changed once there are documents.",
    )
    dense_weight: Weight | None = Field(
        default=None,
        description="Share of the vector leg, the lexical leg has the rest; null: what was measured for the embedder and "
        "the script of the query.",
    )
    metadata: JsonObject = Field(default_factory=dict[str, JsonValue])


class CollectionChange(Incoming):
    """What to change of a collection; what is left out stays."""

    model_config = ConfigDict(json_schema_extra={"example": {"description": "How we work, since 2026"}})

    description: Description = ""
    dense_weight: Weight | None = None
    metadata: JsonObject = Field(default_factory=dict[str, JsonValue])


class StatsRead(Outgoing):
    """What a collection holds."""

    documents: int
    chunks: int
    tokens: int
    index_version: int = Field(description="Grows with every change of the collection.")
    vector_lag: int = Field(description="Changes that the vector index has not applied yet.")
    lexical_engine: str = Field(
        description="What would answer a search by words now: `rank-bm25` up to 2,000 chunks, `postings` beyond. While "
        "those are not ready, `fts5` answers the same, but more slowly: after a change, and before the first search."
    )
    warnings: list[str]


class CollectionRead(Outgoing):
    """A collection."""

    name: str = Field(examples=["handbook"])
    description: str
    embedder: str | None = Field(description="Null until the first documents came.", examples=["minilm"])
    dimension: int | None
    dense_weight: float | None
    metadata: dict[str, JsonValue]
    created_at: datetime


class CollectionWithStats(CollectionRead):
    """A collection and what it holds."""

    stats: StatsRead
