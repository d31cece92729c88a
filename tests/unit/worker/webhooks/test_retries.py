"""What answers mean, and when the next try is due."""

import pytest

from hopnode.worker.store.webhooks.outbox import Outcome
from hopnode.worker.webhooks.retries import DELAYS, EARLY_TRIES, JITTER, judge_answer, try_again

NOW = 1_700_000_000.0


def _judge(status: int, body: bytes = b"", retry_after: str | None = None, tried: int = 1):
    return judge_answer(status, body, retry_after, tried, NOW)


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_a_success_is_delivered(status: int) -> None:
    verdict = _judge(status, b"thanks")
    assert (verdict.outcome, verdict.error) == (Outcome.DELIVERED, None)


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504])
def test_what_may_pass_is_tried_again(status: int) -> None:
    verdict = _judge(status)
    assert verdict.outcome is Outcome.RETRY
    assert str(status) in (verdict.error or "")


@pytest.mark.parametrize("status", [301, 302, 307, 400, 401, 403, 405, 413, 422])
def test_what_stays_wrong_is_dead_at_once(status: int) -> None:
    assert _judge(status).outcome is Outcome.DEAD


def test_a_410_is_the_end_of_the_webhook() -> None:
    assert _judge(410).outcome is Outcome.GONE


def test_a_404_heals_within_the_first_tries_only() -> None:
    outcomes = [_judge(404, tried=tried).outcome for tried in range(1, EARLY_TRIES + 2)]
    assert outcomes == [Outcome.RETRY] * (EARLY_TRIES - 1) + [Outcome.DEAD] * 2
    assert sum(DELAYS[: EARLY_TRIES - 1]) > 120


def test_an_n8n_that_starts_up_says_so_with_a_200_and_is_asked_again() -> None:
    verdict = _judge(200, b"<html>n8n is starting up. Please wait</html>")
    assert verdict.outcome is Outcome.RETRY


def test_the_schedule_rises_to_a_day_and_ends() -> None:
    assert list(DELAYS) == sorted(DELAYS)
    for tried, delay in enumerate(DELAYS, start=1):
        waits = [try_again("no answer", tried).delay_seconds for _ in range(50)]
        assert delay <= min(waits) < max(waits) <= delay * (1 + JITTER)
    last = try_again("no answer", len(DELAYS) + 1)
    assert last.outcome is Outcome.DEAD
    assert "All 13 tries" in (last.error or "")


@pytest.mark.parametrize(
    ("retry_after", "least", "most"),
    [
        ("120", 120, 120),
        ("Tue, 14 Nov 2023 22:15:20 GMT", 120, 120),
        ("999999999999", 86_400, 86_400),
        ("-5", 1, 1.2),
        ("soon", 1, 1.2),
        ("Tue, 14 Nov 2023 22:13:00 GMT", 1, 1.2),
        ("١٢٠", 1, 1.2),
    ],
)
def test_the_receiver_may_ask_for_patience_up_to_a_day(retry_after: str, least: float, most: float) -> None:
    assert least <= _judge(429, retry_after=retry_after).delay_seconds <= most
