"""Scores a handful of chunks against a text by the words they share; for where no reranker runs. Knows no index."""

import math
from collections import Counter
from collections.abc import Sequence

from hopnode.worker.corpus.analyzer import analyze
from hopnode.worker.corpus.records import Chunk


def by_overlap(query: str, chunks: Sequence[Chunk]) -> list[float]:
    """A score for each chunk, 0 where no word is shared: words that few of the chunks hold weigh more, repetition adds
    less and less (BM25's saturation with k 1.2, without length: chunks are about equally long)."""
    wanted = set(analyze(query, query=True))
    counts = [Counter(term for term in analyze(chunk.text) if term in wanted) for chunk in chunks]
    holders = Counter(term for count in counts for term in count)
    weight = {term: math.log(1 + (len(chunks) - held + 0.5) / (held + 0.5)) for term, held in holders.items()}
    return [sum(weight[term] * 2.2 * tf / (tf + 1.2) for term, tf in count.items()) for count in counts]
