"""The JSON of searches: what may be asked, a search with its result, and its steps."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, JsonValue, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from hopnode.node_service.schemas.base import STORABLE, Flag, Incoming, JsonObject, Number, Outgoing, Slug, Whole
from hopnode.node_service.schemas.jobs import QUERY_CHARACTERS, ErrorRead, Profile, Status
from hopnode.node_service.schemas.results import ResultRead
from hopnode.node_service.schemas.webhooks import CallbackCreate
from hopnode.worker.store.jobs.jobs import Job

COLLECTIONS_MOST = 10
BATCH_MOST = 100
Effort = Literal["low", "medium", "high"]


def one_each(names: list[str]) -> list[str]:
    """The names. Raises a validation error where one of them stands twice."""
    if len(set(names)) < len(names):
        raise PydanticCustomError("repeated_collection", "Name each collection once")
    return names


class SearchCreate(Incoming):
    """A question to one or more collections. Only what this version can do is accepted."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"query": "Who founded the company that built the tower?", "collection": "handbook"}
        }
    )

    query: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=QUERY_CHARACTERS), STORABLE]
    collection: Slug | None = Field(default=None, description="One collection; or give `collections`.")
    collections: Annotated[list[Slug], AfterValidator(one_each)] | None = Field(
        default=None, min_length=1, max_length=COLLECTIONS_MOST
    )
    mode: Literal["auto", "one_shot", "agent"] = Field(
        default="auto", description="`one_shot`: one hybrid query; `agent`: the loop; `auto`: the node decides."
    )
    effort: Effort = Field(
        default="low",
        description="How many rollouts of the agent run side by side and are fused: `low` 1, `medium` 2, `high` 4. "
        "Without a language model all would be the same, so one is run.",
    )
    profile: Profile = Field(
        default="auto",
        description="`generic`: the chat endpoint that the node is set up with; `context-1`: Chroma's Context-1 behind it, "
        "in token ids; `context-1-chat`: the same over its chat interface; `offline`: no language model; "
        "`auto`: the node's own choice (HOPNODE_PROFILE), else `generic` where there is an endpoint.",
    )
    top_k: Whole = Field(default=10, ge=1, le=50, description="Most passages in the result.")
    filter: JsonObject | None = Field(
        default=None, description="Only documents whose metadata has these values.", examples=[{"team": "platform"}]
    )
    min_score: Number = Field(
        default=0, ge=0, le=1, description="Leave out passages with a lower score; 0 keeps all that were found."
    )
    neighbours: Whole = Field(
        default=0, ge=0, le=3, description="Chunks before and behind each passage that come with it, for context."
    )
    max_turns: Whole | None = Field(default=None, ge=1, le=100, description="Most turns of the agent.")
    deadline_seconds: Number | None = Field(
        default=None,
        gt=0,
        le=3600,
        description="From when a worker takes it up; then it ends with what it holds. "
        "Null: HOPNODE_SEARCH_DEADLINE_SECONDS.",
    )
    answer: Flag = Field(
        default=False,
        description="Have an answer with citations written from the passages, by the model that HOPNODE_ANSWER_MODEL names.",
    )
    metadata: JsonObject = Field(
        default_factory=dict[str, JsonValue], description="Kept with the search and returned with it, for the caller."
    )
    join: bool = Field(
        default=True,
        description="Lead to the search of the workspace that asks the very same (`metadata` included) of the same documents, "
        "where one is under way. With an `Idempotency-Key` it does nothing.",
    )

    callback: CallbackCreate | None = Field(default=None, description="Who is told when it ends.")

    @model_validator(mode="after")
    def _one_way_to_name(self) -> "SearchCreate":
        if (self.collection is None) == (self.collections is None):
            raise PydanticCustomError("one_collection_field", "Give either `collection` or `collections`")
        return self

    def job_request(self) -> dict[str, JsonValue]:
        """What the job keeps: all fields that tell what is asked, with the collections as a list of names."""
        request: dict[str, JsonValue] = self.model_dump(
            mode="json", exclude={"collection", "collections", "callback", "join"}
        )
        request["collections"] = list[JsonValue](self.collection_names)
        return request

    @property
    def collection_names(self) -> list[str]:
        """The collections, whichever field named them."""
        return [self.collection] if self.collection is not None else self.collections or []


