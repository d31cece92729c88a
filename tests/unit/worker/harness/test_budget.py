import pytest

from hopnode.worker.errors import StopSignal
from hopnode.worker.harness.actions import Action
from hopnode.worker.harness.budget import LimitReached, Limits, Meter, Rules


def test_the_thresholds_are_those_of_the_reference() -> None:
    rules = Rules()
    assert (rules.window, rules.soft, rules.hard) == (32_768, 16_384, 24_576)


@pytest.mark.parametrize(("used", "over"), [(16_383, False), (16_384, False), (16_385, True)])
def test_the_soft_threshold_is_passed_one_token_above_half_the_window(used: int, over: bool) -> None:
    assert Rules().over_soft(used) is over


@pytest.mark.parametrize(("used", "rejected"), [(24_575, False), (24_576, False), (24_577, True)])
def test_the_hard_cutoff_rejects_one_token_above_three_quarters_of_the_window(used: int, rejected: bool) -> None:
    assert Rules().rejects(used) is rejected


@pytest.mark.parametrize(
    ("used", "allowed"),
    [
        (0, 4096),
        (32_768 - 4096, 4096),
        (32_768 - 4095, 2047),
        (32_768 - 2000, 1000),
        (32_768 - 1024, 512),
        (32_768 - 1000, 512),
        (40_000, 512),
    ],
)
def test_results_shrink_to_half_of_what_is_left_and_never_below_512(used: int, allowed: int) -> None:
    assert Rules().result_allowance(used) == allowed


@pytest.mark.parametrize(
    ("used", "prompt", "cap"),
    [
        (1_000, 1_000, 4096),
        (32_768 - 4096, 32_768 - 4196, 4096),
        (30_000, 30_000, 2_668),
        (30_000, 30_160, 2_508),
        (32_600, 32_600, 256),
        (40_000, 40_000, 256),
    ],
)
def test_the_reply_is_capped_by_what_the_window_leaves_with_a_floor_of_256(used: int, prompt: int, cap: int) -> None:
    assert Rules().reply_cap(used, prompt) == cap


def test_the_usage_line_shows_the_soft_threshold_the_window_and_separators_as_configured() -> None:
    line = Rules().wording.usage_line
    assert Rules().say(line, 12_345) == "[Token usage: 12345/16384]"
    assert Rules(usage_shown="window").say(line, 12_345) == "[Token usage: 12345/32768]"
    assert Rules(usage_shown="window", thousands=True).say(line, 12_345) == "[Token usage: 12,345/32,768]"


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def stop_reason(meter: Meter) -> str | None:
    try:
        meter.admit()
    except StopSignal as stop:
        return stop.reason
    return None


def test_a_run_ends_at_each_of_its_four_limits() -> None:
    clock = Clock()
    limits = Limits(turns=2, tool_calls=3, tokens=100, seconds=50)
    turns, calls, tokens, seconds = (Meter(limits, clock) for _ in range(4))
    turns.asked(Action(), 1.0)
    assert stop_reason(turns) is None
    turns.asked(Action(), 1.0)
    assert stop_reason(turns) == "turn-limit"
    calls.acted(2, 1.0, fruitful=True)
    assert (stop_reason(calls), calls.calls_left) == (None, 1)
    calls.acted(1, 1.0, fruitful=True)
    assert stop_reason(calls) == "tool-call-limit"
    tokens.asked(Action(prompt_tokens=60, completion_tokens=39), 1.0)
    assert stop_reason(tokens) is None
    tokens.completion_tokens += 1
    assert stop_reason(tokens) == "token-limit"
    clock.now += 39.9
    assert stop_reason(seconds) is None
    clock.now += 0.2
    assert stop_reason(seconds) == "time-limit"
    assert not seconds.out_of_time
    clock.now += 10
    assert seconds.out_of_time


def test_fruitless_turns_count_only_in_a_row() -> None:
    meter = Meter(Limits(strikes=3))
    for fruitful in (False, False, True, False, False):
        meter.acted(1, 0.1, fruitful)
    with pytest.raises(LimitReached, match="stalled"):
        meter.acted(1, 0.1, fruitful=False)


def test_only_calls_that_ran_beside_others_count_as_parallel() -> None:
    meter = Meter(Limits())
    meter.acted(1, 0.1, fruitful=True)
    meter.acted(3, 0.1, fruitful=True)
    assert (meter.tool_calls, meter.parallel_calls) == (4, 3)
