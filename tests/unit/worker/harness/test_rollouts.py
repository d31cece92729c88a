import json
import threading
import time
from collections.abc import Callable, Sequence

import pytest
from support.harness.agent import FILMS
from support.harness.context1 import DATE, QUESTION, RawRun, sampled
from support.harness.harmony import call, concluded, harmony
from support.harness.space import MemorySpace, make_chunk

from hopnode.worker.errors import JobCancelled, ModelRefused, ModelUnavailable
from hopnode.worker.harness.agent import SearchAgent
from hopnode.worker.harness.budget import Limits
from hopnode.worker.harness.outcome import AgentOutcome, Selection, Usage, rank_score
from hopnode.worker.harness.policies.model import ModelPolicy
from hopnode.worker.harness.profiles.context1 import Context1Profile
from hopnode.worker.harness.rollouts import ROLLOUTS, run_rollouts
from hopnode.worker.harness.trajectory import Recorder, fusion_step
from hopnode.worker.inference.messages import PromptRequest, Sampled
from hopnode.worker.inference.scripted import ScriptedSampler


class Given:
    """A run whose outcome is given: ids best first, an outcome, or an error."""

    def __init__(self, ends: Sequence[str] | AgentOutcome | Exception) -> None:
        self.ends = ends

    def run(self, question: str) -> AgentOutcome:
        if isinstance(self.ends, Exception):
            raise self.ends
        return self.ends if isinstance(self.ends, AgentOutcome) else outcome(*self.ends)


def outcome(
    *ids: str, stop_reason: str = "finished", degraded: tuple[str, ...] = (), usage: Usage | None = None
) -> AgentOutcome:
    selections = tuple(
        Selection(make_chunk(*key.split("_"), text=key), rank_score(rank), f"{key} at {rank}", (f"q{rank}",))  # type: ignore[arg-type]
        for rank, key in enumerate(ids, start=1)
    )
    return AgentOutcome(selections, stop_reason, degraded, usage or Usage(turns=2, tool_calls=3, token_budget=10))


def nothing() -> None:
    pass


def together(*ends: Sequence[str] | AgentOutcome | Exception, check: Callable[[], None] = nothing) -> AgentOutcome:
    return run_rollouts(lambda number, _: Given(ends[number - 1]), len(ends), "q", check)


def ids(result: AgentOutcome) -> list[str]:
    return [one.chunk.id for one in result.selections]


def test_the_efforts_are_one_two_and_four_rollouts() -> None:
    assert ROLLOUTS == {"low": 1, "medium": 2, "high": 4}


def test_one_rollout_is_its_own_outcome_with_its_ranks() -> None:
    alone = together(["a_0", "b_0"])
    assert ids(alone) == ["a_0", "b_0"]
    assert [one.ranks for one in alone.selections] == [(1,), (2,)]
    assert [one.score for one in alone.selections] == [1.0, rank_score(2)]
    assert [(one.rollout, one.counted, one.chunk_ids) for one in alone.rollouts] == [(1, True, ("a_0", "b_0"))]


def test_lists_are_fused_by_reciprocal_ranks_and_keep_their_order() -> None:
    """By hand: a 1/61 + 1/63, b 1/62 + 1/61, c 1/63, d 1/62; so b, a, d, c."""
    result = together(["a_0", "b_0", "c_0"], ["b_0", "d_0", "a_0"])
    assert ids(result) == ["b_0", "a_0", "d_0", "c_0"]
    assert [one.ranks for one in result.selections] == [(2, 1), (1, 3), (None, 2), (3, None)]
    assert result.selections[0].score == pytest.approx((1 / 62 + 1 / 61) / (2 / 61))
    assert result.selections[3].score == pytest.approx((1 / 63) / (2 / 61))


