"""An evaluation as a job against the same questions measured directly, and what becomes of it when it cannot run through."""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, cast

import pytest
from support.node.queue import wait_until

from hopnode.worker.evaluation.dataset import Dataset, Gold, Question, Text
from hopnode.worker.evaluation.job import questions_asked
from hopnode.worker.evaluation.running import Setup, measure, prepare
from hopnode.worker.evaluation.trial import Asking, Trial, workspace_of
from hopnode.worker.job_handlers import make_runner
from hopnode.worker.queue.runner import QueueRunner
from hopnode.worker.runtime import Runtime
from hopnode.worker.store.collections import create_collection, delete_collection
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.jobs import Job, JobStatus

NAME = "boats"
TEXTS = (
    Text("nordlys", "Nordlys", "The ferry Nordlys leaves from Harstad every morning. Its captain is Liv Holm."),
    Text("holm", "Liv Holm", "Liv Holm was born in Bergen and learnt to sail on the boat of an uncle."),
    Text("key", "Lighthouse", "The harbour master keeps the key of the lighthouse."),
    Text("bread", "Bakery", "The bakery opens at six and sells bread and cakes."),
)
QUESTIONS: list[dict[str, Any]] = [
    {
        "id": "q1",
        "question": "Where was the captain of the ferry Nordlys born?",
        "gold": {"nordlys": 1, "holm": 3},
        "hops": ["nordlys", "holm"],
    },
    {"id": "q2", "question": "Who keeps the key of the lighthouse?", "gold": {"key": 1, "nowhere": 1}},
    {"id": "q3", "question": "When does the bakery open?", "gold": {"bread": 1}},
]
DATASET = Dataset(
    "mine",
    tuple(Question(one["id"], one["question"]) for one in QUESTIONS),
    {one["id"]: Gold(one["gold"], tuple(one.get("hops", ()))) for one in QUESTIONS},
)
CHANGING = {"created_at", "latency_ms"}


@pytest.fixture
def filled(runtime: Runtime) -> Runtime:
    Trial.make(runtime, workspace_of(runtime), NAME, None).fill(TEXTS, 0, lambda: None)
    return runtime


def queue(runtime: Runtime, **fields: Any) -> Job:
    request: dict[str, Any] = {
        "name": "mine",
        "collection": NAME,
        "questions": QUESTIONS,
        "mode": "one_shot",
        "profile": "offline",
    }
    return jobs.create_job(
        runtime.db,
        workspace_id=workspace_of(runtime),
        kind="evaluation",
        role="agent",
        request=request | fields,
        priority=10,
    )[0]


def read(runtime: Runtime, job: Job) -> Job:
    return jobs.get_job(runtime.db, job.workspace_id, job.id)


def steps(runtime: Runtime, job: Job) -> list[str]:
    return [step.kind for step in jobs.list_steps(runtime.db, job.id)]


def result(runtime: Runtime, job: Job) -> dict[str, Any]:
    ended = read(runtime, job)
    assert ended.status is JobStatus.SUCCEEDED, ended.error
    return cast(dict[str, Any], ended.result)


def lasting(report: dict[str, Any]) -> dict[str, Any]:
    """A report without what no two runs have in common: times."""
    records = [{name: value for name, value in one.items() if name != "ms"} for one in report["per_question"]]
    cost = {name: value for name, value in report["cost"].items() if not name.endswith("seconds")}
    kept = {name: value for name, value in report.items() if name not in CHANGING}
    return kept | {"per_question": records, "cost": cost}


class Turns(threading.Semaphore):
    """Turns at the cores that are used up and never come back, so that a search waits when they are gone."""

    def release(self, n: int = 1) -> None:
        pass


@contextmanager
def running(runner: QueueRunner[Runtime]) -> Generator[threading.Thread]:
    """The next job, run on a thread that has ended when the block has."""
    thread = threading.Thread(target=runner.run_next, args=("agent",))
    thread.start()
    try:
        yield thread
    finally:
        thread.join(30)
        assert not thread.is_alive()


