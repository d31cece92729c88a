"""Waiting on the server's side until a job is done: event-loop naps between short looks at the database.

A waiting request holds no thread, so any number of them leaves the thread pool to the routes; all of them end at once
when the server stops. Knows neither jobs nor HTTP routes beyond the `Prefer` header.
"""

import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import anyio
from starlette.concurrency import run_in_threadpool

T = TypeVar("T")

FIRST_NAP_SECONDS = 0.05
LONGEST_NAP_SECONDS = 0.2
_GROWTH = 1.3
_PREFERENCE = re.compile(r'\s*wait\s*=\s*"?(\d+(?:\.\d+)?)"?\s*', re.IGNORECASE)


def naps() -> Iterator[float]:
    """Seconds to sleep between two looks: short at first, since most answers that come at all come soon."""
    nap = FIRST_NAP_SECONDS
    while True:
        yield nap
        nap = min(nap * _GROWTH, LONGEST_NAP_SECONDS)


async def wait_until(
    look: Callable[[], T],
    done: Callable[[T], bool],
    *,
    seconds: float,
    stopping: threading.Event,
    gone: Callable[[], Awaitable[bool]],
) -> T:
    """What `look` (called in a thread) last saw: when `done` says so, after `seconds`, when the caller has `gone`, or
    when the server stops, whichever comes first.
    """
    until = time.monotonic() + seconds
    for nap in naps():
        seen = await run_in_threadpool(look)
        left = until - time.monotonic()
        if done(seen) or left <= 0 or stopping.is_set() or await gone():
            return seen
        await anyio.sleep(min(nap, left))
    raise AssertionError("naps() has no end")


def preferred_wait(header: str | None) -> float | None:
    """The seconds of `Prefer: wait=n` (RFC 7240); None where the header does not ask for it in this form."""
    for preference in (header or "").split(","):
        if found := _PREFERENCE.fullmatch(preference.split(";")[0]):
            return float(found.group(1))
    return None
