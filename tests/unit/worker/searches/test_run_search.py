"""A search from its request to its result, over a real corpus, with no job and no database of jobs behind it."""

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from support.harness.searching import SearchParts, Watcher
from support.node.queue import worker_settings

from hopnode.worker.corpus.corpus import Corpus
from hopnode.worker.corpus.records import NewDocument
from hopnode.worker.errors import ConfigurationError, JobCancelled
from hopnode.worker.inference.messages import ChatRequest, Completion, Message
from hopnode.worker.inference.scripted import ScriptedChat, ScriptLine, say, use
from hopnode.worker.searches.request import SearchRequest
from hopnode.worker.searches.run import run_search
from hopnode.worker.searches.space import Space

TEXTS = {
    "tower": "The Anselm Tower was built by the Brook Company in 1911. It is made of brick.",
    "company": "The Brook Company was founded by Mira Lindqvist, an engineer from the coast.",
    "harbour": "The harbour lies north of the old town, behind the customs house.",
}
QUESTION = "Who founded the company that built the Anselm Tower?"


@pytest.fixture
def filled(space: Space) -> Space:
    fill(space, TEXTS)
    return space


def fill(space: Space, texts: dict[str, str]) -> None:
    documents = [NewDocument(key=key, text=text, title=key.title()) for key, text in texts.items()]
    space.corpus.ingest(space.collections[0], documents)


@pytest.fixture
def parts(tmp_path: Path) -> SearchParts:
    return SearchParts(worker_settings(tmp_path / "settings"))


def run(space: Space, parts: SearchParts, watcher: Watcher, query: str = QUESTION, **fields: Any) -> dict[str, Any]:
    request = SearchRequest.model_validate({"query": query, "collections": ["c1"]} | fields)
    return cast(dict[str, Any], run_search(request, space, parts, check=watcher.check, step=watcher.step))


def keys(result: dict[str, Any]) -> list[str]:
    return [one["key"] for one in result["passages"]]


def test_one_shot_finds_passages_and_records_its_beginning_and_its_end(filled: Space, parts: SearchParts) -> None:
    watcher = Watcher()
    result = run(filled, parts, watcher, mode="one_shot", top_k=2)
    assert set(keys(result)) == {"tower", "company"}
    assert (result["mode"], result["mode_reason"], result["profile"]) == ("one_shot", "", None)
    assert (result["stop_reason"], result["degraded"], result["answer"]) == ("finished", [], None)
    assert watcher.kinds == ["start", "end"]
    assert set(watcher.steps[-1][1]["shown"]) >= {one["chunk_id"] for one in result["passages"]}
    assert [(one["rank"], one["ranks"], one["votes"]) for one in result["passages"]] == [(1, [1], 1), (2, [2], 1)]


def test_the_offline_agent_finds_the_same_passages_with_a_trajectory_of_its_own(
    filled: Space, parts: SearchParts
) -> None:
    watcher = Watcher()
    result = run(filled, parts, watcher, mode="agent", top_k=2)
    assert set(keys(result)) == {"tower", "company"}
    assert (result["mode"], result["profile"], len(result["rollouts"])) == ("agent", "offline", 1)
    assert (watcher.kinds[0], watcher.kinds[-1]) == ("start", "end")
    assert {"action", "observation", "usage"} <= set(watcher.kinds)
    assert result["usage"]["turns"] == watcher.kinds.count("action")


def test_auto_tells_why_it_chose_its_mode_and_records_only_that_one(filled: Space, parts: SearchParts) -> None:
    watcher = Watcher()
    result = run(filled, parts, watcher)
    assert result["mode_reason"]
    assert ("action" in watcher.kinds) == (result["mode"] == "agent")
    assert watcher.kinds.count("start") == 1


def listing(request: ChatRequest) -> Completion:
    """Hands in every passage that was shown."""
    told = [line for message in request.messages for line in message.content.splitlines()]
    ids = [line.split("ID: ")[1].split()[0] for line in told if line.startswith("# DOCUMENT ID: ")]
    text = "".join(f"<Document id={one}><Justification>why</Justification></Document>" for one in ids)
    return Completion(Message("assistant", text), "stop")


