"""The asynchronous client as a test can call it: every coroutine is run to its end, every asynchronous iterator is drawn."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Any


class OnLoop:
    """An object of the asynchronous client, driven by one event loop."""

    def __init__(self, driven: Any, runner: asyncio.Runner) -> None:
        self._driven, self._runner = driven, runner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._driven, name)
        return self._call(found) if callable(found) else OnLoop(found, self._runner)

    def _call(self, method: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            made = method(*arguments, **named)
            if inspect.isasyncgen(made):
                return self._draw(made)
            return self._runner.run(made) if inspect.iscoroutine(made) else made

        return call

    def _draw(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        async def following() -> Any:
            return await anext(items)

        while True:
            try:
                item = self._runner.run(following())
            except StopAsyncIteration:
                return
            yield item
