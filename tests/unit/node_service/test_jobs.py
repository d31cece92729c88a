"""Jobs as every face of the node starts, joins, waits for and cancels them, on both engines and without any HTTP."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
import pytest
from support.node.queue import claim, new_workspace

from hopnode.node_service.jobs import EVALUATION_PRIORITY, JobDesk, SearchOrder, Started
from hopnode.worker.errors import Conflict, IdempotencyMismatch, InvalidField, InvalidRequest, NotFound, QueueFull
from hopnode.worker.evaluation.job import EvaluationQuestion, EvaluationRequest
from hopnode.worker.store.collections import create_collection, delete_collection, update_collection
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.jobs import Job, JobStatus
from hopnode.worker.store.sources.sources import create_source

ORDER = SearchOrder(query="Where is the harbour?", collections=["handbook"], metadata={"run": 7})
EVALUATION = EvaluationRequest(
    name="mine",
    collection="handbook",
    questions=[EvaluationQuestion(id="q1", question="Where is the harbour?", gold={"quay.md": 1})],
)


@dataclass
class KickCounter:
    """A dispatcher that wakes nobody and remembers whom it was to wake."""

    kicked: list[str] = field(default_factory=list)

    def kick(self, role: str) -> None:
        self.kicked.append(role)

    def top_up(self, role: str, wanted: int) -> None:
        self.kicked += [role] * wanted

    def start(self) -> None:
        pass

    def stop(self, timeout: float) -> None:
        pass


@dataclass(frozen=True)
class Face:
    """A desk, the workspace that speaks, and who was kicked."""

    desk: JobDesk
    workspace: str
    dispatcher: KickCounter

    def search(self, order: SearchOrder = ORDER, **how: Any) -> Started:
        return self.desk.start_search(self.workspace, order, **how)

    def join(self, order: SearchOrder = ORDER) -> Started:
        return self.desk.join_search(self.workspace, order)

    def evaluation(self, order: EvaluationRequest = EVALUATION, **how: Any) -> Started:
        return self.desk.start_evaluation(self.workspace, order, **how)

    def jobs(self, kind: str = "search") -> list[Job]:
        return jobs.list_jobs(self.desk.db, self.workspace, kind=kind, limit=100)

    def wait(self, job: Job, seconds: float, **how: Any) -> tuple[Job, float]:
        started = time.monotonic()
        seen = anyio.run(partial(self.desk.wait_for_end, self.workspace, job.id, seconds=seconds, **how))
        return seen, time.monotonic() - started


@pytest.fixture
def face(database: Database) -> Face:
    """The desk of a node that writes no answers, and a workspace with the collection `handbook`."""
    workspace = new_workspace(database)
    create_collection(database, workspace, "handbook")
    dispatcher = KickCounter()
    desk = JobDesk(
        database,
        dispatcher,
        index_versions=lambda _, found: [1] * len(found),
        writes_answers=False,
        most_waiting=None,
        stopping=threading.Event(),
        longest_wait_seconds=20,
    )
    return Face(desk, workspace, dispatcher)


def test_a_search_is_queued_as_it_was_ordered_and_an_agent_worker_is_kicked(face: Face) -> None:
    started = face.search()
    assert started.is_new
    assert (started.job.kind, started.job.role, started.job.priority) == ("search", "agent", 0)
    assert SearchOrder.model_validate(started.job.request) == ORDER
    assert face.desk.get(face.workspace, started.job.id, "search") == started.job
    assert face.dispatcher.kicked == ["agent"]


def test_an_order_that_cannot_work_queues_nothing_and_kicks_nobody(face: Face) -> None:
    refused: list[tuple[dict[str, Any], type[Exception]]] = [
        ({"collections": ["handbook", "nowhere"]}, NotFound),
        ({"filter": {"team": {"like": "a"}}}, InvalidRequest),
        ({"answer": True}, InvalidField),
    ]
    for change, error in refused:
        for start in (face.search, face.join):
            with pytest.raises(error):
                start(ORDER.model_copy(update=change))
    assert face.jobs() == []
    assert face.dispatcher.kicked == []


def test_a_node_with_a_model_for_answers_takes_an_order_for_one(face: Face) -> None:
    order = ORDER.model_copy(update={"answer": True})
    with pytest.raises(InvalidField) as refused:
        face.search(order)
    assert (refused.value.field, refused.value.reason) == ("answer", "no_answer_endpoint")
    assert "HOPNODE_ANSWER_MODEL" in str(refused.value)
    able = replace(face, desk=replace(face.desk, writes_answers=True))
    assert able.search(order).job.request["answer"] is True


def test_the_same_key_and_order_give_the_same_search_even_when_it_has_ended(face: Face) -> None:
    first = face.search(idempotency_key="order-1")
    face.desk.cancel(face.workspace, first.job.id, "search")
    again = face.search(idempotency_key="order-1")
    assert (again.job.id, again.is_new) == (first.job.id, False)
    assert face.dispatcher.kicked == ["agent"]
    with pytest.raises(IdempotencyMismatch):
        face.search(ORDER.model_copy(update={"top_k": 3}), idempotency_key="order-1")
    assert face.search().is_new
    assert len(face.jobs()) == 2


def test_the_order_of_the_fields_of_an_order_means_nothing_to_a_key(face: Face) -> None:
    first = face.search(ORDER.model_copy(update={"filter": {"a": 1, "b": 2}}), idempotency_key="k")
    again = face.search(ORDER.model_copy(update={"filter": {"b": 2, "a": 1}}), idempotency_key="k")
    assert again.job.id == first.job.id


def test_an_identical_search_is_joined_while_it_waits_and_while_it_runs(face: Face) -> None:
    first = face.join()
    assert first.is_new
    assert face.join() == Started(first.job, is_new=False)
    running = claim(face.desk.db)
    assert running is not None
    joined = face.join()
    assert (joined.job.id, joined.job.status, joined.is_new) == (first.job.id, JobStatus.RUNNING, False)
    assert face.dispatcher.kicked == ["agent"]
    jobs.finish(face.desk.db, running, JobStatus.SUCCEEDED, result={})
    after = face.join()
    assert after.is_new
    assert after.job.id != first.job.id


@pytest.mark.parametrize(
    "change", [{"query": "Where is the quay?"}, {"top_k": 3}, {"metadata": {}}, {"effort": "high"}]
)
def test_a_search_that_differs_in_anything_is_not_joined(face: Face, change: dict[str, Any]) -> None:
    first = face.join()
    other = face.join(ORDER.model_copy(update=change))
    assert other.is_new
    assert other.job.id != first.job.id


def test_the_search_of_another_workspace_is_not_joined(face: Face) -> None:
    face.join()
    neighbour = replace(face, workspace=new_workspace(face.desk.db))
    create_collection(face.desk.db, neighbour.workspace, "handbook")
    assert neighbour.join().is_new


def test_callers_who_join_at_once_get_one_search(face: Face) -> None:
    with ThreadPoolExecutor(6) as pool:
        joined = list(pool.map(lambda _: face.join(), range(6)))
    assert len({one.job.id for one in joined}) == 1
    assert sum(one.is_new for one in joined) == 1
    assert face.dispatcher.kicked == ["agent"]


def test_a_search_leads_to_the_one_under_way_that_asks_the_very_same(face: Face) -> None:
    first = face.search()
    assert (first.is_new, face.search()) == (True, Started(first.job, is_new=False))
    assert face.search(ORDER.model_copy(update={"query": "Where is the quay?"})).job.id != first.job.id
    running = claim(face.desk.db)
    assert running is not None
    assert face.search().job.status is JobStatus.RUNNING
    jobs.finish(face.desk.db, running, JobStatus.SUCCEEDED, result={})
    assert face.search().is_new, "one that has ended is not joined"


def test_a_search_joins_nothing_when_its_caller_says_so_or_has_a_key_of_its_own(face: Face) -> None:
    first = face.search()
    assert face.search(idempotency_key="mine").is_new
    alone = face.search(join=False)
    assert alone.is_new
    assert face.search().job.id == first.job.id, "and what joins nothing is not joined"


def test_a_search_of_documents_that_changed_since_is_another_search(face: Face) -> None:
    first = face.search()
    changed = replace(face, desk=replace(face.desk, index_versions=lambda _, found: [2] * len(found)))
    second = changed.search()
    assert second.is_new
    assert second.job.id != first.job.id
    update_collection(face.desk.db, face.workspace, "handbook", dense_weight=0.5)
    assert changed.search().is_new, "so is one whose collection ranks in another way"
    delete_collection(face.desk.db, face.workspace, "handbook")
    create_collection(face.desk.db, face.workspace, "handbook")
    assert changed.search().is_new, "and one of a new collection under the old name"


def test_the_same_search_of_two_workspaces_is_two_searches(face: Face) -> None:
    neighbour = replace(face, workspace=new_workspace(face.desk.db))
    create_collection(face.desk.db, neighbour.workspace, "handbook")
    assert face.search().job.id != neighbour.search().job.id


def test_many_who_ask_the_same_at_once_share_one_search(face: Face) -> None:
    with ThreadPoolExecutor(16) as pool:
        started = list(pool.map(lambda _: face.search(), range(64)))
    assert len({one.job.id for one in started}) == 1
    assert sum(one.is_new for one in started) == 1
    assert len(face.jobs()) == 1
    assert face.dispatcher.kicked == ["agent"]


def test_a_workspace_with_many_jobs_that_wait_gets_no_more_until_some_have_ended(face: Face) -> None:
    narrow = replace(face, desk=replace(face.desk, most_waiting=2))
    first = narrow.search()
    narrow.evaluation()
    for one_more in (
        lambda: narrow.search(join=False),
        lambda: narrow.search(ORDER.model_copy(update={"top_k": 3})),
        narrow.evaluation,
    ):
        with pytest.raises(QueueFull, match="2 jobs of this workspace wait already"):
            one_more()
    assert narrow.search().job.id == first.job.id, "joining takes no place"
    neighbour = replace(narrow, workspace=new_workspace(face.desk.db))
    create_collection(face.desk.db, neighbour.workspace, "handbook")
    assert neighbour.search().is_new
    assert claim(face.desk.db) is not None
    assert narrow.search(join=False).is_new, "one that runs does not wait"


def test_a_repeated_request_finds_its_search_also_when_the_queue_is_full(face: Face) -> None:
    narrow = replace(face, desk=replace(face.desk, most_waiting=1))
    first = narrow.search(idempotency_key="k")
    assert narrow.search(idempotency_key="k").job.id == first.job.id
    with pytest.raises(QueueFull):
        narrow.search(idempotency_key="other")
    assert len(narrow.jobs()) == 1


def test_an_evaluation_waits_behind_searches(face: Face) -> None:
    evaluation, search = face.evaluation(), face.search()
    assert evaluation.job.priority == EVALUATION_PRIORITY > search.job.priority
    assert EvaluationRequest.model_validate(evaluation.job.request) == EVALUATION
    claimed = claim(face.desk.db)
    assert claimed is not None
    assert claimed.id == search.job.id


def test_an_evaluation_is_compared_with_one_that_has_a_report_of_the_same_questions(face: Face) -> None:
    earlier = face.evaluation().job
    compared = EVALUATION.model_copy(update={"compare_with": earlier.id})
    with pytest.raises(Conflict, match="queued"):
        face.evaluation(compared)
    with pytest.raises(NotFound):
        face.evaluation(EVALUATION.model_copy(update={"compare_with": face.search().job.id}))
    while running := claim(face.desk.db):
        jobs.finish(face.desk.db, running, JobStatus.SUCCEEDED, result={})
    assert face.evaluation(compared).is_new
    others = [EvaluationQuestion(id="q1", question="Who may delete?", gold={"http-api.md": 1})]
    with pytest.raises(InvalidField) as refused:
        face.evaluation(compared.model_copy(update={"questions": others}))
    assert (refused.value.field, refused.value.reason) == ("compare_with", "other_questions")


def test_an_evaluation_of_a_collection_that_is_not_there_is_refused(face: Face) -> None:
    with pytest.raises(NotFound):
        face.evaluation(EVALUATION.model_copy(update={"collection": "nowhere"}))
    assert face.jobs("evaluation") == []


def test_one_sync_of_a_source_runs_at_a_time_and_its_worker_is_kicked(face: Face) -> None:
    db = face.desk.db
    collection = create_collection(db, face.workspace, "site")
    source = create_source(db, face.workspace, collection.id, kind="website", name="Docs", config={"start_url": "x"})
    sync = face.desk.start_sync(face.workspace, source.id, confirm_deletes=True)
    job = face.desk.get(face.workspace, sync.job_id, "sync")
    assert job.request["confirm_deletes"] is True
    assert face.dispatcher.kicked == ["sync"]
    with pytest.raises(Conflict) as refused:
        face.desk.start_sync(face.workspace, source.id)
    assert refused.value.details == {"sync_id": sync.id}
    with pytest.raises(NotFound):
        face.desk.start_sync(new_workspace(db), source.id)
    assert face.desk.cancel(face.workspace, job.id, "sync").status is JobStatus.CANCELLED
    assert face.desk.start_sync(face.workspace, source.id).id != sync.id
    assert face.dispatcher.kicked == ["sync", "sync"]


def test_a_job_of_another_kind_or_workspace_is_neither_found_nor_cancelled(face: Face) -> None:
    job = face.search().job
    for workspace, kind in (
        (face.workspace, "evaluation"),
        (face.workspace, "sync"),
        (new_workspace(face.desk.db), "search"),
    ):
        with pytest.raises(NotFound):
            face.desk.get(workspace, job.id, kind)  # type: ignore[arg-type]
        with pytest.raises(NotFound):
            face.desk.cancel(workspace, job.id, kind)  # type: ignore[arg-type]
    assert face.desk.get(face.workspace, job.id, "search").status is JobStatus.QUEUED


def test_a_job_is_cancelled_once(face: Face) -> None:
    job = face.search().job
    assert face.desk.cancel(face.workspace, job.id, "search").status is JobStatus.CANCELLED
    with pytest.raises(Conflict, match="cancelled"):
        face.desk.cancel(face.workspace, job.id, "search")


def test_a_wait_ends_with_the_job(face: Face) -> None:
    job = face.search().job
    threading.Timer(0.2, lambda: face.desk.cancel(face.workspace, job.id, "search")).start()
    seen, seconds = face.wait(job, 15)
    assert seen.status is JobStatus.CANCELLED
    assert seconds < 5


def test_a_wait_in_vain_ends_after_its_seconds_or_those_of_the_node(face: Face) -> None:
    job = face.search().job
    seen, seconds = face.wait(job, 0.2)
    assert seen.status is JobStatus.QUEUED
    assert 0.2 <= seconds < 5
    hasty = replace(face, desk=replace(face.desk, longest_wait_seconds=0.2))
    assert hasty.wait(job, 3600)[1] < 5


def test_a_wait_ends_when_the_node_stops_or_the_caller_is_gone(face: Face) -> None:
    job = face.search().job

    async def gone() -> bool:
        return True

    assert face.wait(job, 15, gone=gone)[1] < 5
    threading.Timer(0.1, face.desk.stopping.set).start()
    assert face.wait(job, 15)[1] < 5


def test_a_wait_for_a_job_of_another_workspace_is_refused(face: Face) -> None:
    other = replace(face, workspace=new_workspace(face.desk.db))
    with pytest.raises(NotFound):
        other.wait(face.search().job, 5)


def test_many_wait_at_once_and_leave_the_threads_to_others(face: Face) -> None:
    """More waits than the pool has threads (40): if each held one, the call that ends them would have none to run in."""
    job = face.search().job

    async def wait_and_cancel() -> list[Job]:
        seen: list[Job] = []

        async def one() -> None:
            seen.append(await face.desk.wait_for_end(face.workspace, job.id, seconds=20))

        async with anyio.create_task_group() as waits:
            for _ in range(80):
                waits.start_soon(one)
            await anyio.sleep(0.3)
            await anyio.to_thread.run_sync(face.desk.cancel, face.workspace, job.id, "search")
        return seen

    started = time.monotonic()
    assert [one.status for one in anyio.run(wait_and_cancel)] == [JobStatus.CANCELLED] * 80
    assert time.monotonic() - started < 15