def with_chat(parts: SearchParts, lines: Sequence[ScriptLine]) -> SearchParts:
    parts.chat = ScriptedChat(lines)
    return parts


def test_a_model_drives_the_agent_and_its_passages_get_the_scores_of_every_mode(
    filled: Space, parts: SearchParts
) -> None:
    search = use(("search_corpus", {"query": QUESTION}))
    found = run(filled, with_chat(parts, [search, listing]), Watcher(), mode="agent")
    plain = run(filled, parts, Watcher(), mode="one_shot")
    assert found["profile"] == "generic"
    assert all(0 <= one["score"] <= 1 for one in found["passages"])
    assert set(keys(found)) == set(keys(plain)) == TEXTS.keys()


def test_several_rollouts_are_fused_and_each_passage_tells_its_place_in_each(filled: Space, parts: SearchParts) -> None:
    def next_line(request: ChatRequest) -> Completion:
        asked_before = any(message.role == "tool" for message in request.messages)
        return listing(request) if asked_before else use(("search_corpus", {"query": "Brook Company"}))

    watcher = Watcher()
    result = run(filled, with_chat(parts, [next_line] * 4), watcher, mode="agent", effort="medium")
    assert len(result["rollouts"]) == 2
    assert all(len(one["ranks"]) == 2 for one in result["passages"])
    assert watcher.kinds[-1] == "fusion"


def test_a_profile_that_needs_a_model_fails_before_anything_is_recorded(filled: Space, parts: SearchParts) -> None:
    watcher = Watcher()
    with pytest.raises(ConfigurationError, match="generic"):
        run(filled, parts, watcher, mode="agent", profile="generic")
    assert not watcher.steps


@pytest.mark.parametrize("mode", ["one_shot", "agent", "auto"])
def test_what_the_check_raises_ends_the_search_in_every_mode(filled: Space, parts: SearchParts, mode: str) -> None:
    def cancelled() -> None:
        raise JobCancelled("The job was cancelled.")

    with pytest.raises(JobCancelled):
        run(filled, parts, Watcher(cancelled), mode=mode)
    assert parts.computing.acquire(timeout=0) and parts.computing.acquire(timeout=0), "its turns are free again"


def test_a_search_that_waits_for_its_turn_looks_whether_it_may_go_on(filled: Space, parts: SearchParts) -> None:
    looks: list[float] = []

    def look() -> None:
        looks.append(time.monotonic())
        if len(looks) == 3:
            raise JobCancelled("The job was cancelled.")

    parts.computing = threading.Semaphore(0)
    watcher = Watcher(look)
    with pytest.raises(JobCancelled):
        run(filled, parts, watcher, mode="one_shot")
    assert not watcher.steps


def test_the_time_of_a_search_counts_from_when_it_began_and_not_from_its_run(filled: Space, parts: SearchParts) -> None:
    request = SearchRequest(query=QUESTION, collections=["c1"], mode="agent", deadline_seconds=5)
    watcher = Watcher()
    long_ago = time.monotonic() - 60
    result = run_search(request, filled, parts, check=watcher.check, step=watcher.step, started=long_ago)
    assert result["stop_reason"] == "time-limit"


def test_an_answer_leaves_the_agent_less_time(filled: Space, parts: SearchParts) -> None:
    def seconds(**fields: Any) -> float:
        watcher = Watcher()
        run(filled, parts, watcher, mode="agent", deadline_seconds=100, **fields)
        return watcher.steps[0][1]["limits"]["seconds"]

    assert 95 < seconds() <= 100
    assert 70 < seconds(answer=True) <= 75


