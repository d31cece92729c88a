"""Waiting on the server's side until something is done: event-loop naps between short looks at the database.

A waiting caller holds no thread, so any number of them leaves the thread pool to the others. Knows neither jobs nor HTTP.
"""

import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import anyio
from anyio import to_thread

T = TypeVar("T")

FIRST_NAP_SECONDS = 0.05
LONGEST_NAP_SECONDS = 0.2
_GROWTH = 1.3


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
    """Calls `look` in a thread, again and again, until `done` accepts what it saw. Returns the last look. Ends also after
    `seconds`, when the caller has `gone`, and when the server stops.
    """
    until = time.monotonic() + seconds
    for nap in naps():
        seen = await to_thread.run_sync(look)
        left = until - time.monotonic()
        if done(seen) or left <= 0 or stopping.is_set() or await gone():
            return seen
        await anyio.sleep(min(nap, left))
    raise AssertionError("naps() has no end")
