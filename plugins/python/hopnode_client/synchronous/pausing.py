"""The two things that differ between threads and asyncio: napping, and work that a cancelled caller must not lose."""

import time
from collections.abc import Callable

nap: Callable[[float], None] = time.sleep

GIVING_UP = (Exception, KeyboardInterrupt, SystemExit)
"""How a caller leaves a call before its end."""


def undisturbed(work: Callable[[], None]) -> None:
    """Does the work: in a thread nobody is cancelled twice."""
    work()
