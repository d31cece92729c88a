from collections.abc import Generator
from pathlib import Path

import pytest
from support.data.corpora import CollectionBook, open_corpora

from hopnode.worker.corpus.corpus import Corpus
from hopnode.worker.corpus.vectors.chroma import EmbeddedChroma
from hopnode.worker.searches.space import Space


@pytest.fixture
def book() -> CollectionBook:
    return CollectionBook()


@pytest.fixture
def corpus(tmp_path: Path, book: CollectionBook) -> Generator[Corpus]:
    corpora = open_corpora(tmp_path, EmbeddedChroma(tmp_path / "chroma"), book)
    yield corpora.open("w1")
    corpora.close()


@pytest.fixture
def space(corpus: Corpus, book: CollectionBook) -> Space:
    """An empty collection of a corpus that stands on its own, without a database of jobs."""
    return Space(corpus, [book.make()])
