"""Scores a handful of chunks against a text by the words they share; for where no reranker runs. Knows no index."""

from collections import Counter
from collections.abc import Sequence

from hopnode.worker.corpus.analyzer import analyze
from hopnode.worker.corpus.bm25 import rarity, term_score
from hopnode.worker.corpus.records import Chunk

ANY_LENGTH = 1.0
"""Chunks are about equally long, so each counts as one of mean length."""


def by_overlap(query: str, chunks: Sequence[Chunk]) -> list[float]:
    """A score for each chunk, 0 where no word is shared: words that few of the chunks hold weigh more, repetition adds
    less and less."""
    wanted = set(analyze(query, query=True))
    counts = [Counter(term for term in analyze(chunk.text) if term in wanted) for chunk in chunks]
    holders = Counter(term for count in counts for term in count)
    weight = {term: rarity(len(chunks), held) for term, held in holders.items()}
    return [
        sum(term_score(weight[term], float(tf), ANY_LENGTH, ANY_LENGTH) for term, tf in count.items())
        for count in counts
    ]
