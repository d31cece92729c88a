"""The JSON of documents: text that comes in, what became of it, and the record that is kept."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, JsonValue, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from hopnode.node_service.schemas.base import STORABLE, Incoming, JsonObject, Outgoing, Text, Title, Url

KEY_PATTERN = r"^[^\x00-\x1f\x7f]+$"
KEY_CHARACTERS = 1024
BATCH_MOST = 100


class DocumentFields(Incoming):
    """What a document is, apart from its bytes."""

    title: Title | None = None
    url: Url | None = Field(default=None, description="Where people find the document; citations carry it.")
    metadata: JsonObject = Field(default_factory=dict[str, JsonValue], description="For `filter` and for citations.")


class DocumentText(DocumentFields):
    """A document as text, in JSON."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "text": "# Setup\n\nRun `hopnode serve`.",
                "title": "Setup",
                "url": "https://example.com/setup",
                "metadata": {"team": "platform"},
            }
        }
    )

    text: Text
    media_type: Literal["text/plain", "text/markdown"] | None = Field(
        default=None, description="`text/markdown` is cut at its headings. Null: the end of the key decides."
    )


class BatchDocument(DocumentFields):
    """One document of a batch: either `text`, or `base64` with a media type or a file name to parse by."""

    key: Annotated[str, StringConstraints(min_length=1, max_length=KEY_CHARACTERS, pattern=KEY_PATTERN), STORABLE]
    text: Text | None = None
    base64: str | None = Field(default=None, description="The raw bytes, base64.")
    media_type: Annotated[str, StringConstraints(max_length=255), STORABLE] | None = None
    filename: Annotated[str, StringConstraints(max_length=255), STORABLE] | None = None

    @model_validator(mode="after")
    def _one_content(self) -> "BatchDocument":
        if (self.text is None) == (self.base64 is None):
            raise PydanticCustomError("one_content", "Give either `text` or `base64`")
        return self


class DocumentBatch(Incoming):
    """Several documents at once: faster than one by one, since they are embedded together."""

    model_config = ConfigDict(json_schema_extra={"example": {"documents": [{"key": "a.txt", "text": "First text."}]}})

    documents: list[BatchDocument] = Field(min_length=1, max_length=BATCH_MOST)


class OutcomeRead(Outgoing):
    """What became of one document."""

    key: str
    status: Literal["stored", "unchanged", "failed"]
    document_id: str | None = None
    chunks_added: int
    chunks_kept: int
    chunks_removed: int
    warnings: list[str]
    reason: str | None = Field(default=None, description="When `failed`: why, as a stable word.")
    message: str | None = Field(default=None, description="When `failed`: why, in words.")


class BatchOutcome(Outgoing):
    """What became of the documents of a batch, in the order of the request; a failed one stops no other."""

    outcomes: list[OutcomeRead]


class DocumentRead(Outgoing):
    """A stored document."""

    key: str = Field(description="The caller's name for it.", examples=["guides/setup.md"])
    id: str = Field(description="The node's name for it; passages carry it as `document_id`.")
    title: str
    url: str | None
    media_type: str
    metadata: dict[str, JsonValue]
    characters: int = Field(description="Length of the text, in Unicode code points, as passages count them.")
    chunks: int
    sha256: str
    version: int = Field(description="Counts the changes of this document, from 1.")
    warnings: list[str]
    created_at: datetime
    updated_at: datetime


class DocumentWithText(DocumentRead):
    """A stored document, with its text where it was asked for."""

    text: str | None = Field(default=None, description="Only with `?text=true`.")
