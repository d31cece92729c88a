"""Searches over HTTP: accepted, waited for, repeated, listed, cancelled; the test plays the worker."""

import threading
import time
from typing import Any

import httpx
import pytest
from support.node.http_node import HttpNode, Tenant, passage, result
from support.node.queue import wait_until

from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.jobs import JobStatus

QUESTION = {"query": "Where is the harbour?", "collection": "handbook"}


@pytest.fixture
def asker(tenant: Tenant) -> Tenant:
    tenant.collection()
    return tenant


def finish(node: HttpNode, search_id: str, **found: Any) -> None:
    job = node.claim(search_id)
    assert jobs.finish(node.db, job, JobStatus.SUCCEEDED, result=result(passage(**found)))


def later(seconds: float, action, *arguments) -> threading.Timer:
    timer = threading.Timer(seconds, action, arguments)
    timer.start()
    return timer


def test_a_search_is_accepted_with_where_to_ask_and_when(asker: Tenant) -> None:
    answer = asker.http.post("/v1/searches", json=QUESTION)
    assert answer.status_code == 202
    assert int(answer.headers["retry-after"]) >= 1
    search = answer.json()
    assert answer.headers["location"] == search["url"] == f"/v1/searches/{search['id']}"
    assert (search["status"], search["result"], search["error"]) == ("queued", None, None)
    assert (search["mode"], search["effort"], search["profile"], search["top_k"]) == ("auto", "low", "auto", 10)
    assert asker.http.get(search["url"]).json() | {"cancel_url": search["cancel_url"]} == search


def test_what_was_asked_reaches_the_worker(node: HttpNode, asker: Tenant) -> None:
    asked = QUESTION | {"mode": "agent", "top_k": 3, "filter": {"team": "blue"}, "max_turns": 4, "metadata": {"run": 7}}
    search = asker.http.post("/v1/searches", json=asked).json()
    request = node.claim(search["id"]).request
    assert request["collections"] == ["handbook"]
    assert {name: request[name] for name in asked if name != "collection"} == {
        name: value for name, value in asked.items() if name != "collection"
    }


def test_a_finished_search_holds_its_passages(node: HttpNode, asker: Tenant) -> None:
    search = asker.search()
    finish(node, search["id"])
    done = asker.http.get(search["url"]).json()
    assert done["status"] == "succeeded"
    assert done["result"]["passages"][0] == passage()
    assert done["result"]["stop_reason"] == "finished"
    assert done["ended_at"] >= done["started_at"] >= done["created_at"]


def test_a_failed_search_says_why(node: HttpNode, asker: Tenant) -> None:
    search = asker.search()
    job = node.claim(search["id"])
    jobs.finish(node.db, job, JobStatus.FAILED, error={"code": "model-unavailable", "message": "No answer."})
    failed = asker.http.get(search["url"]).json()
    assert failed["status"] == "failed"
    assert failed["error"] == {"code": "model-unavailable", "message": "No answer."}


def test_a_get_waits_until_the_search_ends(node: HttpNode, asker: Tenant) -> None:
    search = asker.search()
    timer = later(0.3, finish, node, search["id"])
    started = time.monotonic()
    done = asker.http.get(search["url"], params={"wait": 5}).json()
    assert done["status"] == "succeeded"
    assert time.monotonic() - started < 4
    timer.join()


def test_a_get_that_waits_in_vain_answers_with_the_state_of_that_moment(asker: Tenant) -> None:
    search = asker.search()
    started = time.monotonic()
    answer = asker.http.get(search["url"], params={"wait": 0.2})
    assert answer.json()["status"] == "queued"
    assert "retry-after" in answer.headers
    assert 0.2 <= time.monotonic() - started < 3


def test_a_post_that_prefers_to_wait_is_a_201_when_it_ends_in_time(node: HttpNode, asker: Tenant) -> None:
    headers = {"Prefer": "wait=5", "Idempotency-Key": "k"}
    search = asker.http.post("/v1/searches", json=QUESTION, headers={"Idempotency-Key": "k"}).json()
    timer = later(0.2, finish, node, search["id"])
    answer = asker.http.post("/v1/searches", json=QUESTION, headers=headers)
    assert answer.status_code == 201
    assert answer.headers["preference-applied"] == "wait=5"
    assert answer.headers["location"] == search["url"]
    assert answer.json()["result"]["passages"]
    timer.join()


def test_a_post_that_waits_in_vain_is_a_202(asker: Tenant) -> None:
    answer = asker.http.post("/v1/searches", json=QUESTION, headers={"Prefer": "wait=0.1"})
    assert answer.status_code == 202
    assert answer.headers["preference-applied"] == "wait=0.1"