def test_the_same_list_in_every_rollout_keeps_its_scores() -> None:
    result = together(*[["a_0", "b_0", "c_0"]] * 4)
    assert ids(result) == ["a_0", "b_0", "c_0"]
    assert [one.score for one in result.selections] == pytest.approx([rank_score(rank) for rank in (1, 2, 3)])


def test_ties_go_by_id_and_thirty_are_kept() -> None:
    assert ids(together(["b_0", "a_0"], ["a_0", "b_0"])) == ["a_0", "b_0"]
    many = [f"d{n:02}_0" for n in range(40)]
    assert ids(together(many, many[::-1])) == sorted(ids(together(many, many[::-1])), key=lambda key: -_both(many, key))
    assert len(ids(together(many, many))) == 30


def _both(many: list[str], key: str) -> float:
    at = many.index(key)
    return round(1 / (61 + at) + 1 / (60 + len(many) - at), 12)


def test_a_passage_has_the_reason_of_its_best_place_and_all_ways_to_it() -> None:
    first = together(["x_0", "a_0"], ["a_0"]).selections[0]
    assert (first.chunk.id, first.justification, first.found_by) == ("a_0", "a_0 at 1", ("q2", "q1"))


@pytest.mark.parametrize("error", [ModelUnavailable("away"), ModelRefused("no")])
def test_a_rollout_that_its_model_fails_is_left_out_and_named(error: Exception) -> None:
    result = together(["a_0"], error, ["a_0", "b_0"])
    assert ids(result) == ["a_0", "b_0"]
    assert result.selections[0].ranks == (1, None, 1)
    assert result.selections[0].score == 1.0
    assert result.degraded == ("rollout-failed",)
    assert [(one.rollout, one.stop_reason, one.counted) for one in result.rollouts] == [
        (1, "finished", True),
        (2, type(error).code, False),  # type: ignore[attr-defined]
        (3, "finished", True),
    ]


def test_when_all_fail_the_search_fails_as_the_first_did() -> None:
    with pytest.raises(ModelUnavailable, match="first"):
        together(ModelUnavailable("first"), ModelRefused("second"))


def test_a_ranking_that_no_model_made_counts_only_when_there_is_no_other() -> None:
    guessed = outcome("z_0", stop_reason="turn-limit", degraded=("fallback-ranking",))
    result = together(["a_0"], guessed)
    assert (ids(result), result.stop_reason, result.degraded) == (["a_0"], "finished", ("rollout-left-out",))
    assert [one.counted for one in result.rollouts] == [True, False]
    both = together(guessed, guessed)
    assert (ids(both), both.stop_reason, both.degraded) == (["z_0"], "turn-limit", ("fallback-ranking",))


def test_a_rollout_that_found_nothing_has_a_say_in_the_scores() -> None:
    result = together(["a_0"], outcome(stop_reason="nothing-found"))
    assert (result.stop_reason, result.degraded) == ("finished", ())
    assert result.selections[0].score == 0.5
    assert together(*[outcome(stop_reason="nothing-found")] * 2).stop_reason == "nothing-found"


def test_usage_is_summed_and_sizes_are_those_of_the_largest() -> None:
    small = Usage(turns=2, tool_calls=3, model_seconds=0.5, context_tokens_peak=10, token_budget=100)
    large = Usage(turns=5, tool_calls=1, model_seconds=0.25, context_tokens_peak=70, token_budget=100)
    usage = together(outcome("a_0", usage=small), outcome("a_0", usage=large)).usage
    assert (usage.turns, usage.tool_calls, usage.model_seconds) == (7, 4, 0.75)
    assert (usage.context_tokens_peak, usage.token_budget) == (70, 100)


def test_a_defect_in_one_rollout_ends_the_others_and_is_raised() -> None:
    began, ended = threading.Event(), threading.Event()

    class Endless:
        def __init__(self, check: Callable[[], None]) -> None:
            self.check = check

        def run(self, question: str) -> AgentOutcome:
            began.set()
            try:
                while True:
                    self.check()
                    time.sleep(0.005)
            finally:
                ended.set()

    class Broken:
        def run(self, question: str) -> AgentOutcome:
            began.wait(5)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_rollouts(lambda number, check: Endless(check) if number == 1 else Broken(), 2, "q", nothing)
    assert ended.is_set()


