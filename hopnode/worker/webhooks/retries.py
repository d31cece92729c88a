"""What an answer means for a delivery, and when the next try is due; no network and no table."""

import random
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from hopnode.worker.store.webhooks.outbox import Outcome

DELAYS = (1, 5, 30, 120, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""Seconds from each failed try to the next; the first try is at once. From 300 on, those that the specification of Standard
Webhooks suggests. The quick ones before it are for an n8n Wait node, which answers 404 or 409 until it has stored its state."""

EARLY_TRIES = 5
"""A 404 within the first tries, about three minutes, may be such a node; later it is a wrong address."""

JITTER = 0.2
_LONGEST_WAIT = 86_400.0
_TRY_AGAIN = frozenset({408, 409, 425, 429})
_STARTING_UP = b"n8n is starting up"


@dataclass(frozen=True)
class Verdict:
    """What follows from an attempt; `error` is a sentence for the log of attempts, None for a success."""

    outcome: Outcome
    delay_seconds: float = 0.0
    error: str | None = None


def judge_answer(status: int, body: bytes, retry_after: str | None, tried: int, now: float) -> Verdict:
    """The verdict over an answer to try number `tried` (from 1) of a round; `body` is its beginning."""
    if 200 <= status < 300:
        if _STARTING_UP in body:
            return try_again("The receiver says that n8n is starting up.", tried)
        return Verdict(Outcome.DELIVERED)
    error = f"The receiver answered {status}."
    if status == 410:
        return Verdict(Outcome.GONE, error=f"{error} It wants nothing any more.")
    if 300 <= status < 400:
        return Verdict(Outcome.DEAD, error=f"{error} Redirects are not followed: give the final URL.")
    if status >= 500 or status in _TRY_AGAIN or (status == 404 and tried < EARLY_TRIES):
        return try_again(error, tried, _seconds(retry_after, now))
    return Verdict(Outcome.DEAD, error=error)


def try_again(error: str, tried: int, at_least: float = 0.0) -> Verdict:
    """The next try by the schedule, or none when all were made. `at_least` are the seconds that the receiver asked for."""
    if tried > len(DELAYS):
        return Verdict(Outcome.DEAD, error=f"{error} All {len(DELAYS) + 1} tries were made.")
    delay = DELAYS[tried - 1] * random.uniform(1, 1 + JITTER)  # noqa: S311 - spreads load, guards nothing
    return Verdict(Outcome.RETRY, max(delay, min(at_least, _LONGEST_WAIT)), error)


def _seconds(retry_after: str | None, now: float) -> float:
    """RFC 9110, section 10.2.3: seconds or a date; anything else asks for nothing."""
    text = (retry_after or "").strip()
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    try:
        then = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    return max(0.0, (then - datetime.fromtimestamp(now, UTC)).total_seconds())
