"""Sources of a collection, and the syncs that bring their documents."""

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, Unpack

from hopnode_client.asynchronous.transport import AsyncTransport
from hopnode_client.options import SourceChanges
from hopnode_client.records import Source, Sync
from hopnode_client.requests import Request, given, path_of, poll


class AsyncSources:
    """Configured origins of documents."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self,
        collection: str,
        kind: str,
        name: str,
        config: Mapping[str, Any],
        *,
        sync_every_seconds: int | None = None,
    ) -> Source:
        """Makes a source; `config` depends on the kind (docs/sources.md). The node takes a look at it first.

        Raises SourceCheckFailed when a sync would not work. Without `sync_every_seconds` it is synced only when asked.
        """
        body = given(kind=kind, name=name, config=config, sync_every_seconds=sync_every_seconds)
        path = path_of("collections", collection, "/sources")
        return await self._transport.fetch(Source, Request("POST", path, json=body, repeatable=False))

    async def get(self, source_id: str) -> Source:
        """A source."""
        return await self._transport.fetch(Source, Request("GET", path_of("sources", source_id)))

    def list(self, collection: str) -> AsyncIterator[Source]:
        """The sources of a collection."""
        return self._transport.items(Source, Request("GET", path_of("collections", collection, "/sources")))

    async def update(self, source_id: str, **changes: Unpack[SourceChanges]) -> Source:
        """Changes what is given, and leaves the rest."""
        return await self._transport.fetch(Source, Request("PATCH", path_of("sources", source_id), json=changes))

    async def delete(self, source_id: str) -> None:
        """Deletes a source; the documents that it brought stay."""
        await self._transport.send(Request("DELETE", path_of("sources", source_id)))


class AsyncSyncs:
    """Runs of sources."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def start(self, source_id: str, *, confirm_deletes: bool = False) -> Sync:
        """Starts a run of a source and returns at once. Raises Conflict while another one is queued or running."""
        body = {"confirm_deletes": confirm_deletes}
        path = path_of("sources", source_id, "/syncs")
        return await self._transport.fetch(Sync, Request("POST", path, json=body, repeatable=False))

    async def get(self, sync_id: str) -> Sync:
        """The state of a sync and its counts so far."""
        return await self._transport.fetch(Sync, Request("GET", path_of("syncs", sync_id)))

    def list(self, source_id: str, *, limit: int = 50) -> AsyncIterator[Sync]:
        """The newest runs of a source, the newest first."""
        return self._transport.items(Sync, Request("GET", path_of("sources", source_id, "/syncs"), {"limit": limit}))

    async def wait_for(self, sync_id: str, *, timeout: float = 3600.0) -> Sync:
        """The sync once it has succeeded. It is not cancelled when the wait ends without a result.

        Raises JobFailed, and WaitTimedOut when it goes on for longer than `timeout` seconds.
        """
        ask = partial(poll, path_of("syncs", sync_id))
        return await self._transport.success(await self.get(sync_id), ask, timeout)

    async def cancel(self, sync_id: str) -> Sync:
        """Ends a sync; what it has brought stays. Raises Conflict when it has ended already."""
        path = path_of("syncs", sync_id, "/cancel")
        return await self._transport.fetch(Sync, Request("POST", path, repeatable=False))
