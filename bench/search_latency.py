"""How long searches take at scale, beside what raw Chroma and raw FTS5 take for the same in the same run.

    python bench/search_latency.py --chunks 10000 --data-dir /tmp/bench-10k
    python bench/search_latency.py --chunks 100000 --data-dir /tmp/bench-100k --json results/latency-100k.json

Real text (see `real_text.py`). Documents get vectors of hashed words, since embedding 100,000 passages takes hours on a
small machine; every query is embedded by the real MiniLM all the same and pays for it. A folder that is kept is filled once.
"""

import argparse
import random
import sqlite3
import threading
import time
from pathlib import Path

import numpy as np
from node import busy, keep, machine, node, say, summary, times
from real_text import PER_FILE, passages

from hopnode.worker.corpus.analyzer import analyze
from hopnode.worker.corpus.sqlite import outbox
from hopnode.worker.corpus.sqlite.reading import collection_row
from hopnode.worker.evaluation.dataset import Question
from hopnode.worker.evaluation.trial import Asking, Trial, workspace_of
from hopnode.worker.inference.embedding.embedder import MiniLmEmbedder

COLLECTION = "real-text"
CHUNK_CHARACTERS = 800
ENOUGH_FILES = 100_000
"""Passages that a machine has with the usual number of a file; for more, many more of each file are taken: few are long."""
LEG = 50
ROUNDS = 4


class HashedWords:
    """Each word of a text is a fixed random direction; a text is their sum. Queries cost what MiniLM costs."""

    id = "hashed-words"
    dimension = 384

    def __init__(self):
        self._real = MiniLmEmbedder()
        self._known = {}
        self._queries = {}

    def _direction(self, term):
        if term not in self._known:
            seed = int.from_bytes(term.encode()[:16].ljust(16, b"\0"), "big")
            self._known[term] = np.random.default_rng(seed).standard_normal(self.dimension, np.float32)
        return self._known[term]

    def embed(self, texts):
        rows = np.stack([sum((self._direction(term) for term in set(analyze(text))), np.zeros(384)) for text in texts])
        return (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)).astype(np.float32)

    def embed_query(self, text):
        self._real.embed_query(text)
        if text not in self._queries:
            self._queries[text] = self.embed([text])[0]
        return self._queries[text]


def questions(texts, count, seed):
    """Seven telling words of a passage each, in their order: about as long as what people ask."""
    draw = random.Random(seed)
    asked = []
    for text in draw.sample(texts, count):
        words = [word for word in text.text.split() if len(word) > 3 and word.isalpha()]
        start = draw.randrange(max(1, len(words) - 7))
        asked.append(Question(text.id, " ".join(words[start : start + 7]) or text.title))
    return asked


class Raw:
    """Chroma and FTS5 by themselves, on the files of the node."""

    def __init__(self, runtime, trial, folder):
        workspace = workspace_of(runtime)
        self._vectors = runtime.corpora._parts.vectors
        with runtime.corpora.open(workspace)._store.read() as connection:
            generation = collection_row(connection, trial.collection.id).generation
        self._name = outbox.vector_name(workspace, trial.collection.id, generation)
        self._file = folder / "workspaces" / workspace / "corpus.db"
        self._own = threading.local()

    def chroma(self, vector):
        assert self._vectors.query(self._name, vector, LEG)

    def fts5(self, question):
        if not hasattr(self._own, "connection"):
            self._own.connection = sqlite3.connect(f"file:{self._file}?mode=ro", uri=True)
        match = " OR ".join(f'"{term}"' for term in dict.fromkeys(analyze(question.text, query=True)))
        statement = f"SELECT rowid FROM fts_1 WHERE fts_1 MATCH ? ORDER BY rank LIMIT {LEG}"
        self._own.connection.execute(statement, (match,)).fetchall()


def in_rounds(works, at_once):
    """Each work on a part of its items, and all over again with the next part: what else the machine does at a moment
    then touches all alike, and not the one whose turn it is."""
    taken = {name: [] for name in works}
    seconds = dict.fromkeys(works, 0.0)
    for work, items in works.values():
        work(items[0])
    for number in range(ROUNDS):
        for name, (work, items) in works.items():
            if part := items[number::ROUNDS]:
                some, lasted = times(work, part, at_once)
                taken[name] += some
                seconds[name] += lasted
    return [(name, summary(taken[name], seconds[name])) for name in works]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=10_000)
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 6])
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    per_file = PER_FILE * max(1, options.chunks // ENOUGH_FILES) ** 2
    texts = passages(options.chunks, shortest=CHUNK_CHARACTERS, per_file=per_file)
    embedder = HashedWords()
    with node(options.data_dir) as runtime:
        folder = runtime.settings.root
        runtime.corpora._parts.embedders._loaded[embedder.id] = embedder
        trial = Trial.make(runtime, workspace_of(runtime), COLLECTION, embedder.id)
        filled = trial.fill(texts, 0, lambda: None)
        corpus = runtime.corpora.open(workspace_of(runtime))
        runtime.corpora.drain_vectors()
        stats = corpus.stats(trial.collection)
        say(
            f"{machine()}, {busy()}\n"
            f"{stats.chunks:,} chunks of {stats.tokens / stats.chunks:.0f} tokens; filled in {filled.seconds:.0f} s"
        )
        asked = questions(texts, options.queries, 1)
        words = sorted({max(one.text.split(), key=len) for one in asked})
        documents = [one.id for one in corpus.documents(trial.collection, limit=options.queries)]
        raw, scope = Raw(runtime, trial, folder), [trial.collection]
        works = {
            "raw Chroma, 50 nearest": (raw.chroma, [embedder.embed_query(one.text) for one in asked]),
            "raw FTS5, 50 best": (raw.fts5, asked),
            "embedding the query": (lambda one: embedder.embed_query(one.text), asked),
            "search tool, 50 hits": (lambda one: corpus.search(scope, one.text, k=50, dense=50, lexical=50), asked),
            "one shot, 10 passages": (lambda one: trial.search(one, Asking("one_shot", top_k=10)), asked),
            "grep, a word": (lambda word: corpus.grep(scope, rf"\b{word}\b"), words),
            "grep, no match": (lambda word: corpus.grep(scope, f"{word}qqq"), words),
            "read a document": (lambda document: corpus.read(scope, document), documents),
            "offline agent, 10 passages": (
                lambda one: trial.search(one, Asking("agent", top_k=10)),
                asked[: options.queries // 4],
            ),
        }
        result = {"machine": f"{machine()}, {busy()}", "chunks": stats.chunks, "at": time.time(), "rows": []}
        for at_once in options.at_once:
            say(f"\n{at_once} at once{'':24}     p50 ms     p95 ms     per s   ÷ Chroma")
            base = None
            for name, found in in_rounds(works, at_once):
                base = base or found["p50"]
                ratio = found["p50"] / base
                say(f"{name:30} {found['p50']:12.1f} {found['p95']:10.1f} {found['per_second']:9.1f} {ratio:10.2f}")
                result["rows"].append({"what": name, "at_once": at_once, **found, "ratio": ratio})
    keep(options.json, result)


if __name__ == "__main__":
    main()
