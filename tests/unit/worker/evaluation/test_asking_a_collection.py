"""A trial asks a collection: the one loop behind `hopnode eval` and the evaluations of a node, and what a question gives."""

import threading
from collections.abc import Callable

import pytest
from pydantic import ValidationError

from hopnode.worker.errors import JobInterrupted, NotFound
from hopnode.worker.evaluation.dataset import Question, Text
from hopnode.worker.evaluation.trial import COUNTED, Asking, Retrieved, Trial, workspace_of
from hopnode.worker.runtime import Runtime
from hopnode.worker.store.collections import delete_collection
from hopnode.worker.store.jobs import jobs

NAME = "boats"
TEXTS = (
    Text("nordlys", "Nordlys", "The ferry Nordlys leaves from Harstad every morning. Its captain is Liv Holm."),
    Text("holm", "Liv Holm", "Liv Holm was born in Bergen and learnt to sail on the boat of an uncle."),
    Text("bread", "Bakery", "The bakery opens at six and sells bread and cakes."),
)
QUESTIONS = (
    Question("q1", "Where was the captain of the ferry Nordlys born?"),
    Question("q2", "When does the bakery open?"),
    Question("q3", "Who is Liv Holm?"),
)
ONE_SHOT = Asking("one_shot")


class Counted(Trial):
    """A trial that remembers the ids of what it was asked, in order."""

    def __init__(self, runtime: Runtime, check: Callable[[], None] = lambda: None) -> None:
        super().__init__(runtime, workspace_of(runtime), NAME, check)
        self.asked: list[str] = []

    def ask(self, question: Question, asking: Asking) -> Retrieved:
        self.asked.append(question.id)
        return super().ask(question, asking)


@pytest.fixture
def filled(runtime: Runtime) -> Runtime:
    Trial.make(runtime, workspace_of(runtime), NAME, None).fill(TEXTS, 0, lambda: None)
    return runtime


def test_every_question_is_asked_once_in_its_order_and_the_first_once_more_before(filled: Runtime) -> None:
    asking = Counted(filled)
    before: list[tuple[int, int]] = []
    found = list(asking.ask_each(QUESTIONS, ONE_SHOT, lambda done: before.append((done, len(asking.asked)))))
    assert [question for question, _ in found] == list(QUESTIONS)
    assert [one.question for _, one in found] == ["q1", "q2", "q3"]
    assert asking.asked == ["q1", "q1", "q2", "q3"]
    assert before == [(0, 0), (1, 2), (2, 3)], "it is told how many were asked, ahead of each"
    assert all(one.milliseconds > 0 for _, one in found)


def test_no_questions_ask_nobody(filled: Runtime) -> None:
    asking = Counted(filled)
    assert list(asking.ask_each((), ONE_SHOT)) == []
    assert asking.asked == []


def test_what_is_raised_before_a_question_ends_the_asking_with_what_was_asked(filled: Runtime) -> None:
    def make_way(done: int) -> None:
        if done == 2:
            raise JobInterrupted("Searches wait.")

    found: list[str] = []
    asking = Counted(filled)
    with pytest.raises(JobInterrupted):
        found.extend(question.id for question, _ in asking.ask_each(QUESTIONS, ONE_SHOT, make_way))
    assert asking.asked == ["q1", "q1", "q2"]


def test_what_the_check_raises_is_no_outcome_of_a_question(filled: Runtime) -> None:
    stopped = threading.Event()

    def check() -> None:
        if stopped.is_set():
            raise JobInterrupted("The process was told to stop.")

    asking = Counted(filled, check)
    assert asking.ask(QUESTIONS[0], ONE_SHOT).error is None
    stopped.set()
    for ask in (lambda: asking.ask(QUESTIONS[0], ONE_SHOT), lambda: asking.search(QUESTIONS[0], ONE_SHOT)):
        with pytest.raises(JobInterrupted):
            ask()


def test_a_leg_that_waits_for_its_turn_ends_with_the_check(filled: Runtime) -> None:
    looks: list[int] = []

    def check() -> None:
        looks.append(1)
        if len(looks) > 1:
            raise JobInterrupted("The process was told to stop.")

    filled.computing = threading.Semaphore(0)
    with pytest.raises(JobInterrupted):
        Counted(filled, check).legs(QUESTIONS[0])


def test_a_search_that_fails_is_an_outcome_with_its_error_and_finds_nothing(filled: Runtime) -> None:
    found = Counted(filled).ask(QUESTIONS[0], Asking("agent", profile="generic"))  # no chat endpoint is set
    assert found.error is not None and found.error.startswith("configuration: ")
    assert (found.documents, found.passages, found.mode, found.cost) == ((), (), "agent", {})


@pytest.mark.parametrize("mode", ["one_shot", "agent", "auto"])
def test_an_outcome_tells_documents_passages_and_costs_of_the_search_behind_it(filled: Runtime, mode: str) -> None:
    found = Counted(filled).ask(QUESTIONS[0], Asking(mode, top_k=2))
    assert set(found.documents) == {"nordlys", "holm"}
    assert [one.document for one in found.passages] == list(found.documents)
    assert all(one.tokens > 5 and one.end > one.start for one in found.passages)
    assert found.cost.keys() == set(COUNTED) and found.cost["turns"] >= 1
    assert found.mode in ("one_shot", "agent")
    assert (found.degraded, found.error) == ((), None)


def test_either_leg_finds_documents_of_its_own(filled: Runtime) -> None:
    legs = Counted(filled).legs(Question("q", "bread"))
    assert legs["lexical"] == ["bread"]
    assert set(legs["dense"]) == {"nordlys", "holm", "bread"}


def test_asking_leaves_no_job_behind(filled: Runtime) -> None:
    list(Counted(filled).ask_each(QUESTIONS, ONE_SHOT))
    assert jobs.list_jobs(filled.db, workspace_of(filled), kind="search", limit=10) == []


def test_a_mode_that_no_search_has_is_refused_before_anything_is_looked_up(filled: Runtime) -> None:
    with pytest.raises(ValidationError, match="mode"):
        Counted(filled).search(QUESTIONS[0], Asking("telepathy"))


def test_a_collection_that_is_gone_is_the_error_of_each_question(filled: Runtime) -> None:
    asking = Counted(filled)
    delete_collection(filled.db, workspace_of(filled), NAME)
    assert (asking.ask(QUESTIONS[0], ONE_SHOT).error or "").startswith("not-found: ")
    with pytest.raises(NotFound, match=NAME):
        Counted(filled)


def test_filling_again_brings_the_collection_to_exactly_the_new_documents(filled: Runtime) -> None:
    seen: list[int] = []
    asking = Counted(filled)
    version = asking.index_version
    done = asking.fill((*TEXTS[1:], Text("blank", "", " ")), 0, lambda: seen.append(1))
    assert asking.keys() == {"holm", "bread"}
    assert (len(seen), done.failed) == (3, {"empty": 1})
    assert asking.index_version > version
    assert asking.embedder == "minilm"
