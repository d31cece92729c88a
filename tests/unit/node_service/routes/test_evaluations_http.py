"""Evaluations over HTTP: accepted or refused with what is wrong, listed, looked at, cancelled; the test plays the worker."""

from typing import Any

import httpx
import pytest
from support.data.reports import make_report
from support.node.http_node import HttpNode, Tenant

from hopnode.node_service.schemas.evaluations import GOLD_MOST, QUESTIONS_MOST
from hopnode.node_service.schemas.jobs import QUERY_CHARACTERS
from hopnode.worker.evaluation.comparison import compare, comparison_data
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.jobs import JobStatus

QUESTIONS: list[dict[str, Any]] = [
    {"question": "Where is the harbour?", "gold": ["quay.md"]},
    {"id": "own", "question": " Who built the tower? ", "gold": {"tower.md": 2, "company.md": 1}, "hops": ["tower.md"]},
]
BODY: dict[str, Any] = {"collection": "handbook", "questions": QUESTIONS}
BEFORE = make_report({"q1": {"quay.md": 2}, "own": {"tower.md": 1, "company.md": None}})
REPORT = make_report({"q1": {"quay.md": 1}, "own": {"tower.md": 1, "company.md": None}})


@pytest.fixture
def asker(tenant: Tenant) -> Tenant:
    tenant.collection()
    return tenant


def start(tenant: Tenant, **fields: Any) -> dict[str, Any]:
    made = tenant.http.post("/v1/evaluations", json=BODY | fields)
    assert made.status_code == 202, made.text
    return made.json()


def finish(node: HttpNode, evaluation: dict[str, Any], **result: Any) -> None:
    job = node.claim(evaluation["id"])
    for one in REPORT.per_question:
        jobs.add_step(node.db, job, "asked", {"answer": {"question": one.id}, "legs": {}})
    found = {"report": REPORT.model_dump(mode="json"), "comparison": None, "degraded": []} | result
    assert jobs.finish(node.db, job, JobStatus.SUCCEEDED, result=found)


def refused(answer: httpx.Response, status: int = 422) -> dict[str, str]:
    """What is wrong, by field."""
    assert answer.status_code == status, answer.text
    return {one["field"]: one["code"] for one in answer.json().get("errors", [])}


def test_an_evaluation_is_accepted_with_where_to_ask_and_how_far_it_is(asker: Tenant) -> None:
    answer = asker.http.post("/v1/evaluations", json=BODY)
    assert answer.status_code == 202
    assert int(answer.headers["retry-after"]) >= 1
    made = answer.json()
    assert answer.headers["location"] == made["url"] == f"/v1/evaluations/{made['id']}"
    assert (made["status"], made["report"], made["comparison"], made["error"]) == ("queued", None, None, None)
    assert (made["name"], made["mode"], made["profile"], made["top_k"], made["seed"]) == (
        *("handbook", "auto", "auto"),
        *(20, 0),
    )
    assert made["progress"] == {"asked": 0, "questions": 2}
    assert asker.http.get(made["url"]).json() == made


def test_the_worker_is_told_the_questions_with_an_id_and_gains_for_each(node: HttpNode, asker: Tenant) -> None:
    made = start(asker, name="mine", mode="agent", profile="offline", top_k=5, seed=3)
    job = node.claim(made["id"])
    assert (job.kind, job.role) == ("evaluation", "agent")
    assert job.request["questions"] == [
        {"id": "q1", "question": "Where is the harbour?", "gold": {"quay.md": 1}, "hops": []},
        {
            "id": "own",
            "question": "Who built the tower?",
            "gold": {"tower.md": 2, "company.md": 1},
            "hops": ["tower.md"],
        },
    ]
    kept = {name: job.request[name] for name in ("name", "collection", "mode", "profile", "top_k", "seed")}
    assert kept == {
        "name": "mine",
        "collection": "handbook",
        "mode": "agent",
        "profile": "offline",
        "top_k": 5,
        "seed": 3,
    }


def test_searches_go_before_evaluations(node: HttpNode, asker: Tenant) -> None:
    start(asker)
    search = asker.search()
    claimed = jobs.claim_next(node.db, role="agent", lease_seconds=600, workspace_limit=1000)
    while claimed is not None and claimed.workspace_id != asker.workspace.id:  # those of other tests
        jobs.finish(node.db, claimed, JobStatus.FAILED, error={"code": "internal-error", "message": "Not wanted."})
        claimed = jobs.claim_next(node.db, role="agent", lease_seconds=600, workspace_limit=1000)
    assert claimed is not None and claimed.id == search["id"]