@contextmanager
def stopped_behind(runtime: Runtime, job: Job, questions: int) -> Generator[QueueRunner[Runtime]]:
    """A runner that has asked exactly so many questions of the job, and waits within the next one."""
    runner = make_runner(runtime)
    free = runtime.computing
    runtime.computing = Turns(1 + 3 * questions)  # the first question once more; each once, and each of its legs
    try:
        with running(runner):
            wait_until(lambda: questions_asked(runtime.db, [job.id]).get(job.id, 0) == questions, 30, "they were asked")
            yield runner
    finally:
        runtime.computing = free


@pytest.mark.parametrize("mode", ["one_shot", "agent", "auto"])
def test_the_report_of_a_job_is_that_of_measuring_the_same_questions(filled: Runtime, mode: str) -> None:
    prepared = prepare(filled, DATASET, Setup(seed=5, collection=NAME), lambda *_: pytest.fail("nothing to fill"))
    direct = measure(prepared, Asking(mode, "offline", 3), quiet).report.model_dump(mode="json")
    job = queue(filled, mode=mode, top_k=3, seed=5)
    assert make_runner(filled).run_next("agent")
    found = result(filled, job)
    assert lasting(found["report"]) == lasting(direct)
    assert (found["comparison"], found["degraded"]) == (None, [])
    assert found["report"]["unknown_gold"] == 1
    assert found["report"]["per_question"][0]["gains"] == {"nordlys": 1, "holm": 3}
    assert [hop["hop"] for hop in found["report"]["hops"]] == [1, 2]
    assert ("lexical" in found["report"]["legs"]) == (mode == "one_shot")
    assert steps(filled, job) == ["start", "asked", "asked", "asked"]


@contextmanager
def quiet(_label: str, _total: int) -> Generator[Callable[[], None]]:
    yield lambda: None


def test_what_is_right_stands_in_the_request_and_in_no_search(filled: Runtime) -> None:
    first = queue(filled)
    other = [one | {"gold": {"bread": 1}} for one in QUESTIONS]
    second = queue(filled, questions=other)
    runner = make_runner(filled)
    assert runner.run_next("agent") and runner.run_next("agent")
    kept = [[data["answer"]["documents"] for data in answers(filled, job)] for job in (first, second)]
    assert kept[0] == kept[1]
    assert "nowhere" not in str(answers(filled, first))


def answers(runtime: Runtime, job: Job) -> list[dict[str, Any]]:
    return [cast(dict[str, Any], step.data) for step in jobs.list_steps(runtime.db, job.id) if step.kind == "asked"]


def test_a_search_that_fails_is_an_answer_and_not_the_end_of_the_job(filled: Runtime) -> None:
    job = queue(filled, mode="agent", profile="generic")  # no chat endpoint is set
    assert make_runner(filled).run_next("agent")
    report = result(filled, job)["report"]
    assert (report["failed"], report["mrr"]) == ({"configuration": 3}, 0.0)


def test_a_cancelled_evaluation_ends_within_its_question(filled: Runtime) -> None:
    job = queue(filled)
    with stopped_behind(filled, job, 1):
        jobs.cancel(filled.db, job.workspace_id, job.id)
    ended = read(filled, job)
    assert (ended.status, ended.result) == (JobStatus.CANCELLED, None)
    assert steps(filled, job) == ["start", "asked"]


def test_a_worker_that_is_told_to_stop_gives_it_back_and_the_next_goes_on_behind_what_was_asked(
    filled: Runtime,
) -> None:
    job = queue(filled)
    with stopped_behind(filled, job, 2) as runner:
        runner.interrupt()
    back = read(filled, job)
    assert (back.status, back.attempt, back.max_attempts) == (JobStatus.QUEUED, 1, 4)
    before = answers(filled, job)
    assert make_runner(filled).run_next("agent")
    report = result(filled, job)["report"]
    assert steps(filled, job) == ["start", "asked", "asked", "restart", "asked"]
    restart = jobs.list_steps(filled.db, job.id, after=3, limit=1)[0]
    assert (restart.attempt, restart.data) == (2, {"attempt": 2, "asked": 2})
    assert answers(filled, job)[:2] == before
    whole = queue(filled)
    assert make_runner(filled).run_next("agent")
    assert lasting(report) == lasting(result(filled, whole)["report"])


