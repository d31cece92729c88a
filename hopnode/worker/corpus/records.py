"""The records that cross the border of the corpus; offsets are Unicode code points into the stored document text."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue


@dataclass(frozen=True)
class PageSpan:
    """Where page `number` (from 1) of a paged format lies: `text[start:end]`."""

    number: int
    start: int
    end: int


@dataclass(frozen=True)
class ParsedDocument:
    """Plain text of a document, as it is stored and cited; `kind` tells the chunker which structure to look for."""

    text: str
    kind: str  # "text" | "markdown" | "code:<language>" | "table"
    title: str = ""
    pages: tuple[PageSpan, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChunkSpan:
    """One chunk: `text == document[start:end]`; `heading` is the path of headings above it."""

    text: str
    start: int
    end: int
    tokens: int
    heading: str = ""
    page: int | None = None


@dataclass(frozen=True)
class NewDocument:
    """A document to ingest. Either `text` is given, or `raw` bytes with a media type or a file name to parse by."""

    key: str
    text: str | None = None
    raw: bytes | None = None
    media_type: str | None = None
    filename: str | None = None
    title: str | None = None
    url: str | None = None
    metadata: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])


@dataclass(frozen=True)
class Document:
    """A stored document; `id` is short, opaque and free of underscores, `key` is the user's own name for it."""

    id: str
    collection_id: str
    key: str
    title: str
    url: str | None
    media_type: str
    metadata: Mapping[str, JsonValue]
    characters: int
    chunks: int
    sha256: str
    version: int
    warnings: tuple[str, ...]
    created_at: float
    updated_at: float


@dataclass(frozen=True)
class Chunk:
    """A stored chunk with what is needed to cite it; `id` is `<document_id>_<n>`, never reused for other text."""

    id: str
    row: int
    document_id: str
    collection_id: str
    position: int
    text: str
    start: int
    end: int
    tokens: int
    page: int | None
    heading: str
    key: str
    title: str
    url: str | None
    metadata: Mapping[str, JsonValue]


@dataclass(frozen=True)
class Hit:
    """A chunk that a search found; ranks count from 1 and are None where that leg did not find it."""

    chunk: Chunk
    score: float
    dense_rank: int | None = None
    lexical_rank: int | None = None


@dataclass(frozen=True)
class SearchHits:
    """Fused hits, best first, and every degradation by name (for example `vectors-unavailable`)."""

    hits: tuple[Hit, ...]
    degraded: tuple[str, ...] = ()
    index_version: int = 0
    vector_lag: int = 0


@dataclass(frozen=True)
class IngestOutcome:
    """What became of one document: `stored`, `unchanged` or `failed` (then `reason` is a slug, `message` a sentence)."""

    key: str
    status: str
    document_id: str | None = None
    chunks_added: int = 0
    chunks_kept: int = 0
    chunks_removed: int = 0
    warnings: tuple[str, ...] = ()
    reason: str | None = None
    message: str | None = None


@dataclass(frozen=True)
class CollectionStats:
    """What a collection holds; `vector_lag` counts changes that the vector index does not know yet, `lexical_engine`
    is the one that would answer a search now: `rank-bm25`, `postings` or `fts5`."""

    documents: int
    chunks: int
    tokens: int
    index_version: int
    vector_lag: int
    lexical_engine: str
    warnings: tuple[str, ...] = ()
