"""Vector indexes in Chroma: numbers and vectors under a name, nearest first. No text, no filter, no workspace is known here.

Every error of Chroma leaves this file as `VectorsUnavailable`, so that a search can go on without it.
"""

import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast
from urllib.parse import urlsplit

import chromadb
import httpx
import numpy as np
from chromadb.api import ClientAPI
from chromadb.api.models.Collection import Collection as ChromaCollection
from chromadb.config import Settings
from chromadb.errors import InternalError, NotFoundError
from numpy.typing import NDArray

from hopnode.worker.corpus.folder_lock import FolderLock
from hopnode.worker.corpus.vectors.chroma_files import damaged_indexes, unused_folders
from hopnode.worker.errors import ConfigurationError, VectorsUnavailable
from hopnode.worker.logs import get_logger

_log = get_logger(__name__)

Matrix = NDArray[np.float32]
Result = TypeVar("Result")

WRITE_BATCH = 500
TIMEOUT_SECONDS = 10.0
# Measured: the defaults (M 16, ef 100) lose a sixth of the neighbours at 100,000 vectors; a small sync threshold lets
# Chroma forget its write-ahead rows, without which every write of every collection gets slower.
_HNSW = {"space": "cosine", "max_neighbors": 32, "ef_construction": 200, "ef_search": 200, "sync_threshold": 100}


class Vectors(Protocol):
    """Named vector indexes. Writing twice is the same as once, so a writer may repeat what it is not sure of."""

    def upsert(self, name: str, ids: Sequence[int], rows: Matrix) -> None:
        """Stores unit vectors, making the index when it does not exist."""
        ...

    def delete(self, name: str, ids: Sequence[int]) -> None:
        """Removes ids; unknown ones and a missing index are nothing special."""
        ...

    def query(self, name: str, vector: Matrix, limit: int) -> list[int]:
        """The nearest ids, nearest first; `VectorsUnavailable` also when the index does not exist."""
        ...

    def count(self, name: str) -> int | None:
        """How many vectors the index holds. Returns None when it does not exist."""
        ...

    def drop(self, name: str) -> None:
        """Removes the index if it exists."""
        ...

    def close(self) -> None:
        """Lets go of files and connections."""
        ...


class _Chroma:
    """What both ways to reach Chroma share; the client is made at first use, so a node starts without Chroma."""

    def __init__(self, connect: Callable[[], ClientAPI]) -> None:
        self._connect = connect
        self._client: ClientAPI | None = None
        self._handles: dict[str, ChromaCollection] = {}
        self._lock = threading.Lock()

    def upsert(self, name: str, ids: Sequence[int], rows: Matrix) -> None:
        """Stores unit vectors, making the index when it does not exist."""

        def write(handle: ChromaCollection) -> None:
            for start in range(0, len(ids), WRITE_BATCH):
                part = slice(start, start + WRITE_BATCH)
                handle.upsert(ids=[str(one) for one in ids[part]], embeddings=cast(Any, rows[part]))

        self._on(name, write, create=True)

    def delete(self, name: str, ids: Sequence[int]) -> None:
        """Removes ids; unknown ones and a missing index are nothing special."""

        def remove(handle: ChromaCollection) -> None:
            for start in range(0, len(ids), WRITE_BATCH):
                handle.delete(ids=[str(one) for one in ids[start : start + WRITE_BATCH]])

        with suppress(_Missing):
            self._on(name, remove)

    def query(self, name: str, vector: Matrix, limit: int) -> list[int]:
        """The nearest ids, nearest first; `VectorsUnavailable` also when the index does not exist."""

        def ask(handle: ChromaCollection) -> list[int]:
            answer = handle.query(query_embeddings=cast(Any, vector[None, :]), n_results=limit, include=["distances"])
            return [int(one) for one in answer["ids"][0]]

        return self._on(name, ask)

    def count(self, name: str) -> int | None:
        """How many vectors the index holds. Returns None when it does not exist."""
        try:
            return self._on(name, lambda handle: handle.count())
        except _Missing:
            return None

    def drop(self, name: str) -> None:
        """Removes the index if it exists."""
        with self._lock:
            self._handles.pop(name, None)
        with suppress(_Missing):
            self._call(lambda client: client.delete_collection(name))

    def _let_go_if_moved(self) -> bool:
        """After a failure: whether Chroma is somewhere else by now, so that the call may be made again."""
        return False

    def close(self) -> None:
        """Lets go of files and connections."""
        with self._lock:
            client, self._client, self._handles = self._client, None, {}
        if client is not None:
            for session in _sessions(client):
                session.close()  # Chroma's own close leaves its connections open
            cast(Any, client).close()

    def _on(self, name: str, action: Callable[[ChromaCollection], Result], *, create: bool = False) -> Result:
        try:
            return self._call(lambda client: action(self._handle(client, name, create)))
        except _Missing:
            with self._lock:
                known = self._handles.pop(name, None)
            if known is None:
                raise
        # The index was dropped and made again behind our handle: once more with a fresh one.
        return self._call(lambda client: action(self._handle(client, name, create)))

    def _handle(self, client: ClientAPI, name: str, create: bool) -> ChromaCollection:
        with self._lock:
            if found := self._handles.get(name):
                return found
        if create:
            handle = client.get_or_create_collection(
                name, embedding_function=None, configuration=cast(Any, {"hnsw": _HNSW})
            )
        else:
            handle = client.get_collection(name, embedding_function=None)
        with self._lock:
            self._handles[name] = handle
        return handle

    def _call(self, action: Callable[[ClientAPI], Result]) -> Result:
        try:
            return action(self._connected())
        except NotFoundError as error:
            raise _Missing("The vector index does not exist yet.") from error
        except (VectorsUnavailable, ConfigurationError):
            raise
        except InternalError as error:
            kind = VectorsDamaged if _DAMAGED in str(error) else VectorsUnavailable
            raise kind(f"Chroma could not answer (InternalError): {_short(error)}") from error
        except Exception as error:
            if self._let_go_if_moved():
                return self._call(action)
            raise VectorsUnavailable(f"Chroma could not answer ({type(error).__name__}): {_short(error)}") from error

    def _connected(self) -> ClientAPI:
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            return self._client


