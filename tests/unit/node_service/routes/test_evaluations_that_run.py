"""Evaluations that real job threads run beside searches: whoever waits for an answer goes first, and a model may fail."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from support.node.http_node import HttpNode, Tenant, serve_node
from support.node.queue import wait_until

from hopnode.worker.evaluation.job import run_evaluation_job
from hopnode.worker.inference.scripted import Fault, Reply, ScriptedChatServer, ServerRequest, say
from hopnode.worker.searches.job import run_search_job

pytestmark = pytest.mark.slow

TEXTS = {
    "tower.md": "# Tower\n\nThe Anselm Tower was built by the Brook Company in 1911. It is made of brick.",
    "company.md": "# Brook Company\n\nThe Brook Company was founded by Mira Lindqvist, an engineer from the coast.",
    "harbour.md": "# Harbour\n\nThe harbour lies north of the old town. Ships call there every week.",
}
QUESTIONS: list[dict[str, Any]] = [
    {"question": "Where is the harbour?", "gold": ["harbour.md"]},
    {"question": "Who founded the company that built the Anselm Tower?", "gold": ["tower.md", "company.md"]},
    {"question": "What is the tower made of?", "gold": ["tower.md"]},
]


class Model:
    """Finds nothing; refuses to answer the question that is `broken`, and answers that of a `gate` once it is open."""

    def __init__(self) -> None:
        self.broken = ""
        self.gates: dict[str, threading.Event] = {}
        self.asked = list[str]()

    def reply(self, request: ServerRequest) -> Reply:
        told = str(request.body["messages"])
        (question,) = [one["question"] for one in QUESTIONS if one["question"] in told] or ["another"]
        self.asked.append(question)
        if question == self.broken:
            return Fault(status=503)
        if gate := self.gates.get(question):
            assert gate.wait(60)
        return say("<NoDocuments/>")


@pytest.fixture(scope="module")
def model() -> Model:
    return Model()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, model: Model) -> Iterator[HttpNode]:
    handlers = {"search": run_search_job, "evaluation": run_evaluation_job}
    with ScriptedChatServer(model.reply) as server:
        settings = {"chat_url": server.url, "chat_model": "m"}
        with serve_node(tmp_path_factory.mktemp("evaluating"), settings, handlers=handlers) as served:
            yield served


@pytest.fixture
def asker(node: HttpNode, model: Model) -> Tenant:
    model.broken, model.gates, model.asked = "", {}, []
    tenant = node.tenant()
    tenant.collection()
    for key, text in TEXTS.items():
        assert tenant.put(key, text).status_code == 201
    return tenant


def start(tenant: Tenant, **fields: Any) -> dict[str, Any]:
    made = tenant.http.post("/v1/evaluations", json={"collection": "handbook", "questions": QUESTIONS} | fields)
    assert made.status_code == 202, made.text
    return made.json()


def ended(tenant: Tenant, made: dict[str, Any]) -> dict[str, Any]:
    found = tenant.http.get(made["url"], params={"wait": 50}).json()
    assert found["status"] == "succeeded", found
    return found


def test_an_evaluation_is_carried_out_and_compared_with_an_earlier_one(asker: Tenant) -> None:
    first = ended(asker, start(asker, mode="one_shot", top_k=1))
    assert first["report"]["recall"]["20"] == pytest.approx((1 + 0.5 + 1) / 3)
    assert first["progress"] == {"asked": 3, "questions": 3}
    second = ended(asker, start(asker, mode="agent", profile="offline", compare_with=first["id"]))
    assert second["report"]["all"]["5"] == 1.0
    recall = {one["name"]: one for one in second["comparison"]["differences"]}["recall@5"]
    assert (recall["wins"], recall["losses"]) == (1, 0)
    assert second["degraded"] == []


def test_a_model_that_is_away_for_one_question_costs_that_question(asker: Tenant, model: Model) -> None:
    model.broken = QUESTIONS[1]["question"]
    found = ended(asker, start(asker, mode="agent", profile="generic"))
    assert found["attempt"] == 1
    report = found["report"]
    assert report["failed"] == {"model-unavailable": 1}
    assert report["questions"] == 3


def test_a_search_that_waits_for_a_place_gets_that_of_an_evaluation_which_then_goes_on(
    asker: Tenant, model: Model
) -> None:
    gate = model.gates[QUESTIONS[1]["question"]] = threading.Event()
    made = start(asker, mode="agent", profile="generic")  # takes the one thread that there is
    wait_until(lambda: QUESTIONS[1]["question"] in model.asked, 30, "the second question is asked")
    search = asker.search(mode="one_shot")
    answer = asker.http.get(search["url"], params={"wait": 1.5})
    assert answer.json()["status"] == "queued", "a question is not broken off"
    gate.set()
    waited = asker.http.get(search["url"], params={"wait": 30}).json()
    assert waited["status"] == "succeeded"
    found = ended(asker, made)
    assert found["attempt"] == 2
    assert found["ended_at"] > waited["ended_at"]
    assert model.asked.count(QUESTIONS[1]["question"]) == 1, "what was asked is not asked again"
