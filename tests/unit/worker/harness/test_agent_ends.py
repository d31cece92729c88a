import threading
import time

import pytest
from support.harness.agent import FILMS, Run
from support.harness.space import MemorySpace

from hopnode.worker.errors import (
    DeadlineExceeded,
    HopnodeError,
    JobCancelled,
    LeaseLost,
    ModelRefused,
    ModelUnavailable,
)
from hopnode.worker.harness.budget import Limits, Rules
from hopnode.worker.harness.policies.model import ModelPolicy
from hopnode.worker.inference.chat import HttpChat
from hopnode.worker.inference.messages import ChatRequest, Completion, Message, ToolCall
from hopnode.worker.inference.scripted import Fault, ScriptedChatServer, ScriptLine, final, say, use

SEARCH = use(("search_corpus", {"query": "Moonrise Oslo"}))


def chosen(run: Run) -> tuple[list[str], str, tuple[str, ...]]:
    outcome = run()
    return [selection.chunk.id for selection in outcome.selections], outcome.stop_reason, outcome.degraded


def is_closing(request: ChatRequest) -> bool:
    return request.extra.get("tool_choice") == "none"


def searching(request: ChatRequest) -> Completion:
    """A model that never stops searching until it is told to close."""
    if is_closing(request):
        return final("d3_0")
    return use(("search_corpus", {"query": f"Oslo {len(request.messages)}"}))


def endless(request: ChatRequest) -> Completion:
    """A model that never stops at all."""
    return use(("search_corpus", {"query": f"Oslo {len(request.messages)}"}))


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(turns=3), "turn-limit"),
        (Limits(tool_calls=3), "tool-call-limit"),
        (Limits(tokens=3_000), "token-limit"),
    ],
)
def test_at_a_limit_the_model_is_asked_once_for_its_list(limits: Limits, reason: str) -> None:
    asked: list[ChatRequest] = []

    def model(request: ChatRequest) -> Completion:
        asked.append(request)
        return searching(request)

    run = Run([model] * 40, limits=limits)
    assert chosen(run) == (["d3_0"], reason, ())
    assert [is_closing(request) for request in asked].count(True) == 1
    assert is_closing(asked[-1])
    assert asked[-1].tools
    assert "The search ends here" in asked[-1].messages[-1].content


def test_a_model_that_does_not_close_gets_its_finds_ranked_and_marked() -> None:
    ids, reason, degraded = chosen(Run([endless] * 40, limits=Limits(turns=2)))
    assert {"d3_0", "d2_0"} <= set(ids)
    assert (reason, degraded) == ("turn-limit", ("fallback-ranking",))


def test_calls_over_the_limit_are_refused_within_a_turn() -> None:
    many = use(*(("grep_corpus", {"pattern": word}) for word in ("Anna", "Oslo", "film", "fjord")))
    run = Run([many, searching], limits=Limits(tool_calls=2))
    assert chosen(run)[1] == "tool-call-limit"
    assert [data["error"] for data in run.data("observation")] == [False, False, True, True]


def test_a_full_context_ends_with_a_list() -> None:
    def model(request: ChatRequest) -> Completion:
        if is_closing(request):
            return final("d3_0")
        return SEARCH if len(request.messages) == 2 else use(("fly", {}), reasoning="so " * 500)

    run = Run([model] * 40, rules=Rules(window=6_000), limits=Limits(strikes=90))
    assert chosen(run) == (["d3_0"], "context-full", ())
    assert 6_000 - 1_024 < run.data("action")[-1]["context_tokens"] < 6_000  # type: ignore[operator]


def test_one_empty_reply_is_nudged_and_the_run_goes_on() -> None:
    run = Run([SEARCH, say(""), final("d3_0")])
    assert chosen(run) == (["d3_0"], "finished", ())
    assert [data["reason"] for data in run.data("nudge")] == ["empty"]
    assert run.requests[-1].messages[-1].content == run.agent.rules.wording.empty_reply


