"""Documents of a collection: text, bytes and files."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hopnode_client.errors import Misuse
from hopnode_client.options import NewDocument, batches
from hopnode_client.records import Document, Outcome, Record
from hopnode_client.requests import Request, given, path_of
from hopnode_client.synchronous.transport import Transport

RAW = "application/octet-stream"
"""Bytes of a kind that the name of the file tells."""


class Documents:
    """A document has a key that you choose, which may hold slashes. Putting it again replaces it."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def put(
        self,
        collection: str,
        key: str,
        text: str,
        *,
        title: str | None = None,
        url: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        media_type: str | None = None,
    ) -> Outcome:
        """Stores a text; `media_type` is `text/plain` or `text/markdown`. When this returns, searches find it."""
        body = given(text=text, title=title, url=url, metadata=metadata, media_type=media_type)
        return self._transport.fetch(Outcome, Request("PUT", _path(collection, key), json=body))

    def put_bytes(
        self,
        collection: str,
        key: str,
        content: bytes,
        *,
        media_type: str | None = None,
        filename: str | None = None,
        title: str | None = None,
        url: str | None = None,
    ) -> Outcome:
        """Stores the content of a file; the media type, the file name or the end of the key says what it is.

        Raises DocumentRejected when it cannot be parsed. Metadata can only be given in a batch (`put_many`).
        """
        if media_type and media_type.partition(";")[0].strip().lower() == "application/json":
            raise Misuse(
                "The content of a JSON file cannot go as application/json, which means a text and its fields.",
                "Leave `media_type` out and let the key or `filename` end in .json.",
            )
        params = given(filename=filename, title=title, url=url)
        headers = {"Content-Type": media_type or RAW}
        path = _path(collection, key)
        return self._transport.fetch(Outcome, Request("PUT", path, params, content=content, headers=headers))

    def put_file(
        self,
        collection: str,
        path: str | Path,
        *,
        key: str | None = None,
        title: str | None = None,
        url: str | None = None,
    ) -> Outcome:
        """Stores a file under its name, or under `key`. Raises OSError when it cannot be read."""
        file = Path(path)
        content = file.read_bytes()
        return self.put_bytes(collection, key or file.name, content, filename=file.name, title=title, url=url)

    def put_many(self, collection: str, documents: Iterable[NewDocument]) -> tuple[Outcome, ...]:
        """Stores any number of documents, in batches that are embedded together, which is faster than one by one.

        Outcomes come in the same order; a document that failed says why in its own and stops no other.
        """
        path = path_of("collections", collection, "/documents:batch")
        outcomes: tuple[Outcome, ...] = ()
        for batch in batches(documents):
            request = Request("POST", path, json={"documents": batch})
            outcomes += (self._transport.fetch(_BatchOutcome, request)).outcomes
        return outcomes

    def get(self, collection: str, key: str, *, text: bool = False) -> Document:
        """The record of a document, on request with its text."""
        params = {"text": "true"} if text else {}
        return self._transport.fetch(Document, Request("GET", _path(collection, key), params))

    def list(self, collection: str, *, page_size: int = 200) -> Iterator[Document]:
        """The documents of a collection by key, without their text."""
        path = path_of("collections", collection, "/documents")
        return self._transport.items(Document, Request("GET", path, {"limit": page_size}))

    def delete(self, collection: str, key: str) -> None:
        """Deletes a document; when this returns, no search finds it."""
        self._transport.send(Request("DELETE", _path(collection, key)))


class _BatchOutcome(Record):
    outcomes: tuple[Outcome, ...]


def _path(collection: str, key: str) -> str:
    return path_of(path_of("collections", collection, "/documents").removeprefix("/v1/"), key, slashes=True)
