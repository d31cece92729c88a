"""The vectors of the last queries: one search asks for that of its question several times. Keeps nothing that failed."""

import threading
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from hopnode.worker.inference.embedding.embedder import Embedder

KEPT_QUERIES = 64
"""Enough for the searches that run at the same time."""


class QueryVectors:
    """Remembers by embedder and text; safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str], NDArray[np.float32]] = OrderedDict()

    def get(self, embedder: Embedder, query: str) -> NDArray[np.float32]:
        """The unit vector of a query; raises what the embedder raises."""
        key = (embedder.id, query)
        with self._lock:
            if (known := self._known.get(key)) is not None:
                self._known.move_to_end(key)
                return known
        vector = embedder.embed_query(query)
        with self._lock:
            self._known[key] = vector
            while len(self._known) > KEPT_QUERIES:
                self._known.popitem(last=False)
        return vector
