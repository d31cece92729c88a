"""Fits the weights of the offline policy's ranking on public questions, and says how well they carry over.

    python bench/train_offline.py DATA_FOLDER CACHE_FOLDER [--write] SET [SET ...]

DATA_FOLDER holds question sets as described in its README. Each set is used twice, with titles and without. Collections
are built once in CACHE_FOLDER. First every set is left out in turn: weights fitted on the others are tried on it, which
is what a user's own questions would see. With --write, weights fitted on all sets replace `ranking.json`.
"""

import argparse
import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from worker.corpus.corpus import Corpora, Corpus
from worker.corpus.parsing import ParserPool
from worker.corpus.records import NewDocument
from worker.corpus.vectors import EmbeddedChroma
from worker.harness.policies import ranking
from worker.harness.policies.evidence import Evidence, Numbers
from worker.harness.policies.survey import survey
from worker.inference.embedder import Embedders
from worker.store.collections import Collection

ROUNDS = 3
WEIGHTS = Path(ranking.__file__).parent / "ranking.json"


@dataclass(frozen=True)
class Asked:
    """A question as evidence, with the keys of the documents that answer it."""

    name: str
    titled: bool
    evidence: Evidence
    gold: frozenset[str]

    def labels(self) -> Numbers:
        keys = (self.evidence.candidates[row].chunk.key for row in self.evidence.rows)
        return np.array([key in self.gold for key in keys], float)


def lines(path: Path) -> Iterator[dict]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from (json.loads(line) for line in file)


def load(data: Path, corpus: Corpus, name: str, titled: bool) -> list[Asked]:
    collection = Collection(f"{name}-{titled}".lower(), "bench", name, "", "minilm", 384, None, {}, 0.0)
    corpus.ingest(
        collection,
        [
            NewDocument(key=one["id"], text=one["text"], title=one["title"] if titled else None)
            for one in lines(data / name / "corpus.jsonl.gz")
        ],
    )
    insight = corpus.insight([collection])
    return [
        Asked(name, titled, survey(one["question"], insight), frozenset(one["gold"]))
        for one in lines(data / name / "queries.jsonl.gz")
    ]


def fit_trust(numbers: Numbers, labels: Numbers, mean: Numbers, scale: Numbers) -> Numbers:
    """Logistic regression with a little shrinkage, by Newton steps; the last weight is the bias."""
    lines = np.column_stack([(numbers - mean) / scale, np.ones(len(numbers))])
    weights, shrink = np.zeros(lines.shape[1]), np.eye(lines.shape[1])
    shrink[-1, -1] = 0
    for _ in range(30):
        trust = 1 / (1 + np.exp(-lines @ weights))
        slope = lines.T @ (trust - labels) + shrink @ weights
        curve = (lines * (trust * (1 - trust))[:, None]).T @ lines + shrink
        weights = weights - np.linalg.solve(curve, slope)
    return weights


def fit_order(questions: Sequence[tuple[Numbers, Numbers]], mean: Numbers, scale: Numbers) -> Numbers:
    """Weights that put each gold chunk of a question before its other chunks (softmax over the list), by Adam."""
    asked = [((numbers - mean) / scale, labels.astype(bool)) for numbers, labels in questions if labels.any()]
    weights = first = second = np.zeros(len(mean))
    for step in range(1, 401):
        slope = 0.02 * weights * len(asked)
        for numbers, gold in asked:
            scores = numbers @ weights
            scores = np.exp(scores - scores.max())
            against = 1 / (scores[gold] + scores[~gold].sum())
            pull = (scores[gold] * against - 1) / gold.sum()
            slope = slope + numbers[gold].T @ pull + numbers[~gold].T @ (scores[~gold] * against.sum() / gold.sum())
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
        weights = weights - 0.05 * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-9)
    return weights


def fit(asked: Sequence[Asked], learning: Sequence[bool]) -> tuple[list[ranking.Round], list[Numbers]]:
    """Weights from the questions that `learning` marks, and the last round's scores of all questions."""
    rounds: list[ranking.Round] = []
    trust: list[Numbers | None] = [None] * len(asked)
    scores: list[Numbers] = []
    for _ in range(ROUNDS):
        numbers = [ranking.numbers_of(one.evidence, before) for one, before in zip(asked, trust, strict=True)]
        labels = [one.labels() for one in asked]
        taught = [(x, y) for x, y, learns in zip(numbers, labels, learning, strict=True) if learns]
        every = np.concatenate([x for x, _ in taught])
        mean, scale = every.mean(0), every.std(0) + 1e-9
        weights = ranking.Round(
            mean,
            scale,
            fit_trust(every, np.concatenate([y for _, y in taught]), mean, scale),
            fit_order(taught, mean, scale),
        )
        rounds.append(weights)
        judged = [ranking.judge(one, weights) for one in numbers]
        trust, scores = [one[0] for one in judged], [one[1] for one in judged]
    return rounds, scores


def recall(one: Asked, scores: Numbers, at: int) -> float:
    order = np.argsort(-scores, kind="stable")
    keys = dict.fromkeys(one.evidence.candidates[one.evidence.rows[place]].chunk.key for place in order)
    return len(set(list(keys)[:at]) & one.gold) / len(one.gold)


def show(asked: Sequence[Asked], scores: Sequence[Numbers], name: str) -> None:
    for titled in (True, False):
        chosen = [
            (one, score) for one, score in zip(asked, scores, strict=True) if (one.name, one.titled) == (name, titled)
        ]
        figures = {at: 100 * float(np.mean([recall(one, score, at) for one, score in chosen])) for at in (2, 5, 10)}
        told = "  ".join(f"R@{at} {figure:5.1f}" for at, figure in figures.items())
        print(f"{name:24} {'titled' if titled else 'title-blind':12} {told}", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("data", type=Path)
    arguments.add_argument("cache", type=Path)
    arguments.add_argument("sets", nargs="+")
    arguments.add_argument("--write", action="store_true")
    given = arguments.parse_args()
    parser = ParserPool(timeout_seconds=60, memory_bytes=2_000_000_000, max_characters=10_000_000)
    binding = Collection("any", "bench", "any", "", "minilm", 384, None, {}, 0.0)
    corpora = Corpora(given.cache, EmbeddedChroma(given.cache / "chroma"), Embedders(), parser, lambda *_: binding)
    corpus = corpora.open("bench")
    asked = [one for name in given.sets for titled in (True, False) for one in load(given.data, corpus, name, titled)]
    for left_out in given.sets:
        _, scores = fit(asked, [one.name != left_out for one in asked])
        show(asked, scores, left_out)
    if given.write:
        rounds, _ = fit(asked, [True] * len(asked))
        names = ("mean", "scale", "trust", "order")
        stored = [{name: [round(float(x), 5) for x in getattr(one, name)] for name in names} for one in rounds]
        WEIGHTS.write_text(json.dumps(stored) + "\n")
        print(f"wrote {WEIGHTS}")
    corpora.close()
    parser.close()


if __name__ == "__main__":
    main()