def test_a_wait_is_cut_to_what_the_node_allows(node: HttpNode, asker: Tenant) -> None:
    headers = {"Idempotency-Key": "cut"}
    search = asker.http.post("/v1/searches", json=QUESTION, headers=headers).json()
    finish(node, search["id"])
    assert asker.http.get(search["url"], params={"wait": 1e9}).json()["status"] == "succeeded"
    again = asker.http.post("/v1/searches", json=QUESTION, headers=headers | {"Prefer": "wait=600"})
    assert again.headers["preference-applied"] == "wait=5"


@pytest.mark.slow
def test_a_hundred_waits_leave_the_node_quick(node: HttpNode, asker: Tenant) -> None:
    search = asker.search()
    answers: list[int] = []

    def wait() -> None:
        with httpx.Client(base_url=node.url, headers=asker.http.headers, timeout=30) as client:
            answers.append(client.get(search["url"], params={"wait": 5}).status_code)

    waiting = [threading.Thread(target=wait) for _ in range(100)]
    for thread in waiting:
        thread.start()
    slowest = 0.0
    while any(thread.is_alive() for thread in waiting):
        started = time.monotonic()
        assert asker.http.get("/v1/collections").status_code == 200
        slowest = max(slowest, time.monotonic() - started)
    assert answers == [200] * 100
    print(f"\nslowest answer beside 100 waits: {slowest:.2f} s")
    assert slowest < 2


def test_an_unchanged_search_is_a_304(node: HttpNode, asker: Tenant) -> None:
    search = asker.search()
    tag = asker.http.get(search["url"]).headers["etag"]
    for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        answer = asker.http.get(search["url"], headers={"If-None-Match": known})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
    assert asker.http.get(search["url"], headers={"If-None-Match": '"other"'}).status_code == 200
    finish(node, search["id"])
    changed = asker.http.get(search["url"], headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag


def test_the_same_idempotency_key_and_meaning_give_the_same_search(asker: Tenant) -> None:
    headers = {"Idempotency-Key": "run-1", "Content-Type": "application/json"}
    first = asker.http.post("/v1/searches", json=QUESTION, headers=headers)
    spaced = b'{ "collections": ["handbook"],   "query": "Where is the harbour?" }'
    again = asker.http.post("/v1/searches", content=spaced, headers=headers)
    assert first.status_code == again.status_code == 202
    assert first.json()["id"] == again.json()["id"]
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    other = asker.http.post("/v1/searches", json=QUESTION | {"top_k": 3}, headers=headers)
    assert other.status_code == 422
    assert other.json()["code"] == "idempotency-mismatch"
    assert len(asker.http.get("/v1/searches").json()["items"]) == 1


def test_searches_are_listed_newest_first_page_by_page_without_results(node: HttpNode, asker: Tenant) -> None:
    made = [asker.search(f"Question {number}")["id"] for number in range(5)]
    finish(node, made[-1])
    seen, cursor = list[str](), None
    for size in (2, 2, 1):
        page = asker.http.get("/v1/searches", params={"limit": 2} | ({"cursor": cursor} if cursor else {})).json()
        assert len(page["items"]) == size
        assert all("result" not in item for item in page["items"])
        seen += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
    assert seen == made[::-1]
    assert cursor is None


def test_a_cursor_that_no_list_gave_out_is_refused(asker: Tenant) -> None:
    for cursor in ("zzz", "a b", "ünï"):
        answer = asker.http.get("/v1/searches", params={"cursor": cursor})
        assert answer.status_code == 422
        assert answer.json()["code"] == "invalid-request"
        assert [(error["in"], error["field"]) for error in answer.json()["errors"]] == [("query", "cursor")]


def test_a_search_is_cancelled_once(node: HttpNode, asker: Tenant) -> None:
    search = asker.search()
    job = node.claim(search["id"])
    cancelled = asker.http.post(f"{search['url']}/cancel")
    assert cancelled.status_code == 200
    assert cancelled.json()["status"] == "cancelled"
    assert cancelled.json()["error"]["code"] == "cancelled"
    assert not jobs.finish(node.db, job, JobStatus.SUCCEEDED, result=result())
    again = asker.http.post(f"{search['url']}/cancel")
    assert again.status_code == 409
    assert again.json()["code"] == "conflict"


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"collection": None}, ""),
        ({"collections": ["handbook"]}, ""),
        ({"collection": None, "collections": ["handbook", "handbook"]}, "collections"),
        ({"collection": None, "collections": []}, "collections"),
        ({"query": "   "}, "query"),
        ({"effort": "extreme"}, "effort"),
        ({"mode": "deep"}, "mode"),
        ({"profile": "context-2"}, "profile"),
        ({"top_k": 0}, "top_k"),
        ({"deadline_seconds": 0}, "deadline_seconds"),
        ({"answer": True}, "answer"),
        ({"callback": {}}, "callback.url"),
    ],
)
def test_what_cannot_work_is_refused_by_field(asker: Tenant, changes: dict[str, Any], field: str) -> None:
    body = {name: value for name, value in (QUESTION | changes).items() if value is not None}
    answer = asker.http.post("/v1/searches", json=body)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]


