from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from support.data.corpora import CollectionBook, WordEmbedder, open_corpora

from hopnode.worker.corpus.corpus import Corpora, Corpus
from hopnode.worker.corpus.vectors.chroma import EmbeddedChroma, Vectors
from hopnode.worker.inference.embedding.embedder import Embedders


@pytest.fixture
def book() -> CollectionBook:
    return CollectionBook()


@pytest.fixture
def embedder() -> WordEmbedder:
    return WordEmbedder()


@pytest.fixture
def open_node(tmp_path: Path, book: CollectionBook, embedder: WordEmbedder) -> Generator[Callable[..., Corpora]]:
    """Opens corpora over the test's folder; whatever is open at the end is closed."""
    opened: list[Corpora] = []

    def make(vectors: Vectors | None = None, root: Path = tmp_path) -> Corpora:
        corpora = open_corpora(
            root, vectors or EmbeddedChroma(root / "chroma"), book, Embedders(extra=[embedder]), max_chunk_tokens=40
        )
        opened.append(corpora)
        return corpora

    yield make
    for corpora in opened:
        corpora.close()


@pytest.fixture
def corpora(open_node: Callable[..., Corpora]) -> Corpora:
    return open_node()


@pytest.fixture
def corpus(corpora: Corpora) -> Corpus:
    return corpora.open("w1")
