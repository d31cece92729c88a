"""The client of a node: who am I, and searches; the rooms of the other things hang on it. Knows no rule of the node."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Self, Unpack

from hopnode_client.asynchronous.collections import AsyncCollections
from hopnode_client.asynchronous.documents import AsyncDocuments
from hopnode_client.asynchronous.evaluations import AsyncEvaluations
from hopnode_client.asynchronous.pausing import GIVING_UP, nap, undisturbed
from hopnode_client.asynchronous.sources import AsyncSources, AsyncSyncs
from hopnode_client.asynchronous.transport import AsyncTransport
from hopnode_client.errors import Conflict, HopnodeError, NoAnswer, ProblemError, WaitTimedOut, succeeded
from hopnode_client.events import EventReader, Reconnections
from hopnode_client.options import SearchOptions, search_body
from hopnode_client.records import Whoami
from hopnode_client.requests import POLL_SECONDS, Request, idempotency, path_of, poll
from hopnode_client.results import Search, Step, Trajectory

FAREWELL_SECONDS = 5.0
"""What a caller who gives up still waits for the node to hear of it."""


class AsyncHopnode:
    """A node, for asyncio. Use it as `async with AsyncHopnode(url, key) as node:`, or call `aclose` at the end.

    `base_url` is the root of the node; `timeout` is the seconds for one request, without what the node waits on purpose.
    Raises Misuse for an address or key that cannot be one. All methods raise the errors of `hopnode_client.errors`.
    """

    def __init__(self, base_url: str, key: str, *, timeout: float = 30.0) -> None:
        self._transport = AsyncTransport(base_url, key, timeout)
        self.collections = AsyncCollections(self._transport)
        self.documents = AsyncDocuments(self._transport)
        self.sources = AsyncSources(self._transport)
        self.syncs = AsyncSyncs(self._transport)
        self.evaluations = AsyncEvaluations(self._transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections; the client cannot be used any more."""
        await self._transport.aclose()

    async def whoami(self) -> Whoami:
        """The workspace and scopes of the key, and the version of the node."""
        return await self._transport.fetch(Whoami, Request("GET", "/v1/whoami"))

    async def search(
        self,
        query: str,
        collection: str | Sequence[str],
        *,
        timeout: float = 300.0,
        idempotency_key: str | None = None,
        **options: Unpack[SearchOptions],
    ) -> Search:
        """Starts a search and waits for its result, for `timeout` seconds in all.

        A caller who gives up (timeout, Ctrl-C, cancelled task, lost connection) cancels the search, also where others wait
        for the same one by its `idempotency_key`. Raises JobFailed, and WaitTimedOut when the time is over.
        """
        until = time.monotonic() + timeout
        start = _start(query, collection, idempotency_key, options)
        search = None
        try:
            search = await self._transport.fetch(Search, start.preferring(min(timeout, POLL_SECONDS)), until)
            search = await self._transport.until_ended(search, partial(poll, path_of("searches", search.id)), until)
        except GIVING_UP as error:
            if search or not isinstance(error, ProblemError):
                await undisturbed(partial(self._take_back, start, search))
            raise
        return succeeded(search if search.ended else await self._stop(search, timeout))

    async def start_search(
        self,
        query: str,
        collection: str | Sequence[str],
        *,
        idempotency_key: str | None = None,
        **options: Unpack[SearchOptions],
    ) -> Search:
        """Starts a search and returns at once. The same `idempotency_key` and request give the same search again."""
        return await self._transport.fetch(Search, _start(query, collection, idempotency_key, options))

    async def get_search(self, search_id: str) -> Search:
        """The state of a search, and its result once it succeeded."""
        return await self._transport.fetch(Search, Request("GET", path_of("searches", search_id)))

    def list_searches(self, *, page_size: int = 50) -> AsyncIterator[Search]:
        """The searches of the workspace without their results, newest first."""
        return self._transport.items(Search, Request("GET", "/v1/searches", {"limit": page_size}))

    async def wait_for(self, search_id: str, *, timeout: float = 300.0) -> Search:
        """The search once it has succeeded. It is not cancelled when the wait ends without a result.

        Raises JobFailed, and WaitTimedOut when it goes on for longer than `timeout` seconds.
        """
        ask = partial(poll, path_of("searches", search_id))
        return await self._transport.success(await self.get_search(search_id), ask, timeout)

    async def cancel(self, search_id: str) -> Search:
        """Ends a search at once. Raises Conflict when it has ended already."""
        return await self._transport.fetch(Search, _cancel(search_id))

    async def trajectory(self, search_id: str) -> Trajectory:
        """All steps that a search has recorded so far."""
        return await self._transport.fetch(Trajectory, Request("GET", path_of("searches", search_id, "/trajectory")))

    async def stream(self, search_id: str, *, after: int = 0) -> AsyncIterator[Step]:
        """The steps of a search behind the number `after`, each as it comes; ends when the search has ended.

        A connection that breaks off is made again from where it was, without a step lost or repeated. Leaving the loop
        early cancels nothing.
        """
        again = Reconnections()
        while True:
            try:
                async with self._transport.stream(_follow(search_id, after)) as pieces:
                    reader = EventReader()
                    async for piece in pieces:
                        for event in reader.feed(piece):
                            if event.id is None:
                                return
                            step = Step.model_validate_json(event.data)
                            after = step.seq
                            again.progress()
                            yield step
                pause = again.pause_after(NoAnswer("The stream of events ended before the search did."))
            except HopnodeError as error:
                pause = again.pause_after(error)
            await nap(pause)

    async def _stop(self, search: Search, seconds: float) -> Search:
        """What became of a search whose time is over: its result, if it ended in this very moment after all."""
        try:
            search = await self.cancel(search.id)
        except Conflict:
            return await self.get_search(search.id)
        raise WaitTimedOut(search, seconds, "It was cancelled; give it more time with `timeout`.")

    async def _take_back(self, start: Request, search: Search | None) -> None:
        """Cancels what `start` may have started. Its idempotency key tells which search that is, or makes one to cancel."""
        until = time.monotonic() + FAREWELL_SECONDS
        with suppress(HopnodeError):
            search = search or await self._transport.fetch(Search, start, until)
            await self._transport.send(_cancel(search.id), until)


def _start(query: str, collection: str | Sequence[str], key: str | None, options: SearchOptions) -> Request:
    return Request("POST", "/v1/searches", json=search_body(query, collection, options), headers=idempotency(key))


def _cancel(search_id: str) -> Request:
    return Request("POST", path_of("searches", search_id, "/cancel"), repeatable=False)


def _follow(search_id: str, after: int) -> Request:
    headers = {"Last-Event-ID": str(after), "Accept": "text/event-stream"}
    return Request("GET", path_of("searches", search_id, "/events"), headers=headers)
