"""The JSON of sources: what to make, what to change, and a source as it is."""

from datetime import datetime
from typing import Literal, Self

from pydantic import ConfigDict, Field, JsonValue

from hopnode.node_service.schemas.base import Incoming, JsonObject, Label, Outgoing, Whole
from hopnode.worker.store.sources.sources import Source

_SHORTEST_SYNC_INTERVAL_SECONDS = 60


class SourceCreate(Incoming):
    """A new source of a collection; `config` depends on the kind."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"kind": "website", "name": "docs", "config": {"start_url": "https://example.com/docs/"}}
        }
    )

    kind: Literal["website"]
    name: Label
    config: JsonObject = Field(description="For a `website`: the schema `WebsiteConfig`.")
    sync_every_seconds: Whole | None = Field(
        default=None, ge=_SHORTEST_SYNC_INTERVAL_SECONDS, le=31_536_000, description="Null: only when asked."
    )


class SourceChange(Incoming):
    """What to change of a source; what is left out stays. A new `config` replaces the whole old one, except that a secret field
    which is left out or `***` stays; null takes it away."""

    model_config = ConfigDict(json_schema_extra={"example": {"sync_every_seconds": 86400}})

    name: Label = ""
    config: JsonObject = Field(default_factory=dict[str, JsonValue])
    sync_every_seconds: Whole | None = Field(default=None, ge=_SHORTEST_SYNC_INTERVAL_SECONDS, le=31_536_000)


class SourceRead(Outgoing):
    """A configured origin of documents."""

    id: str
    collection: str = Field(description="Name of the collection that its documents go to.")
    kind: str
    name: str
    config: dict[str, JsonValue] = Field(description="As it was given, with `***` in place of each secret.")
    sync_every_seconds: int | None
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, source: Source, collection: str) -> Self:
        """The source as `collection` has it."""
        return cls.model_validate(vars(source) | {"collection": collection})
