"""Measures how much the dense leg should weigh beside the lexical one, per embedder and language.

    python bench/fusion_weights.py DATA_FOLDER CACHE_FOLDER [SET ...]

DATA_FOLDER holds question sets as described in its README (corpus and queries as gzip'd JSON lines; KorQuAD as it
came). Vectors are kept in CACHE_FOLDER. Prints recall@1 and recall@5 for dense weights 0 to 1, best weight last.
"""

import gzip
import json
import sys
from itertools import islice
from pathlib import Path

import numpy as np

from hopnode.worker.corpus.analyzer import analyze
from hopnode.worker.corpus.finding.fusion import Leg, fuse
from hopnode.worker.corpus.sqlite.lexical import RankBm25Index, indexed_text
from hopnode.worker.inference.embedding.embedder import Embedders

WEIGHTS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 1.0)
LEG = 50
MOST_QUESTIONS = 400
LANGUAGES = ("en", "zh", "de", "es", "ru", "ar", "el", "hi", "ro", "th", "tr", "vi")
SETS = {
    "2wiki": ("2wiki-dev-163", None),
    "hotpotqa": ("hotpotqa-train-100", None),
    "musique": ("musique-train-100", None),
    "jaquad": ("jaquad-dev", None),
    "korquad": ("korquad-v1-dev-unmodified", None),
    **{f"xquad-{language}": ("xquad-12lang", language) for language in LANGUAGES},
}
ENGLISH = ("2wiki", "hotpotqa", "musique", "xquad-en")


def lines_of(path):
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def load(folder, language):
    korquad = folder / "KorQuAD_v1.0_dev.json.gz"
    if korquad.exists():
        return load_korquad(korquad)
    corpus = [line for line in lines_of(folder / "corpus.jsonl.gz") if language in (None, line.get("lang"))]
    position = {line["id"]: index for index, line in enumerate(corpus)}
    queries = [line for line in lines_of(folder / "queries.jsonl.gz") if language in (None, line.get("lang"))]
    asked = [(query["question"], {position[one] for one in query["gold"]}) for query in queries]
    return [(line["title"], line["text"]) for line in corpus], asked


def load_korquad(path):
    texts, questions = [], []
    for article in lines_of(path)[0]["data"]:
        for paragraph in article["paragraphs"]:
            texts.append((article["title"], paragraph["context"]))
            questions += [(qa["question"], {len(texts) - 1}) for qa in paragraph["qas"]]
    return texts, questions


def embedded(path, embedder, texts):
    if not path.exists():
        np.save(path, embedder.embed(texts))
    return np.load(path)


def recall(ranked, gold, k):
    return len(gold.intersection(ranked[:k])) / len(gold)


def main():
    data, cache = Path(sys.argv[1]), Path(sys.argv[2])
    cache.mkdir(parents=True, exist_ok=True)
    embedders = Embedders()
    for name in sys.argv[3:] or SETS:
        folder, language = SETS[name]
        texts, questions = load(data / folder, language)
        questions = questions[:: max(1, len(questions) // MOST_QUESTIONS)]
        full = [indexed_text(title, "", text) for title, text in texts]
        index = RankBm25Index(range(len(full)), [analyze(text) for text in full])
        shared = [list(islice(index.ranked(analyze(question, query=True)), LEG)) for question, _ in questions]
        for embedder_id in ("minilm", "use") if name in ENGLISH else ("use",):
            embedder = embedders.get(embedder_id)
            rows = embedded(cache / f"{name}-{embedder_id}-d.npy", embedder, full)
            asked = embedded(cache / f"{name}-{embedder_id}-q.npy", embedder, [question for question, _ in questions])
            near = [list(order[:LEG]) for order in np.argsort(-(asked @ rows.T), axis=1)]
            title = f"{name:12} {embedder_id:7} {len(texts):5} chunks {len(questions):4} questions"
            report(title, questions, shared, near)


def report(title, questions, shared, near):
    cells, best = [], (0.0, 0.0)
    for weight in WEIGHTS:
        legs = zip(near, shared, strict=True)
        fused = [[row for row, _ in fuse([Leg(n, weight), Leg(s, 1 - weight)])] for n, s in legs]
        at1, at5 = (
            100 * float(np.mean([recall(ranked, gold, k) for ranked, (_, gold) in zip(fused, questions, strict=True)]))
            for k in (1, 5)
        )
        cells.append(f"{weight:g}: {at1:.1f}/{at5:.1f}")
        best = max(best, (at1 + at5, weight))
    print(title, "|", "  ".join(cells), "| best", best[1], flush=True)


if __name__ == "__main__":
    main()