def test_progress_shows_while_it_runs(node: HttpNode, asker: Tenant) -> None:
    made = start(asker)
    job = node.claim(made["id"])
    jobs.add_step(node.db, job, "start", {})
    jobs.add_step(node.db, job, "asked", {})
    now = asker.http.get(made["url"]).json()
    assert (now["status"], now["attempt"], now["progress"]) == ("running", 1, {"asked": 1, "questions": 2})
    (listed,) = asker.http.get("/v1/evaluations").json()["items"]
    assert listed["progress"] == now["progress"]
    jobs.finish(node.db, job, JobStatus.FAILED, error={"code": "not-found", "message": "Gone."})
    failed = asker.http.get(made["url"], params={"wait": 1}).json()
    assert (failed["status"], failed["error"]["code"], failed["report"]) == ("failed", "not-found", None)


def test_the_report_is_the_json_of_the_command_line(node: HttpNode, asker: Tenant) -> None:
    made = start(asker)
    compared = comparison_data(compare(BEFORE, REPORT))
    finish(node, made, comparison=compared, degraded=["collection-changed"])
    done = asker.http.get(made["url"]).json()
    assert done["status"] == "succeeded"
    assert done["report"] == REPORT.model_dump(mode="json")
    assert done["comparison"] == compared
    assert done["degraded"] == ["collection-changed"]
    assert done["progress"] == {"asked": 2, "questions": 2}


