"""Steps as people read them, from what the harness's own recorder writes."""

from typing import Any

from hopnode.node_service.commands.terminal.step_lines import Step, describe, hops, pruned
from hopnode.worker.corpus.records import Chunk
from hopnode.worker.harness.actions import Action, FinalEntry
from hopnode.worker.harness.budget import Limits, Rules
from hopnode.worker.harness.context import Observation, Pruned
from hopnode.worker.harness.trajectory import Recorder
from hopnode.worker.inference.messages import ToolCall


def _chunk(number: int) -> Chunk:
    return Chunk(f"d{number}_0", number, f"d{number}", "c", 0, "text", 0, 4, 1, None, "", f"k{number}", "T", None, {})


def _run() -> list[Step]:
    search = ToolCall("1", "search_corpus", '{"query": "who directed it"}')
    grep = ToolCall("2", "grep_corpus", "not json")
    prune = ToolCall("3", "prune_chunks", '{"chunk_ids": ["d1_0", "d2_0"]}')
    recorder, rules = Recorder(), Rules()
    recorder.start("who?", rules, Limits())
    recorder.action(1, Action(calls=(search, grep)), 100, 0.1, closing=False)
    recorder.observation(1, Observation(search, "list", (_chunk(1), _chunk(2))), rules, 1200, 0.1)
    recorder.observation(1, Observation(grep, text="bad pattern\nmore", error=True), rules, 20, 0.1)
    recorder.action(2, Action(calls=(prune,)), 100, 0.1, closing=False)
    dropped = Pruned(("d1_0", "d2_0"), freed_tokens=900)
    recorder.observation(2, Observation(prune, text="Pruned", pruned=dropped), rules, 3, 0.1)
    recorder.nudge(2, "no-list", "Please end with a list.")
    recorder.action(3, Action(final=(FinalEntry("d1_0"),)), 100, 0.1, closing=True)
    return [Step(step.kind, dict[str, Any](step.data)) for step in recorder.steps]


def test_each_step_that_concerns_people_is_one_line() -> None:
    assert [line for step in _run() if (line := describe(step))] == [
        "turn 1: search “who directed it” | grep not json",
        "    2 passages, 1,200 tokens",
        "    refused: bad pattern",
        "turn 2: prune 2 passages",
        "    pruned 2 passages, freed 900 tokens",
        "    asked again: no-list",
        "turn 3: ranks 1 passage",
    ]


def test_hops_are_the_calls_that_look_for_something_with_what_they_brought() -> None:
    first, second = hops(_run())
    assert (first.turn, first.verb, first.subject, first.shown) == (1, "search", "“who directed it”", ("d1_0", "d2_0"))
    assert (second.verb, second.failed) == ("grep", True)


def test_steps_of_several_rollouts_are_told_apart() -> None:
    second = [Step(step.kind, step.data | {"rollout": 2}) for step in _run()]
    for step in second:
        for call in step.data.get("calls", []):
            call["arguments"] = call["arguments"].replace("directed", "filmed")
    lines = [line for step in second if (line := describe(step))]
    assert lines[0] == "[2] turn 1: search “who filmed it” | grep not json"
    assert [hop.subject for hop in hops(_run() + second)][::2] == ["“who directed it”", "“who filmed it”"]


def test_pruned_chunks_are_listed_once() -> None:
    assert pruned(_run() + _run()) == ["d1_0", "d2_0"]


def test_of_a_search_that_was_begun_again_the_last_attempt_counts() -> None:
    again = [*_run(), Step("restart", {"attempt": 2, "last_step": 9}), *_run()[:4]]
    assert "attempt 2" in str(describe(again[9]))
    assert hops(again) == hops(_run())
    assert pruned(again) == []


def test_a_step_of_an_unknown_kind_is_passed_over() -> None:
    assert describe(Step("fused", {"anything": 1})) is None
