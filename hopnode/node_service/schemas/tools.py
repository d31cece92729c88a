"""What the tools for language models take and give back, as JSON. The descriptions are read by models; knows no protocol."""

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, JsonValue, StringConstraints

from hopnode.node_service.schemas.base import STORABLE, Incoming, JsonObject, Outgoing, Slug
from hopnode.node_service.schemas.documents import KEY_CHARACTERS, KEY_PATTERN
from hopnode.node_service.schemas.jobs import QUERY_CHARACTERS, Status
from hopnode.node_service.schemas.searches import COLLECTIONS_MOST, one_each

WAIT_SECONDS = 45
"""Less than the minute after which common clients give a tool up."""
RESULT_CHARACTERS = 24_000
"""Most characters of passages in one result: some 6,000 tokens, which leaves room in any model's context."""
READ_CHARACTERS = 12_000
READ_CHARACTERS_MOST = 24_000
COLLECTIONS_SHOWN = 100

Wait = Annotated[
    float, Field(ge=0, description="Seconds to wait for the end of the search; the node may wait a shorter time.")
]


class SearchOrdered(Incoming):
    """A question to one or more collections."""

    query: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=QUERY_CHARACTERS), STORABLE
    ] = Field(description="The whole question in natural language, with every name and detail that matters.")
    collections: Annotated[list[Slug], AfterValidator(one_each)] = Field(
        min_length=1, max_length=COLLECTIONS_MOST, description="Names of collections, as `list_collections` tells them."
    )
    mode: Literal["auto", "one_shot", "agent"] = Field(
        default="auto",
        description="`one_shot` looks once and is fast; `agent` looks several times, for questions that lead from one "
        "document to the next; `auto` lets the node decide.",
    )
    top_k: int = Field(default=10, ge=1, le=50, description="Most passages in the result.")
    filter: JsonObject | None = Field(
        default=None,
        description='Only documents whose metadata has these values, such as {"team": "platform"}. Leave it out unless '
        "you know the metadata.",
    )

    def job_request(self) -> dict[str, Any]:
        """What the order of the search holds."""
        return self.model_dump(mode="json", exclude={"wait_seconds"})


class SearchAwaited(SearchOrdered):
    """A question, and how long to wait for what is found."""

    wait_seconds: Wait = WAIT_SECONDS


class SearchNamed(Incoming):
    """A search that was started before."""

    search_id: str = Field(min_length=1, max_length=64, description="The id that `search` or `start_search` gave.")
    wait_seconds: Wait = WAIT_SECONDS


class DocumentNamed(Incoming):
    """A document, and which part of its text to read."""

    collection: Slug = Field(description="Name of the collection.")
    key: Annotated[str, StringConstraints(min_length=1, max_length=KEY_CHARACTERS, pattern=KEY_PATTERN), STORABLE] = (
        Field(description="Key of the document, as passages tell it.")
    )
    start: int = Field(
        default=0, ge=0, description="First character to read; use `start` of a passage, or `next_start`."
    )
    characters: int = Field(
        default=READ_CHARACTERS, ge=1, le=READ_CHARACTERS_MOST, description="Most characters to read."
    )


class NothingAsked(Incoming):
    """No arguments."""


class PassageFound(Outgoing):
    """A piece of a document that answers the question; cite it by its number."""

    number: int = Field(description="Stands as `[n]` in the text of the result.")
    text: str
    title: str
    heading: str
    key: str = Field(description="For `read_document`.")
    url: str | None
    page: int | None
    start: int = Field(description="First character of the passage in its document.")
    end: int
    score: float = Field(description="0 to 1: how likely the passage is needed for the answer.")
    justification: str

    @classmethod
    def of(cls, passage: dict[str, Any]) -> Self:
        """A passage of a search's result."""
        return cls.model_validate(passage | {"number": passage["rank"]})


class SearchFound(Outgoing):
    """A search, and what it found once it succeeded."""

    search_id: str
    status: Status
    passages: list[PassageFound] = Field(description="Best first; empty until the search has succeeded.")
    left_out: int = Field(description="Passages that were found and did not fit into this result.")
    degraded: list[str] = Field(description="Every way in which the result is less than it could be, by name.")


class DocumentPart(Outgoing):
    """A part of a document's text."""

    key: str
    title: str
    url: str | None
    metadata: dict[str, JsonValue]
    text: str
    start: int
    end: int
    characters: int = Field(description="Length of the whole text.")
    next_start: int | None = Field(description="Where to read on; null at the end of the document.")


class CollectionShown(Outgoing):
    """A collection of the workspace."""

    name: str
    description: str


class CollectionsFound(Outgoing):
    """The collections that can be searched."""

    collections: list[CollectionShown]
    left_out: int = Field(description="Collections that did not fit into this result.")
