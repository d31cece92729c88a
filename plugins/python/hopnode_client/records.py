"""What the node answers, as frozen records. Fields that a newer node adds are kept and never an error (`model_extra`).

Knows the JSON of docs/openapi.json and nothing of how it is fetched. Times are aware datetimes in UTC.
"""

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field, JsonValue

FINAL = frozenset({"succeeded", "failed", "cancelled"})
"""The statuses that a job keeps for good."""


class Record(BaseModel):
    """A thing as the node tells it: read-only, and open to fields that are not known yet."""

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True)


class FieldError(Record):
    """One thing that is wrong with a request. `place` is `body`, `query`, `path` or `header`."""

    place: str = Field(default="body", alias="in")
    field: str = ""
    message: str = ""
    code: str = ""


class Problem(Record):
    """A problem document of RFC 9457; `code` is the last part of `type`."""

    type: str = "about:blank"
    title: str = ""
    status: int
    code: str = ""
    detail: str = ""
    request_id: str = ""
    errors: tuple[FieldError, ...] = ()
    reason: str | None = None


class Workspace(Record):
    """A tenant."""

    id: str
    name: str
    created_at: datetime


class Key(Record):
    """A key as the node knows it; never its secret."""

    id: str
    name: str = ""
    scopes: tuple[str, ...] = ()
    created_at: datetime | None = None
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None


class Whoami(Record):
    """Who the caller is to the node, what the key may do, and the version of the node."""

    workspace: Workspace
    key: Key
    scopes: tuple[str, ...] = ()
    version: str = ""


class CollectionStats(Record):
    """What a collection holds; `vector_lag` counts changes that the vector index has not applied yet."""

    documents: int = 0
    chunks: int = 0
    tokens: int = 0
    index_version: int = 0
    vector_lag: int = 0
    lexical_engine: str = ""
    warnings: tuple[str, ...] = ()


class Collection(Record):
    """Documents that are searched together. `stats` is there where one collection was asked for, not in lists."""

    name: str
    description: str = ""
    embedder: str | None = None
    dimension: int | None = None
    dense_weight: float | None = None
    metadata: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    created_at: datetime
    stats: CollectionStats | None = None


class Document(Record):
    """A stored document; `text` only where it was asked for. Offsets of passages count its characters."""

    key: str
    id: str
    title: str = ""
    url: str | None = None
    media_type: str = ""
    metadata: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    characters: int = 0
    chunks: int = 0
    sha256: str = ""
    version: int = 1
    warnings: tuple[str, ...] = ()
    created_at: datetime
    updated_at: datetime
    text: str | None = None


class Outcome(Record):
    """What became of a document: `status` is `stored`, `unchanged` or `failed`; `reason` and `message` say why it failed."""

    key: str
    status: str
    document_id: str | None = None
    chunks_added: int = 0
    chunks_kept: int = 0
    chunks_removed: int = 0
    warnings: tuple[str, ...] = ()
    reason: str | None = None
    message: str | None = None


class JobError(Record):
    """Why a job failed or was cancelled; `code` is a stable word."""

    code: str
    message: str = ""


class Job(Record):
    """What searches, syncs and evaluations have in common. `status` is queued, running, succeeded, failed or cancelled."""

    id: str
    status: str
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error: JobError | None = None
    url: str = ""

    @property
    def ended(self) -> bool:
        """Whether the status is final."""
        return self.status in FINAL


class Source(Record):
    """A configured origin of documents; what `config` holds depends on `kind`."""

    id: str
    collection: str
    kind: str
    name: str
    config: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    sync_every_seconds: int | None = None
    created_at: datetime
    updated_at: datetime


class SyncCounts(Record):
    """How many items a sync met, by what became of them."""

    listed: int = 0
    unchanged: int = 0
    added: int = 0
    changed: int = 0
    deleted: int = 0
    skipped: int = 0
    failed: int = 0
    bytes: int = 0


class Sync(Job):
    """One run of a source. `note` says why it ended otherwise than complete; `skipped` and `failed` count by reason."""

    source_id: str
    counts: SyncCounts = SyncCounts()
    note: str | None = None
    skipped: dict[str, int] = Field(default_factory=dict[str, int])
    failed: dict[str, int] = Field(default_factory=dict[str, int])
    attempt: int = 0


class Progress(Record):
    """How many of the questions of an evaluation have been asked."""

    asked: int = 0
    questions: int = 0


class Evaluation(Job):
    """Questions with known answers, asked to a collection. `report` and `comparison` are those of docs/evaluation.md."""

    name: str
    collection: str
    mode: str = ""
    profile: str = ""
    top_k: int = 0
    seed: int = 0
    compare_with: str | None = None
    progress: Progress = Progress()
    attempt: int = 0
    report: dict[str, JsonValue] | None = None
    comparison: dict[str, JsonValue] | None = None
    degraded: tuple[str, ...] = ()
