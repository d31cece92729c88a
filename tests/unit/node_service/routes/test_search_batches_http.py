"""Several searches in one request: each for itself, in order, and the whole again by its key."""

from typing import Any

import pytest
from support.node.http_node import Tenant

from hopnode.worker.store.jobs.jobs import get_job


@pytest.fixture
def asker(tenant: Tenant) -> Tenant:
    tenant.collection()
    return tenant


def batch(asker: Tenant, body: dict[str, Any], **headers: str) -> list[dict[str, Any]]:
    answer = asker.http.post("/v1/searches:batch", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()["outcomes"]


def listed(asker: Tenant) -> list[str]:
    return [one["id"] for one in asker.http.get("/v1/searches").json()["items"]]


def test_questions_with_shared_settings_become_searches_in_their_order(asker: Tenant) -> None:
    questions = [f"Who built tower {number}?" for number in range(100)]
    outcomes = batch(asker, {"shared": {"collection": "handbook", "top_k": 3}, "queries": questions})
    assert [one["search"]["query"] for one in outcomes] == questions
    assert {(one["status"], one["joined"], one["problem"], one["search"]["top_k"]) for one in outcomes} == {
        (202, False, None, 3)
    }
    assert asker.http.get(outcomes[7]["search"]["url"]).json() == outcomes[7]["search"]


def test_a_bad_search_fails_alone_with_what_is_wrong_in_it(asker: Tenant) -> None:
    bodies = [
        {"query": "Where is the harbour?"},
        {"query": ""},
        {"query": "Where?", "collection": "nowhere"},
        {"query": "Where?", "filter": {"team": {"like": "a"}}},
        {"query": "Where?", "answer": True},
        {"query": "Where is the quay?", "collections": ["handbook"]},
    ]
    outcomes = batch(asker, {"shared": {"collection": "handbook"}, "searches": bodies})
    assert [one["status"] for one in outcomes] == [202, 422, 404, 422, 422, 202]
    assert outcomes[1]["problem"]["errors"][0]["field"] == "searches.1.query"
    assert [outcomes[number]["problem"]["code"] for number in (2, 3)] == ["not-found", "invalid-request"]
    assert outcomes[4]["problem"]["errors"][0]["code"] == "no_answer_endpoint"
    assert set(listed(asker)) == {outcomes[0]["search"]["id"], outcomes[5]["search"]["id"]}


def test_the_same_question_twice_in_a_batch_is_one_search_unless_it_says_otherwise(asker: Tenant) -> None:
    one = {"query": "Where?", "collection": "handbook"}
    outcomes = batch(asker, {"searches": [one, one, one | {"join": False}]})
    assert [outcome["joined"] for outcome in outcomes] == [False, True, False]
    assert len({outcome["search"]["id"] for outcome in outcomes}) == 2


def test_the_same_batch_with_the_same_key_gives_the_same_searches(asker: Tenant) -> None:
    body = {"shared": {"collection": "handbook"}, "searches": [{"query": "a"}, {"query": ""}, {"query": "a"}]}
    first = batch(asker, body, **{"Idempotency-Key": "night"})
    again = batch(asker, body, **{"Idempotency-Key": "night"})
    ids = [[one["search"] and one["search"]["id"] for one in outcomes] for outcomes in (first, again)]
    assert ids[0] == ids[1]
    assert [one["joined"] for one in again] == [True, False, True]
    assert len(listed(asker)) == 2
    other = body | {"searches": [{"query": "b"}]}
    refused = asker.http.post("/v1/searches:batch", json=other, headers={"Idempotency-Key": "night"})
    assert (refused.status_code, refused.json()["code"]) == (422, "idempotency-mismatch")
    assert len(listed(asker)) == 2


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"queries": []},
        {"queries": ["a"] * 101},
        {"queries": ["a"], "searches": [{"query": "a"}]},
        {"searches": ["a"]},
    ],
)
def test_a_batch_that_is_none_is_refused_as_a_whole(asker: Tenant, body: dict[str, Any]) -> None:
    answer = asker.http.post("/v1/searches:batch", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")
    assert listed(asker) == []


def test_a_search_of_a_batch_with_a_callback_has_a_run_of_its_own_and_tells_its_url(asker: Tenant) -> None:
    one = {"query": "Where?", "collection": "handbook"}
    told = one | {"callback": {"url": "https://receiver.example/hook", "metadata": {"run": 7}}}
    outcomes = batch(asker, {"searches": [one, told, told]})
    assert [outcome["joined"] for outcome in outcomes] == [False, False, False]
    rows = [get_job(asker.node.db, asker.workspace.id, outcome["search"]["id"]) for outcome in outcomes]
    assert [row.callback and row.callback["url"] for row in rows] == [None, *["https://receiver.example/hook"] * 2]
    alone = asker.http.post("/v1/searches", json=told)
    assert "hopnode-joined" not in alone.headers
    assert alone.json()["id"] not in {row.id for row in rows}


def test_what_a_search_says_itself_goes_before_what_is_shared(asker: Tenant) -> None:
    asker.collection("notes")
    shared = {"collection": "handbook", "top_k": 3, "metadata": {"run": 7}}
    own = [{"query": "a"}, {"query": "b", "collections": ["notes", "handbook"], "top_k": 5}]
    found = [outcome["search"] for outcome in batch(asker, {"shared": shared, "searches": own})]
    assert [(one["collections"], one["top_k"], one["metadata"]) for one in found] == [
        (["handbook"], 3, {"run": 7}),
        (["notes", "handbook"], 5, {"run": 7}),
    ]
