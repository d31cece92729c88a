"""The two things that differ between asyncio and threads: napping, and work that a cancelled caller must not lose."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

nap: Callable[[float], Awaitable[None]] = asyncio.sleep

GIVING_UP = (Exception, KeyboardInterrupt, SystemExit, asyncio.CancelledError)
"""How a caller leaves a call before its end."""

_at_work: set[asyncio.Task[None]] = set()


async def undisturbed(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Does the work to its end, also when the caller, who has been cancelled already, is cancelled again."""
    task = asyncio.create_task(work())
    _at_work.add(task)
    task.add_done_callback(_at_work.discard)
    await asyncio.shield(task)