def test_a_node_where_nothing_writes_answers_says_what_to_set(asker: Tenant) -> None:
    answer = asker.http.post("/v1/searches", json=QUESTION | {"answer": True})
    (error,) = answer.json()["errors"]
    assert (answer.status_code, error["code"]) == (422, "no_answer_endpoint")
    assert "HOPNODE_ANSWER_MODEL" in answer.json()["detail"]
    assert asker.http.post("/v1/searches", json=QUESTION | {"answer": False}).json()["answer"] is False


def test_a_filter_with_an_unknown_operator_is_refused_at_once(asker: Tenant) -> None:
    answer = asker.http.post("/v1/searches", json=QUESTION | {"filter": {"team": {"like": "b%"}}})
    assert answer.json()["code"] == "invalid-request"
    assert "like" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("filter", "place"),
    [
        ({"team": {"like": "b%"}}, "filter.team"),
        ({"or": [{"team": "blue"}, {"year": {"gte": None}}]}, "filter.or.1.year"),
        ({"not": {"and": "team"}}, "filter.not.and"),
        ({"or": []}, "filter.or"),
    ],
)
def test_a_filter_that_cannot_work_is_told_by_its_place(asker: Tenant, filter: dict[str, Any], place: str) -> None:
    answer = asker.http.post("/v1/searches", json=QUESTION | {"filter": filter})
    assert answer.status_code == 422
    told = [(error["in"], error["field"], error["code"]) for error in answer.json()["errors"]]
    assert told == [("body", place, "bad_filter")]


@pytest.mark.parametrize(
    "wrong", [{"top_k": "5"}, {"top_k": True}, {"min_score": False}, {"answer": 0}, {"answer": "no"}]
)
def test_a_number_is_no_text_and_a_truth_value_no_number(asker: Tenant, wrong: dict[str, Any]) -> None:
    answer = asker.http.post("/v1/searches", json=QUESTION | wrong)
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == list(wrong)


def test_searches_are_listed_by_status_and_by_when_they_were_made(node: HttpNode, asker: Tenant) -> None:
    ended, waiting = asker.search("first"), asker.search("second")
    finish(node, ended["id"])

    def listed(**filters: Any) -> list[str]:
        answer = asker.http.get("/v1/searches", params=filters)
        assert answer.status_code == 200, answer.text
        return [item["id"] for item in answer.json()["items"]]

    assert listed(status="succeeded") == [ended["id"]]
    assert listed(status=["succeeded", "queued"]) == [waiting["id"], ended["id"]]
    assert listed(status="failed") == []
    assert listed(created_from=ended["created_at"], created_before=waiting["created_at"]) == [ended["id"]]
    assert listed(created_from=waiting["created_at"]) == [waiting["id"]]
    assert listed(created_from="2000-01-01T00:00:00Z", limit=1) == [waiting["id"]]


@pytest.mark.parametrize(
    "wrong", [{"status": "done"}, {"created_from": "1764547200"}, {"created_before": "2026-12-01T00:00:00"}]
)
def test_a_list_is_not_filtered_by_what_means_nothing(asker: Tenant, wrong: dict[str, str]) -> None:
    answer = asker.http.get("/v1/searches", params=wrong)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["in"] == "query"


def test_a_search_in_an_unknown_collection_is_a_404(asker: Tenant) -> None:
    answer = asker.http.post("/v1/searches", json=QUESTION | {"collection": "attic"})
    assert answer.status_code == 404
    assert "attic" in answer.json()["detail"]


def test_a_caller_who_leaves_does_not_keep_the_wait_alive(node: HttpNode, asker: Tenant) -> None:
    search = asker.search()
    before = len(node.server.server_state.tasks)
    with pytest.raises(httpx.ReadTimeout):
        httpx.get(node.url + search["url"], params={"wait": 5}, headers=asker.http.headers, timeout=0.3)
    wait_until(lambda: len(node.server.server_state.tasks) <= before, 3, "the request that nobody waits for ends")


def test_a_search_that_was_there_already_says_so_in_a_header(node: HttpNode, asker: Tenant) -> None:
    first = asker.http.post("/v1/searches", json=QUESTION)
    assert "hopnode-joined" not in first.headers
    again = asker.http.post("/v1/searches", json=QUESTION)
    assert (again.status_code, again.headers["hopnode-joined"]) == (202, "true")
    assert again.json()["id"] == first.json()["id"]
    alone = asker.http.post("/v1/searches", json=QUESTION | {"join": False})
    assert "hopnode-joined" not in alone.headers
    assert alone.json()["id"] != first.json()["id"]


def test_a_document_that_came_meanwhile_makes_the_same_question_another_search(asker: Tenant) -> None:
    first = asker.search()
    assert asker.search()["id"] == first["id"]
    assert asker.put("quay.md", "The harbour lies north.").status_code == 201
    assert asker.search()["id"] != first["id"]