def test_an_answer_rests_on_the_passages_that_are_returned(filled: Space, tmp_path: Path) -> None:
    settings = worker_settings(tmp_path / "settings", answer_model="writer", answer_url="http://127.0.0.1:1/v1")
    writer = ScriptedChat([say("Mira Lindqvist [P1].")])
    watcher = Watcher()
    result = run(filled, SearchParts(settings, answers=writer), watcher, mode="one_shot", top_k=1, answer=True)
    (citation,) = result["answer"]["citations"]
    assert citation["chunk_id"] == result["passages"][0]["chunk_id"]
    assert (watcher.kinds, result["answer"]["model"]) == (["start", "end", "answer"], "writer")
    assert {"turns", "answer_seconds"} <= result["usage"].keys()


def test_what_is_deleted_while_a_search_runs_is_not_in_its_result(filled: Space, parts: SearchParts) -> None:
    watcher = Watcher()

    def step(kind: str, data: Any) -> None:
        watcher.step(kind, data)
        if kind == "end":
            filled.corpus.delete(filled.collections[0], ["company"])

    request = SearchRequest(query=QUESTION, collections=["c1"], mode="one_shot")
    result = cast(dict[str, Any], run_search(request, filled, parts, check=watcher.check, step=step))
    assert "company" not in keys(result) and "tower" in keys(result)
    assert [one["rank"] for one in result["passages"]] == list(range(1, len(keys(result)) + 1))


def test_passages_below_the_least_score_and_beyond_the_filter_stay_out(
    corpus: Corpus, space: Space, parts: SearchParts
) -> None:
    for key, text in TEXTS.items():
        document = NewDocument(key=key, text=text, metadata={"public": key != "company"})
        corpus.ingest(space.collections[0], [document])
    public = Space(corpus, space.collections, {"public": True})
    for mode in ("one_shot", "agent", "auto"):
        assert "company" not in keys(run(public, parts, Watcher(), mode=mode))
    everything = run(space, parts, Watcher(), mode="one_shot")
    middle = sorted(scores(everything))[1]
    some = run(space, parts, Watcher(), mode="one_shot", min_score=middle)
    assert {one["score"] for one in some["passages"]} == {s for s in scores(everything) if s >= middle}


def test_a_shown_score_handed_back_as_the_least_score_keeps_its_passage_and_all_better_ones(
    space: Space, parts: SearchParts
) -> None:
    fill(space, {f"tower {number}": f"Anselm Tower {number} is made of brick." for number in range(20)})
    shown = run(space, parts, Watcher(), "Anselm Tower 7", mode="one_shot", top_k=20)
    for passage in shown["passages"]:
        again = run(space, parts, Watcher(), "Anselm Tower 7", mode="one_shot", top_k=20, min_score=passage["score"])
        better = [one["chunk_id"] for one in shown["passages"] if one["score"] >= passage["score"]]
        assert [one["chunk_id"] for one in again["passages"]] == better


def scores(result: dict[str, Any]) -> list[float]:
    return [one["score"] for one in result["passages"]]


def test_duplicates_give_their_place_to_the_next_passage(space: Space, parts: SearchParts) -> None:
    fill(space, TEXTS | {"copy": TEXTS["tower"]})
    assert set(keys(run(space, parts, Watcher(), mode="one_shot", top_k=3))) >= {"company", "harbour"}


def test_neighbours_stand_beside_their_passage_in_order(space: Space, parts: SearchParts) -> None:
    paragraphs = [f"Chapter {number} tells of the river. " + f"word{number} " * 220 for number in range(3)]
    fill(space, {"book": "\n\n".join(paragraphs)})
    result = run(space, parts, Watcher(), "word1", mode="one_shot", top_k=1, neighbours=1)
    (passage,) = result["passages"]
    starts = [one["start"] for one in passage["neighbours"]]
    assert starts and starts == sorted(starts)
    assert any(one["end"] <= passage["start"] for one in passage["neighbours"])


def test_an_empty_collection_gives_an_empty_result_that_says_so(space: Space, parts: SearchParts) -> None:
    for mode in ("one_shot", "agent", "auto"):
        result = run(space, parts, Watcher(), mode=mode)
        assert (result["passages"], result["stop_reason"]) == ([], "nothing-found")