def test_tool_calls_as_finish_reason_without_any_call_is_an_empty_reply() -> None:
    nothing = Completion(Message("assistant", "", reasoning="hm"), "tool_calls")
    run = Run([SEARCH, nothing, final("d3_0")])
    assert chosen(run)[1] == "finished"
    assert [data["reason"] for data in run.data("nudge")] == ["empty"]


def test_a_reply_cut_off_in_half_a_call_is_nudged_with_that_reason() -> None:
    half = say('<tool_call>{"name": "search_corp', finish_reason="length")
    run = Run([SEARCH, half, final("d3_0")])
    assert chosen(run)[1] == "finished"
    assert [data["reason"] for data in run.data("nudge")] == ["cut-off"]


def test_text_without_ids_is_nudged_then_closed_then_ranked() -> None:
    run = Run([SEARCH, say("I think it is Oslo."), say("As I said, Oslo."), say("Oslo!")])
    ids, reason, degraded = chosen(run)
    assert "d3_0" in ids
    assert (reason, degraded) == ("no-final-list", ("fallback-ranking",))
    assert run.kinds().count("nudge") == 2
    assert run.data("action")[-1]["closing"] is True


def test_a_list_of_unknown_ids_only_is_no_list() -> None:
    run = Run([SEARCH, final("d7_7"), final("d3_0")])
    assert chosen(run) == (["d3_0"], "finished", ())
    assert [data["reason"] for data in run.data("nudge")] == ["no-ids"]


def test_ids_in_the_reasoning_count_when_the_model_wrote_no_text() -> None:
    silent = say("", reasoning='So the answer is <Document id="d3_0"><Justification>fjord</Justification></Document>')
    assert chosen(Run([SEARCH, silent])) == (["d3_0"], "finished", ())


def test_a_call_with_half_an_argument_is_told_and_mended() -> None:
    half = Completion(Message("assistant", "", tool_calls=(ToolCall("c", "search_corpus", '{"query": "Os'),)), "length")
    run = Run([half, SEARCH, final("d3_0")])
    assert chosen(run)[1] == "finished"
    assert "not valid JSON" in str(run.data("observation")[0]["text"])


def test_turns_that_bring_only_errors_end_the_run() -> None:
    wrong = use(("read_document", {"doc_id": "nowhere"}))
    script: list[ScriptLine] = [
        SEARCH,
        *(use(("read_document", {"doc_id": f"no{n}"})) for n in range(3)),
        final("d3_0"),
    ]
    assert chosen(Run(script)) == (["d3_0"], "stalled", ())
    assert chosen(Run([wrong] * 3)) == ([], "stalled", ("fallback-ranking",))


UNAVAILABLE = ModelUnavailable("away", reason="server-error")


def test_a_model_that_goes_away_leaves_what_is_held() -> None:
    ids, reason, degraded = chosen(Run([SEARCH, UNAVAILABLE]))
    assert "d3_0" in ids
    assert (reason, degraded) == ("model-unavailable", ("model-unavailable", "fallback-ranking"))


def test_a_model_that_goes_away_while_closing_leaves_what_is_held() -> None:
    ids, reason, degraded = chosen(Run([SEARCH, UNAVAILABLE], limits=Limits(turns=1)))
    assert "d3_0" in ids
    assert (reason, degraded) == ("turn-limit", ("model-unavailable", "fallback-ranking"))


@pytest.mark.parametrize("error", [UNAVAILABLE, ModelRefused("no such model", reason="unknown-model")])
def test_a_model_that_never_answers_is_an_error(error: HopnodeError) -> None:
    with pytest.raises(type(error)):
        Run([error])()


def test_a_prompt_that_is_too_long_ends_with_what_is_held() -> None:
    too_long = ModelRefused("too long", reason="prompt-too-long")
    _, reason, degraded = chosen(Run([SEARCH, too_long]))
    assert (reason, degraded) == ("prompt-too-long", ("prompt-too-long", "fallback-ranking"))


