"""The JSON of evaluations: questions with what is right for each, how they are asked, and what came of it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, Self, cast

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, JsonValue, StringConstraints, Tag
from pydantic_core import PydanticCustomError

from hopnode.node_service.schemas.base import STORABLE, Incoming, Label, Outgoing, Slug, Whole
from hopnode.node_service.schemas.documents import KEY_CHARACTERS, KEY_PATTERN
from hopnode.node_service.schemas.jobs import QUERY_CHARACTERS, ErrorRead, Profile, Status
from hopnode.worker.evaluation.report import Report
from hopnode.worker.store.jobs.jobs import Job

QUESTIONS_MOST = 1000
GOLD_MOST = 100
HOPS_MOST = 20
GAIN_MOST = 100

Mode = Literal["auto", "one_shot", "agent"]
GoldKey = Annotated[str, StringConstraints(min_length=1, max_length=KEY_CHARACTERS, pattern=KEY_PATTERN), STORABLE]
Gain = Annotated[Whole, Field(ge=1, le=GAIN_MOST)]
_Some = Field(min_length=1, max_length=GOLD_MOST)


def _form(value: Any) -> str:
    return "gains" if isinstance(value, Mapping) else "keys"


class QuestionCreate(Incoming):
    """A question and the documents that answer it."""

    id: Label | None = Field(default=None, description="Left out: `q` and the number of the question, from 1.")
    question: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=QUERY_CHARACTERS), STORABLE
    ]
    gold: Annotated[
        Annotated[Annotated[list[GoldKey], _Some], Tag("keys")]
        | Annotated[Annotated[dict[GoldKey, Gain], _Some], Tag("gains")],
        Discriminator(_form),
    ] = Field(
        description="Keys of the documents that answer it; or an object from key to gain, where some are worth more."
    )
    hops: Annotated[list[GoldKey], Field(max_length=HOPS_MOST)] = Field(
        default_factory=list[str], description="Keys of the document of each hop, in order."
    )

    def job_question(self, named: str) -> dict[str, JsonValue]:
        """What the job keeps of it: with an id, and a gain for every gold document."""
        gains: dict[str, JsonValue] = dict(self.gold) if isinstance(self.gold, dict) else dict.fromkeys(self.gold, 1)
        return {"id": named, "question": self.question, "gold": gains, "hops": list[JsonValue](self.hops)}


def _one_id_each(questions: list[QuestionCreate]) -> list[QuestionCreate]:
    places: dict[str, int] = {}
    for number, one in enumerate(questions, start=1):
        first = places.setdefault(_id_of(one, number), number)
        if first != number:
            raise PydanticCustomError(
                "repeated_id",
                "Questions {first} and {second} have the same id (one without an id is `q` and its number)",
                {"first": first, "second": number},
            )
    return questions


def _id_of(question: QuestionCreate, number: int) -> str:
    return question.id if question.id is not None else f"q{number}"


class EvaluationCreate(Incoming):
    """Questions to one collection, each with the documents that answer it. No search is told what is right."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "collection": "handbook",
                "name": "mine",
                "questions": [{"question": "Who may delete a collection?", "gold": ["http-api.md"]}],
                "mode": "agent",
            }
        }
    )

    collection: Slug
    name: Label | None = Field(default=None, description="What the report calls the questions; null: the collection.")
    questions: Annotated[list[QuestionCreate], AfterValidator(_one_id_each)] = Field(
        min_length=1, max_length=QUESTIONS_MOST
    )
    mode: Mode = Field(default="auto", description="As of a search.")
    profile: Profile = Field(default="auto", description="As of a search.")
    top_k: Whole = Field(default=20, ge=1, le=100, description="Most passages that each search returns.")
    seed: Whole = Field(default=0, ge=0, le=4_294_967_295, description="Of the intervals, which are drawn.")
    compare_with: Annotated[str, StringConstraints(max_length=64), STORABLE] | None = Field(
        default=None,
        description="Id of an evaluation that succeeded, to be compared with question by question: of the same questions "
        "or some of them, asked in another way or at another time.",
    )

    def job_request(self) -> dict[str, JsonValue]:
        """What the job keeps: all fields, with an id and gains for every question."""
        request: dict[str, JsonValue] = self.model_dump(mode="json", exclude={"questions"})
        request["name"] = self.name or self.collection
        questions = enumerate(self.questions, start=1)
        request["questions"] = [one.job_question(_id_of(one, number)) for number, one in questions]
        return request


class ProgressRead(Outgoing):
    """How far an evaluation is."""

    asked: int
    questions: int


class DifferenceRead(Outgoing):
    """One figure of the earlier evaluation and of this one, over the questions of both."""

    name: str = Field(examples=["recall@5"])
    before: float
    after: float
    difference: float
    low: float = Field(description="With `high`: the 95 % bootstrap interval of the difference, paired by question.")
    high: float
    wins: int = Field(description="Questions that got better.")
    losses: int = Field(description="Questions that got worse.")
    clear: bool = Field(description="Whether the interval leaves out zero.")


class ComparisonRead(Outgoing):
    """This evaluation beside an earlier one, question by question."""

    questions: int = Field(description="Those that both have; all figures are over them.")
    only_before: int
    only_after: int
    differences: list[DifferenceRead]
    p50_before: float = Field(description="Milliseconds of one search.")
    p50_after: float


_JOB_FIELDS = ("id", "status", "error", "attempt", "created_at", "started_at", "ended_at")


class EvaluationSummary(Outgoing):
    """An evaluation without its report, as lists show it."""

    id: str
    status: Status
    name: str
    collection: str
    mode: Mode = Field(description="As asked for.")
    profile: Profile = Field(description="As asked for.")
    top_k: int
    seed: int
    compare_with: str | None
    progress: ProgressRead
    attempt: int = Field(description="How often a worker has taken it up; each goes on behind what was asked already.")
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    error: ErrorRead | None
    url: str = Field(description="Where to ask for it.", examples=["/v1/evaluations/7d1e…"])

    @classmethod
    def of(cls, job: Job, asked: int) -> Self:
        """The evaluation that `job` is, of whose questions so many were asked."""
        request = cast(Mapping[str, Any], job.request)
        row = {name: getattr(job, name) for name in _JOB_FIELDS}
        progress = {"asked": asked, "questions": len(request["questions"])}
        result = cast(dict[str, Any], job.result or {})
        return cls.model_validate(
            {"compare_with": None} | dict(request) | result | row | {"progress": progress, "url": cls.address(job)}
        )

    @staticmethod
    def address(job: Job) -> str:
        """Path of the evaluation, from the root of the node."""
        return f"/v1/evaluations/{job.id}"


class EvaluationRead(EvaluationSummary):
    """An evaluation, with its report once it succeeded."""

    report: Report | None = Field(default=None, description="As `hopnode eval --json` writes it; docs/evaluation.md.")
    comparison: ComparisonRead | None = Field(default=None, description="Where `compare_with` named an evaluation.")
    degraded: list[str] = Field(
        default_factory=list[str],
        description="`collection-changed`: while it was asked; `comparison-unavailable`: the earlier evaluation is gone.",
    )
