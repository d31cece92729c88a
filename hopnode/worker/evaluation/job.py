"""The story of an evaluation that is a job: asks a collection of the node question by question.

It keeps every answer as a step, so that another attempt goes on behind the last one. What is right stands in the job's
request and meets answers only at the end.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, JsonValue, TypeAdapter

from hopnode.worker.errors import JobInterrupted, NotFound
from hopnode.worker.evaluation.comparison import compare, comparison_data
from hopnode.worker.evaluation.dataset import Dataset, Gold, Question
from hopnode.worker.evaluation.report import Report
from hopnode.worker.evaluation.running import Prepared, Setup, concluded, has_legs
from hopnode.worker.evaluation.trial import Asking, Retrieved, Trial
from hopnode.worker.logs import get_logger
from hopnode.worker.queue.job_context import JobContext
from hopnode.worker.runtime import Runtime
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.jobs import Job

STEPS_AT_ONCE = 200
PATIENCE_SECONDS = 1.0
"""A search that is due for so long waits for a place that an evaluation may have."""

_RETRIEVED = TypeAdapter(Retrieved)
_log = get_logger(__name__)


class EvaluationQuestion(BaseModel):
    """A question with what is right for it: the gain of each gold document, and the document of each hop."""

    id: str
    question: str
    gold: dict[str, int]
    hops: list[str] = []


class EvaluationRequest(BaseModel):
    """What the job row holds of an evaluation; fields that this story does not need are ignored."""

    model_config = ConfigDict(extra="ignore")

    name: str
    collection: str
    questions: list[EvaluationQuestion]
    mode: Literal["auto", "one_shot", "agent"] = "auto"
    profile: Literal["auto", "generic", "context-1", "context-1-chat", "offline"] = "auto"
    top_k: int = 20
    seed: int = 0
    compare_with: str | None = None

    @property
    def asking(self) -> Asking:
        """How the questions are asked."""
        return Asking(self.mode, self.profile, self.top_k)

    @property
    def dataset(self) -> Dataset:
        """The questions, and apart from them what is right."""
        gold = {one.id: Gold(one.gold, tuple(one.hops)) for one in self.questions}
        return Dataset(self.name, tuple(Question(one.id, one.question) for one in self.questions), gold)

    def differs_from(self, earlier: "EvaluationRequest") -> str | None:
        """Why the two cannot be compared question by question. Returns None when they can."""
        before = {one.id: one for one in earlier.questions}
        shared = [(number, one) for number, one in enumerate(self.questions, start=1) if one.id in before]
        if not shared:
            return "The two evaluations have no question in common: no id is in both"
        for number, one in shared:
            if one.question != before[one.id].question:
                return f"Question {number} is another one in the earlier evaluation, under the same id"
            if one.gold != before[one.id].gold:
                return f"Question {number} has other gold in the earlier evaluation"
        return None


@dataclass(frozen=True)
class Ground:
    """The collection as it was when its first question was asked."""

    collection_id: str
    index_version: int


@dataclass(frozen=True)
class Asked:
    """What came back for one question; `legs` has what each leg of the index found alone, where that is measured."""

    retrieved: Retrieved
    legs: Mapping[str, Sequence[str]]


def run_evaluation_job(runtime: Runtime, context: JobContext) -> JsonValue:
    """Carries out an evaluation; the result is what `GET /v1/evaluations/{id}` shows.

    Raises `NotFound` when the collection is gone, and what `context.check` raises.
    """
    request = EvaluationRequest.model_validate(context.job.request)
    trial = Trial(runtime, context.job.workspace_id, request.collection, context.check)
    context.check()
    asked = _asked_before(runtime.db, context.job)
    ground = _begin(runtime.db, context, trial, len(asked))
    _ask_all(runtime, context, trial, ground, request, asked)
    report = _report(trial, request, asked)
    _check_ground(trial, ground)
    degraded: list[JsonValue] = ["collection-changed"] if trial.index_version != ground.index_version else []
    compared = None
    if request.compare_with is not None:
        earlier = _earlier_report(runtime.db, context.job.workspace_id, request.compare_with)
        compared = comparison_data(compare(earlier, report)) if earlier else None
        degraded += [] if earlier else ["comparison-unavailable"]
    return {"report": report.model_dump(mode="json"), "comparison": compared, "degraded": degraded}


def questions_asked(db: Database, evaluation_ids: Collection[str]) -> Mapping[str, int]:
    """How many questions of each evaluation have been asked; those where none was are left out."""
    return jobs.count_steps(db, evaluation_ids, "asked")


def _asked_before(db: Database, job: Job) -> dict[str, Asked]:
    """What earlier attempts asked, by question."""
    found: dict[str, Asked] = {}
    last = 0
    while steps := jobs.list_steps(db, job.id, after=last, limit=STEPS_AT_ONCE):
        last = steps[-1].seq
        for step in steps:
            if step.kind == "asked":
                data = cast(Mapping[str, Any], step.data)
                retrieved = _RETRIEVED.validate_python(data["answer"])
                found[retrieved.question] = Asked(retrieved, data["legs"])
    return found


def _begin(db: Database, context: JobContext, trial: Trial, asked: int) -> Ground:
    """Records how the collection is, or reads how it was when the first attempt began."""
    if not context.job.last_step:
        ground = Ground(trial.collection.id, trial.index_version)
        context.step("start", asdict(ground))
        return ground
    (first,) = jobs.list_steps(db, context.job.id, limit=1)
    context.step("restart", {"attempt": context.job.attempt, "asked": asked})
    _log.info("evaluation_resumed", asked=asked)
    return Ground(**cast(dict[str, Any], first.data))


def _ask_all(
    runtime: Runtime,
    context: JobContext,
    trial: Trial,
    ground: Ground,
    request: EvaluationRequest,
    asked: dict[str, Asked],
) -> None:
    """Asks what was not asked yet. Gives its place away between two questions when searches wait for one."""

    def may_go_on(done: int) -> None:
        context.check()
        _check_ground(trial, ground)
        limit = runtime.settings.workspace_job_limit
        if done and jobs.is_in_the_way(runtime.db, context.job, PATIENCE_SECONDS, limit):
            raise JobInterrupted("Searches wait for a place; the evaluation goes on behind them.")

    left = [one for one in request.dataset.questions if one.id not in asked]
    for question, found in trial.ask_each(left, request.asking, may_go_on):
        retrieved = replace(found, passages=())
        legs = trial.legs(question) if has_legs(request.asking) else {}
        context.check()
        kept: Mapping[str, JsonValue] = {
            "answer": _RETRIEVED.dump_python(retrieved, mode="json"),
            "legs": cast(JsonValue, legs),
        }
        context.step("asked", kept)
        asked[question.id] = Asked(retrieved, legs)


def _check_ground(trial: Trial, ground: Ground) -> None:
    """Raises `NotFound` when the collection is gone, also when another one bears its name now."""
    collection = trial.collection
    if collection.id != ground.collection_id:
        raise NotFound(
            f"The collection `{collection.name}` was deleted while it was asked; another one has its name now."
        )


def _report(trial: Trial, request: EvaluationRequest, asked: Mapping[str, Asked]) -> Report:
    """The report of an evaluation without a node of its own, over the same questions in the same order."""
    dataset, known = request.dataset, trial.keys()
    setup = Setup(seed=request.seed, collection=request.collection)
    prepared = Prepared(dataset, setup, trial, len(known), dataset.unknown_gold(known))
    legs: dict[str, dict[str, Sequence[str]]] = {}
    for question in dataset.questions:
        for leg, found in asked[question.id].legs.items():
            legs.setdefault(leg, {})[question.id] = found
    retrieved = [asked[question.id].retrieved for question in dataset.questions]
    return concluded(prepared, request.asking, retrieved, legs).report


def _earlier_report(db: Database, workspace_id: str, evaluation_id: str) -> Report | None:
    """The report of an evaluation that succeeded, None when it is not kept any more."""
    try:
        job = jobs.get_job(db, workspace_id, evaluation_id)
    except NotFound:
        return None
    result = cast(Mapping[str, Any], job.result or {})
    return Report.model_validate(result["report"]) if "report" in result else None