def test_a_worker_that_lost_its_job_writes_nothing_more_and_the_next_goes_on(filled: Runtime) -> None:
    job = queue(filled)
    with stopped_behind(filled, job, 1):
        lapse(filled, job)
        taken = jobs.claim_next(filled.db, role="agent", lease_seconds=60, workspace_limit=9)
        assert taken is not None and taken.attempt == 2
    assert steps(filled, job) == ["start", "asked"], "the first worker noticed"
    assert jobs.give_back(filled.db, taken)
    assert make_runner(filled).run_next("agent")
    assert result(filled, job)["report"]["questions"] == 3
    assert steps(filled, job) == ["start", "asked", "restart", "asked", "asked"]


def lapse(runtime: Runtime, job: Job) -> None:
    """The lease of a running job ends now, as if its worker had been silent for long."""
    jobs.beat(runtime.db, read(runtime, job), -1.0)


def test_a_collection_that_is_deleted_meanwhile_ends_it_with_what_is_missing(filled: Runtime) -> None:
    job = queue(filled)
    with stopped_behind(filled, job, 1) as runner:
        runner.interrupt()
    delete_collection(filled.db, job.workspace_id, NAME)
    assert make_runner(filled).run_next("agent")
    gone = read(filled, job)
    assert gone.status is JobStatus.FAILED and gone.error
    assert gone.error["code"] == "not-found" and f"`{NAME}`" in str(gone.error["message"])


def test_another_collection_of_the_same_name_is_not_taken_for_the_first(filled: Runtime) -> None:
    job = queue(filled)
    with stopped_behind(filled, job, 1) as runner:
        runner.interrupt()
    delete_collection(filled.db, job.workspace_id, NAME)
    create_collection(filled.db, job.workspace_id, NAME)
    assert make_runner(filled).run_next("agent")
    gone = read(filled, job)
    assert gone.error and "another one has its name" in str(gone.error["message"])


def test_a_collection_that_changes_meanwhile_is_named_in_the_result(filled: Runtime) -> None:
    job = queue(filled)
    with stopped_behind(filled, job, 1) as runner:
        runner.interrupt()
    Trial.make(filled, workspace_of(filled), NAME, None).fill(TEXTS[1:], 0, lambda: None)
    assert make_runner(filled).run_next("agent")
    found = result(filled, job)
    assert found["degraded"] == ["collection-changed"]
    assert found["report"]["documents"] == 3


def test_two_evaluations_are_compared_question_by_question(filled: Runtime) -> None:
    first = queue(filled, top_k=1)
    second = queue(filled, top_k=10, compare_with=first.id)
    runner = make_runner(filled)
    assert runner.run_next("agent") and runner.run_next("agent")
    compared = result(filled, second)["comparison"]
    assert (compared["questions"], compared["only_before"], compared["only_after"]) == (3, 0, 0)
    recall = {one["name"]: one for one in compared["differences"]}["recall@5"]
    assert recall["after"] - recall["before"] == pytest.approx(recall["difference"])
    assert (recall["wins"], recall["losses"], recall["clear"]) == (1, 0, False)


def test_an_earlier_evaluation_that_was_forgotten_costs_the_comparison_and_not_the_report(filled: Runtime) -> None:
    job = queue(filled, compare_with="0" * 24)
    assert make_runner(filled).run_next("agent")
    found = result(filled, job)
    assert (found["comparison"], found["degraded"]) == (None, ["comparison-unavailable"])
    assert found["report"]["questions"] == 3


def test_ended_evaluations_are_forgotten_like_other_jobs(filled: Runtime) -> None:
    job = queue(filled)
    assert make_runner(filled).run_next("agent")
    assert jobs.delete_old(filled.db, older_than_seconds=-1) == 1
    assert steps(filled, job) == []