class SearchBatch(Incoming):
    """Several searches at once, each for itself."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"shared": {"collection": "handbook"}, "queries": ["Who built the tower?", "Who paid for it?"]}
        }
    )

    shared: JsonObject = Field(
        default_factory=dict[str, JsonValue], description="Fields of a search that hold for all which do not name them."
    )
    queries: list[str] | None = Field(
        default=None, min_length=1, max_length=BATCH_MOST, description="Questions with the fields of `shared`."
    )
    searches: list[JsonObject] | None = Field(
        default=None,
        min_length=1,
        max_length=BATCH_MOST,
        description="Each the body of a search; instead of `queries`.",
    )

    @model_validator(mode="after")
    def _one_list(self) -> "SearchBatch":
        if (self.queries is None) == (self.searches is None):
            raise PydanticCustomError("one_list", "Give either `queries` or `searches`")
        return self

    def bodies(self) -> list[dict[str, JsonValue]]:
        """The body of each search, not checked yet; what it says itself goes before what is shared."""
        own = self.searches or [{"query": query} for query in self.queries or []]
        naming = {"collection", "collections"}
        return [
            {name: value for name, value in self.shared.items() if name not in naming or not naming & body.keys()}
            | body
            for body in own
        ]


_JOB_FIELDS = ("id", "status", "created_at", "started_at", "ended_at", "error", "attempt", "last_step", "result")
_REQUEST_DEFAULTS: dict[str, Any] = {
    "filter": None,
    "min_score": 0,
    "neighbours": 0,
    "max_turns": None,
    "deadline_seconds": None,
    "answer": False,
    "metadata": {},
}


class SearchSummary(Outgoing):
    """A search without its result, as lists show it."""

    id: str
    status: Status
    query: str
    collections: list[str]
    mode: Literal["auto", "one_shot", "agent"] = Field(description="As asked for.")
    effort: Effort
    profile: Profile = Field(description="As asked for.")
    top_k: int
    metadata: dict[str, JsonValue]
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    error: ErrorRead | None
    url: str = Field(description="Where to ask for it.", examples=["/v1/searches/9b2f…"])

    @classmethod
    def of(cls, job: Job) -> Self:
        """The search that `job` is."""
        url = cls.address(job)
        links = {"url": url, "events_url": f"{url}/events", "trajectory_url": f"{url}/trajectory"}
        row = {name: getattr(job, name) for name in _JOB_FIELDS}
        return cls.model_validate(_REQUEST_DEFAULTS | dict(job.request) | row | links)

    @staticmethod
    def address(job: Job) -> str:
        """Path of the search, from the root of the node."""
        return f"/v1/searches/{job.id}"


class SearchRead(SearchSummary):
    """A search, with its result once it succeeded."""

    filter: dict[str, JsonValue] | None
    min_score: float
    neighbours: int
    max_turns: int | None
    deadline_seconds: float | None
    answer: bool = Field(description="Whether an answer was asked for.")
    attempt: int = Field(description="How often a worker has taken it up; the result is that of the last time.")
    last_step: int = Field(description="Number of the newest step.")
    events_url: str
    trajectory_url: str
    result: ResultRead | None


class SearchStarted(SearchRead):
    """A search that was accepted, with what only the one who started it is told."""

    cancel_url: str | None = Field(
        description="A POST to it cancels the search and needs no key. Null when the node has lost its secret key."
    )


class SearchEnd(Outgoing):
    """The data of the last event of a search's stream."""

    search_id: str
    status: Status
    last_step: int

    @classmethod
    def of(cls, job: Job) -> Self:
        """How `job` ended."""
        return cls(search_id=job.id, status=job.status.value, last_step=job.last_step)


class StepRead(Outgoing):
    """One recorded step of a search."""

    seq: int = Field(description="From 1, rising without gaps over all attempts.")
    attempt: int = Field(
        description="Which attempt wrote it. Those before the search's own `attempt` ended without a result: a step "
        "`restart` opens the next one, which begins anew."
    )
    kind: str = Field(examples=["action", "observation"])
    created_at: datetime
    data: dict[str, JsonValue]


class TrajectoryRead(Outgoing):
    """All steps of a search, unpruned."""

    format_version: int = Field(description="Version of the form of the steps.")
    search_id: str
    status: Status
    complete: bool = Field(description="Whether the search has ended, so that no step will follow.")
    steps: list[StepRead]