# --- with real agents ----------------------------------------------------------------------------------------------

SEARCH = call("search_corpus", {"query": "Moonrise Oslo"})


def agents(
    samplers: Sequence[ScriptedSampler], steps: list[tuple[str, dict[str, object]]], space: MemorySpace | None = None
) -> Callable[[int, Callable[[], None]], SearchAgent]:
    shared = space or MemorySpace(FILMS)

    def make(number: int, check: Callable[[], None]) -> SearchAgent:
        return SearchAgent(
            ModelPolicy(samplers[number - 1], Context1Profile(harmony(), DATE)),
            shared,
            limits=Limits(),
            recorder=Recorder(lambda kind, data: steps.append((kind, dict(data))), number),
            check=check,
        )

    return make


def test_four_agents_run_side_by_side_from_the_same_prompt_and_their_trajectories_stay_apart() -> None:
    together_now = threading.Barrier(4, timeout=10)

    def first(request: PromptRequest) -> Sampled:
        together_now.wait()
        return sampled(SEARCH)

    lists = (("d3_0", "d2_0"), ("d2_0",), ("d2_0", "d3_0"), ("d1_0", "d2_0"))
    samplers = [ScriptedSampler([first, sampled(concluded(*one))]) for one in lists]
    steps: list[tuple[str, dict[str, object]]] = []
    result = run_rollouts(agents(samplers, steps), 4, QUESTION, nothing)
    assert ids(result)[0] == "d2_0"
    assert result.selections[0].ranks == (2, 1, 1, 2)
    assert len({sampler.requests[0].prompt for sampler in samplers}) == 1
    for number in (1, 2, 3, 4):
        kinds = [kind for kind, data in steps if data["rollout"] == number]
        assert kinds == ["start", "action", "observation", "usage", "action", "end"]
    data = fusion_step(result)
    assert json.loads(json.dumps(data)) == data
    assert result.usage.turns == 8


def test_a_cancel_ends_all_rollouts_within_a_second() -> None:
    cancelled, asked = threading.Event(), threading.Semaphore(0)

    def silent(request: PromptRequest) -> Sampled:
        asked.release()
        cancelled.wait(20)
        time.sleep(0.3)
        return sampled(SEARCH)

    def check() -> None:
        if cancelled.is_set():
            raise JobCancelled("cancelled")

    def cancel() -> None:
        for _ in range(3):
            asked.acquire(timeout=5)
        cancelled.set()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    started = time.monotonic()
    with pytest.raises(JobCancelled):
        run_rollouts(agents([ScriptedSampler([silent] * 2) for _ in range(3)], []), 3, QUESTION, check)
    assert time.monotonic() - started < 3
    canceller.join()


def test_one_dead_model_does_not_spoil_the_others() -> None:
    alive = [ScriptedSampler([sampled(SEARCH), sampled(concluded("d3_0"))]) for _ in range(2)]
    dead = ScriptedSampler([ModelUnavailable("gone", reason="connect")])
    result = run_rollouts(agents([alive[0], dead, alive[1]], []), 3, QUESTION, nothing)
    assert (ids(result), result.degraded) == (["d3_0"], ("rollout-failed",))


def test_a_rollout_alone_is_what_the_agent_alone_is() -> None:
    script = [SEARCH, concluded("d3_0", "d2_0")]
    alone = RawRun(script)()
    one = run_rollouts(agents([ScriptedSampler([sampled(line) for line in script])], []), 1, QUESTION, nothing)
    assert [(s.chunk.id, s.score) for s in one.selections] == [(s.chunk.id, s.score) for s in alone.selections]
