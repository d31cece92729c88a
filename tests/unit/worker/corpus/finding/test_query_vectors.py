from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from hopnode.worker.corpus.finding.search import KEPT_QUERIES, QueryVectors
from hopnode.worker.errors import ModelUnavailable


class CountingEmbedder:
    """Gives the length of a text, and counts how often it was asked; what begins with `!` cannot be embedded."""

    id = "counting"
    dimension = 1

    def __init__(self) -> None:
        self.asked = 0

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([[len(text)] for text in texts], np.float32)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        self.asked += 1
        if text.startswith("!"):
            raise ModelUnavailable("It is away.")
        return self.embed([text])[0]


def test_a_query_is_embedded_once() -> None:
    embedder, vectors = CountingEmbedder(), QueryVectors()
    assert [float(vectors.get(embedder, text)[0]) for text in ("ab", "abc", "ab")] == [2, 3, 2]
    assert embedder.asked == 2


def test_a_failure_is_not_kept() -> None:
    embedder, vectors = CountingEmbedder(), QueryVectors()
    for _ in range(2):
        with pytest.raises(ModelUnavailable):
            vectors.get(embedder, "!")
    assert embedder.asked == 2


def test_what_was_not_asked_for_lately_is_forgotten() -> None:
    embedder, vectors = CountingEmbedder(), QueryVectors()
    for number in range(KEPT_QUERIES + 1):
        vectors.get(embedder, str(number))
        vectors.get(embedder, "0")
    vectors.get(embedder, "1")
    assert embedder.asked == KEPT_QUERIES + 2