class _Missing(VectorsUnavailable):
    """The named index does not exist."""


class VectorsDamaged(VectorsUnavailable):
    """Chroma cannot load or write the files of the named index: it must be built again."""


_DAMAGED = "hnsw segment"


def mend(folder: Path) -> None:
    """Drops the indexes that a crash left half written: an index that is missing is built again. Then removes the files of
    dropped ones, which Chroma keeps for ever. Only the folder's owner may call it, before anybody opens the folder."""
    if damaged := damaged_indexes(folder):
        _log.warning("vector_files_damaged", folder=str(folder), indexes=damaged)
        _drop(folder, damaged)
    for unused in unused_folders(folder):
        shutil.rmtree(unused, ignore_errors=True)


def _drop(folder: Path, names: Sequence[str]) -> None:
    chroma = _Chroma(lambda: _persistent(folder))
    try:
        for name in names:
            chroma.drop(name)  # does not load the index
    except VectorsUnavailable as error:  # Chroma will say it again, to those who ask
        _log.warning("vector_files_not_mended", error=str(error))
    finally:
        chroma.close()


def _persistent(folder: Path) -> ClientAPI:
    return chromadb.PersistentClient(str(folder), settings=Settings(anonymized_telemetry=False))


class EmbeddedChroma(_Chroma):
    """Chroma inside this process. One process per folder: `DataFolderInUse` when another one holds it."""

    def __init__(self, folder: Path) -> None:
        self._folder_lock = FolderLock(folder, "embedded node")
        mend(folder)
        super().__init__(lambda: _persistent(folder))

    def close(self) -> None:
        """Closes Chroma and gives the folder free."""
        super().close()
        self._folder_lock.release()


class HttpChroma(_Chroma):
    """A Chroma server, ours or someone else's, at `http(s)://host:port`.

    An address that may change is given as a function; it is asked again when the server does not answer, and raises
    `VectorsUnavailable` while there is none.
    """

    def __init__(self, url: str | Callable[[], str], timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._address = (lambda: url) if isinstance(url, str) else url
        self._timeout = timeout_seconds
        if isinstance(url, str):
            _parse(url)
        self._connected_to = ""
        super().__init__(self._connect_http)

    def _let_go_if_moved(self) -> bool:
        with suppress(VectorsUnavailable):
            if self._connected_to and self._address() != self._connected_to:
                self._connected_to = ""
                self.close()
                return True
        return False

    def _connect_http(self) -> ClientAPI:
        address = self._address()
        host, port, secure = _parse(address)
        # The client's constructor talks to the server without a time limit: ask first whether anybody answers.
        origin = f"{'https' if secure else 'http'}://{host}:{port}"
        httpx.get(f"{origin}/api/v2/heartbeat", timeout=httpx.Timeout(self._timeout, connect=5)).raise_for_status()
        client = chromadb.HttpClient(host, port, ssl=secure, settings=Settings(anonymized_telemetry=False))
        self._connected_to = address
        # The client sets no time limit and offers no setting for one; a hung server must not hang every search.
        for session in _sessions(client):
            session.timeout = httpx.Timeout(self._timeout, connect=5)
        return client


def _parse(url: str) -> tuple[str, int, bool]:
    """Host, port and whether the connection is encrypted."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError(f"HOPNODE_CHROMA_URL must look like http://host:port, not {url!r}.")
    secure = parts.scheme == "https"
    return parts.hostname, parts.port or (443 if secure else 8000), secure


def _sessions(client: ClientAPI) -> list[httpx.Client]:
    """The connections behind a client over HTTP: its own, and those of the client it keeps for tenants."""
    parts: list[Any] = [client, getattr(client, "_admin_client", None)]
    found = [getattr(getattr(part, "_server", None), "_session", None) for part in parts]
    return [session for session in found if isinstance(session, httpx.Client)]


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