def test_lists_are_newest_first_in_pages_and_without_reports(node: HttpNode, asker: Tenant) -> None:
    asker.search()
    made = [start(asker, name=f"set {number}") for number in range(3)]
    finish(node, made[0])
    first = asker.http.get("/v1/evaluations", params={"limit": 2}).json()
    second = asker.http.get("/v1/evaluations", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert [one["name"] for one in (*first["items"], *second["items"])] == ["set 2", "set 1", "set 0"]
    assert second["next_cursor"] is None
    assert "report" not in second["items"][0]
    assert len(asker.http.get("/v1/searches").json()["items"]) == 1


def test_a_cancelled_evaluation_says_so_and_cannot_be_cancelled_again(asker: Tenant) -> None:
    made = start(asker)
    ended = asker.http.post(f"{made['url']}/cancel").json()
    assert (ended["status"], ended["error"]["code"], ended["report"]) == ("cancelled", "cancelled", None)
    assert refused(asker.http.post(f"{made['url']}/cancel"), 409) == {}


def test_a_search_is_no_evaluation_and_an_evaluation_no_search(asker: Tenant) -> None:
    search, made = asker.search(), start(asker)
    assert asker.http.get(f"/v1/evaluations/{search['id']}").status_code == 404
    assert asker.http.get(f"/v1/searches/{made['id']}").status_code == 404
    assert asker.http.post(f"/v1/searches/{made['id']}/cancel").status_code == 404
    assert asker.http.get(f"/v1/searches/{made['id']}/trajectory").status_code == 404


def test_creating_and_reading_need_the_scopes_of_searches(node: HttpNode, asker: Tenant) -> None:
    made = start(asker)
    reader, writer = node.with_scopes(asker, "search:read"), node.with_scopes(asker, "search:write")
    assert reader.get(made["url"]).status_code == 200
    assert reader.get("/v1/evaluations").status_code == 200
    assert reader.post("/v1/evaluations", json=BODY).status_code == 403
    assert reader.post(f"{made['url']}/cancel").status_code == 403
    assert writer.post("/v1/evaluations", json=BODY).status_code == 202
    assert writer.get(made["url"]).status_code == 403


def test_the_same_idempotency_key_gives_the_same_evaluation(asker: Tenant) -> None:
    headers = {"Idempotency-Key": "once"}
    first = asker.http.post("/v1/evaluations", json=BODY, headers=headers).json()
    spelt_out = BODY | {"name": "handbook", "questions": [QUESTIONS[0] | {"id": "q1"}, QUESTIONS[1]]}
    assert asker.http.post("/v1/evaluations", json=spelt_out, headers=headers).json()["id"] == first["id"]
    other = asker.http.post("/v1/evaluations", json=BODY | {"seed": 1}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency-mismatch")


ONE = QUESTIONS[0]
WRONG: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "no questions": ({"questions": []}, {"questions": "too_short"}),
    "too many questions": ({"questions": [ONE] * (QUESTIONS_MOST + 1)}, {"questions": "too_long"}),
    "the same id twice": (
        {"questions": [ONE | {"id": "a"}, ONE, ONE | {"id": "a"}]},
        {"questions": "repeated_id"},
    ),
    "an id that another question has by its number": (
        {"questions": [ONE | {"id": "q2"}, ONE]},
        {"questions": "repeated_id"},
    ),
    "no gold": ({"questions": [ONE | {"gold": []}]}, {"questions.0.gold.keys": "too_short"}),
    "no gains": ({"questions": [ONE, ONE | {"gold": {}}]}, {"questions.1.gold.gains": "too_short"}),
    "gold that is no list": ({"questions": [ONE | {"gold": "a.md"}]}, {"questions.0.gold.keys": "list_type"}),
    "an empty key": ({"questions": [ONE | {"gold": [""]}]}, {"questions.0.gold.keys.0": "string_too_short"}),
    "too much gold": (
        {"questions": [ONE | {"gold": [f"{n}.md" for n in range(GOLD_MOST + 1)]}]},
        {"questions.0.gold.keys": "too_long"},
    ),
    "a gain of nothing": (
        {"questions": [ONE | {"gold": {"a.md": 0}}]},
        {"questions.0.gold.gains.a.md": "greater_than_equal"},
    ),
    "an empty question": ({"questions": [ONE | {"question": " "}]}, {"questions.0.question": "string_too_short"}),
    "a long question": (
        {"questions": [ONE | {"question": "x" * (QUERY_CHARACTERS + 1)}]},
        {"questions.0.question": "string_too_long"},
    ),
    "an unknown field": ({"questions": [ONE | {"answer": "?"}]}, {"questions.0.answer": "extra_forbidden"}),
    "too many passages": ({"top_k": 101}, {"top_k": "less_than_equal"}),
    "no seed": ({"seed": -1}, {"seed": "greater_than_equal"}),
    "an unknown mode": ({"mode": "best"}, {"mode": "literal_error"}),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_named_by_its_field(asker: Tenant, case: str) -> None:
    fields, wrong = WRONG[case]
    assert refused(asker.http.post("/v1/evaluations", json=BODY | fields)) == wrong
    assert asker.http.get("/v1/evaluations").json()["items"] == []


def test_repeated_ids_are_told_by_the_places_of_the_questions(asker: Tenant) -> None:
    answer = asker.http.post("/v1/evaluations", json=BODY | {"questions": [ONE, ONE | {"id": "q1"}]})
    assert "Questions 1 and 2 have the same id" in answer.json()["detail"]


def test_a_collection_that_does_not_exist_is_a_404(asker: Tenant) -> None:
    answer = asker.http.post("/v1/evaluations", json=BODY | {"collection": "nowhere"})
    assert (answer.status_code, answer.json()["code"]) == (404, "not-found")


def test_only_an_evaluation_with_a_report_can_be_compared_with(node: HttpNode, asker: Tenant) -> None:
    unknown = asker.http.post("/v1/evaluations", json=BODY | {"compare_with": "0" * 24})
    assert unknown.status_code == 404
    search = asker.search()
    assert asker.http.post("/v1/evaluations", json=BODY | {"compare_with": search["id"]}).status_code == 404
    earlier = start(asker)
    early = asker.http.post("/v1/evaluations", json=BODY | {"compare_with": earlier["id"]})
    assert (early.status_code, early.json()["code"]) == (409, "conflict")
    assert "it is queued" in early.json()["detail"]
    finish(node, earlier)
    assert start(asker, compare_with=earlier["id"], mode="agent")["compare_with"] == earlier["id"]


OTHERS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "no question of both": ([ONE | {"id": "x"}], "have no question in common"),
    "another text": ([ONE, QUESTIONS[1] | {"question": "Who?"}], "Question 2 is another one"),
    "other gold": ([ONE, QUESTIONS[1] | {"gold": ["tower.md", "company.md"]}], "Question 2 has other gold"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_an_evaluation_of_other_questions_is_refused_with_what_is_wrong(
    node: HttpNode, asker: Tenant, case: str
) -> None:
    earlier = start(asker)
    finish(node, earlier)
    questions, why = OTHERS[case]
    answer = asker.http.post("/v1/evaluations", json=BODY | {"questions": questions, "compare_with": earlier["id"]})
    assert refused(answer) == {"compare_with": "other_questions"}
    assert why in answer.json()["detail"]


def test_evaluations_are_counted_by_their_own_kind(node: HttpNode, asker: Tenant) -> None:
    start(asker)
    assert 'hopnode_jobs{kind="evaluation",status="queued"}' in asker.http.get("/metrics").text
