"""Collections of a node."""

from collections.abc import Iterator, Mapping
from typing import Any, Unpack

from hopnode_client.options import CollectionChanges
from hopnode_client.records import Collection
from hopnode_client.requests import Request, given, path_of
from hopnode_client.synchronous.transport import Transport


class Collections:
    """Documents that are searched together. Names have small letters, digits, dots, hyphens and underscores."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> Iterator[Collection]:
        """All collections of the workspace, without what they hold."""
        return self._transport.items(Collection, Request("GET", "/v1/collections"))

    def create(
        self,
        name: str,
        *,
        description: str | None = None,
        embedder: str | None = None,
        dense_weight: float | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Collection:
        """Makes an empty collection. Raises Conflict when the name is taken."""
        body = given(
            name=name, description=description, embedder=embedder, dense_weight=dense_weight, metadata=metadata
        )
        return self._transport.fetch(Collection, Request("POST", "/v1/collections", json=body, repeatable=False))

    def get(self, name: str) -> Collection:
        """A collection with what it holds (`stats`)."""
        return self._transport.fetch(Collection, Request("GET", path_of("collections", name)))

    def update(self, name: str, **changes: Unpack[CollectionChanges]) -> Collection:
        """Changes what is given, and leaves the rest."""
        return self._transport.fetch(Collection, Request("PATCH", path_of("collections", name), json=changes))

    def delete(self, name: str) -> None:
        """Deletes a collection with its documents and sources; searches that ran keep their results."""
        self._transport.send(Request("DELETE", path_of("collections", name)))