def test_degradations_of_the_index_are_named_in_the_result() -> None:
    space = MemorySpace(FILMS, degraded=("vectors-unavailable",))
    assert chosen(Run([SEARCH, final("d3_0")], space))[2] == ("vectors-unavailable",)


def slow_server(script: list[Completion], seconds: float) -> ScriptedChatServer:
    """Plays the script and then keeps silent."""
    lines = iter(script)
    return ScriptedChatServer(lambda request: next(lines, Fault(wait_seconds=seconds)))


def with_server(server: ScriptedChatServer, **options: object) -> Run:
    return Run(HttpChat(server.url, "m", timeout_seconds=60), **options)  # type: ignore[arg-type]


class Switch:
    """A check that raises once it is thrown, as the job's check does when somebody cancelled."""

    def __init__(self, error: HopnodeError) -> None:
        self.error = error
        self.thrown = threading.Event()

    def __call__(self) -> None:
        if self.thrown.is_set():
            raise self.error


def until(condition: object, seconds: float = 5.0) -> None:
    assert callable(condition)
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "the condition did not come true in time"
        time.sleep(0.005)


@pytest.mark.parametrize("error", [JobCancelled("cancelled"), LeaseLost("lost")])
def test_a_cancel_during_a_model_call_ends_the_run_and_the_call_within_a_second(error: HopnodeError) -> None:
    switch = Switch(error)
    with slow_server([SEARCH], 30) as server:
        run = with_server(server, check=switch)
        ended: list[float] = []

        def search() -> None:
            with pytest.raises(type(error)):
                run()
            ended.append(time.monotonic())

        thread = threading.Thread(target=search)
        thread.start()
        until(lambda: len(server.requests) == 2)
        started = time.monotonic()
        switch.thrown.set()
        thread.join(5)
        assert ended
        assert ended[0] - started < 0.7
        until(lambda: server.hung_up == 1, 1)
        assert len(server.requests) == 2
        assert run.kinds()[-1] != "end"


def test_a_cancel_during_a_slow_tool_ends_the_run_within_a_second() -> None:
    switch, release = Switch(JobCancelled("cancelled")), threading.Event()

    def stuck(name: str) -> None:
        switch.thrown.set()
        release.wait(10)

    started = time.monotonic()
    with pytest.raises(JobCancelled):
        Run([SEARCH, final("d3_0")], MemorySpace(FILMS, before=stuck), check=switch)()
    assert time.monotonic() - started < 0.7
    release.set()


def test_the_deadline_of_the_job_ends_with_what_is_held() -> None:
    switch = Switch(DeadlineExceeded("late"))
    with slow_server([SEARCH], 30) as server:
        run = with_server(server, check=switch)
        thread = threading.Thread(target=lambda: (until(lambda: len(server.requests) == 2), switch.thrown.set()))
        thread.start()
        ids, reason, degraded = chosen(run)
        thread.join(5)
    assert "d3_0" in ids
    assert (reason, degraded) == ("time-limit", ("fallback-ranking",))


def test_the_wall_clock_limit_cuts_a_model_call_short() -> None:
    with slow_server([SEARCH], 30) as server:
        started = time.monotonic()
        ids, reason, degraded = chosen(with_server(server, limits=Limits(seconds=0.5)))
        assert time.monotonic() - started < 1.5
    assert "d3_0" in ids
    assert (reason, degraded) == ("time-limit", ("fallback-ranking",))


def test_the_last_fifth_of_the_time_is_kept_for_the_list() -> None:
    def slowly(request: ChatRequest) -> Completion:
        time.sleep(0.05)
        return searching(request)

    ids, reason, degraded = chosen(Run([slowly] * 100, limits=Limits(seconds=0.6)))
    assert (ids, reason, degraded) == (["d3_0"], "time-limit", ())


def test_a_stopped_policy_asks_nothing_any_more() -> None:
    run = Run([SEARCH])
    policy = run.agent.policy
    assert isinstance(policy, ModelPolicy)
    policy.stop()
    with pytest.raises(ModelUnavailable):
        run()
