"""Fits the weights of the offline policy's ranking on public questions, and says how well they carry over.

    python bench/train_offline.py DATA_FOLDER SET [SET …] --data-dir FOLDER [--most 60] [--write] [--tried SET …]

DATA_FOLDER holds question sets as described in its README. Sets with several gold documents a question are used twice,
with titles and without; of a set in several languages each language is used. Collections are built once in --data-dir,
which may be that of `retrieval_quality.py`. First every set is left out in turn: weights fitted on the others are tried
on it, which is what a user's own questions would see. Sets of --tried are never learnt from. With --write, weights fitted
on all SETs replace `ranking.json`.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from node import node, quiet
from retrieval_quality import is_multi_hop, languages

from hopnode.worker.evaluation.loading import load
from hopnode.worker.evaluation.running import Setup, prepare
from hopnode.worker.evaluation.trial import workspace_of
from hopnode.worker.ranking import weighing
from hopnode.worker.ranking.evidence import Evidence, Numbers
from hopnode.worker.ranking.one_shot import survey
from hopnode.worker.runtime import Runtime

ROUNDS = 3
SEED = 0
TAUGHT_FROM = 60
"""Passages that the candidates are gathered for: far more than searches want, since what does not answer teaches too."""
WEIGHTS = Path(weighing.__file__).parent / "ranking.json"


@dataclass(frozen=True)
class Asked:
    """A question as evidence, with the keys of the documents that answer it."""

    folder: str
    name: str
    titled: bool
    has_several: bool
    words_lead: bool
    evidence: Evidence
    gold: frozenset[str]

    def labels(self) -> Numbers:
        keys = (self.evidence.candidates[row].chunk.key for row in self.evidence.rows)
        return np.array([key in self.gold for key in keys], float)


def asked_in(runtime: Runtime, folder: Path, most: int) -> Iterator[Asked]:
    """The questions of a set in every layout; at most `most` where a question has one gold document, of each language."""
    corpus = runtime.corpora.open(workspace_of(runtime))
    for language in languages(folder):
        dataset = load(folder, language=language)
        several = is_multi_hop(dataset)
        for titled in (True, False) if several else (True,):
            prepared = prepare(runtime, dataset.limited(None if several else most, SEED), Setup(titled, SEED), quiet)
            insight = corpus.insight([prepared.trial.collection])
            for one in prepared.dataset.questions:
                gold = frozenset(prepared.dataset.gold[one.id].gains)
                words_lead = insight.words_lead(one.text)
                evidence = survey(one.text, insight, TAUGHT_FROM)
                yield Asked(folder.name, dataset.name, titled, several, words_lead, evidence, gold)


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
    taught = [(numbers, gold) for numbers, gold in questions if gold.any()]
    lines = (np.concatenate([numbers for numbers, _ in taught]) - mean) / scale
    gold = np.concatenate([gold for _, gold in taught])
    lengths = [len(gold) for _, gold in taught]
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    share = gold / np.repeat(np.add.reduceat(gold, starts), lengths)
    weights = first = second = np.zeros(len(mean))
    for step in range(1, 401):
        scores = lines @ weights
        scores = np.exp(scores - np.repeat(np.maximum.reduceat(scores, starts), lengths))
        against = 1 / (scores + np.repeat(np.add.reduceat(scores * (1 - gold), starts), lengths))
        others = np.repeat(np.add.reduceat(share * against, starts), lengths)
        pull = share * (scores * against - 1) + (1 - gold) * scores * others
        slope = lines.T @ pull + 0.02 * weights * len(taught)
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
        weights = weights - 0.05 * (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-9)
    return weights


def fit(asked: Sequence[Asked], learning: Sequence[bool]) -> tuple[list[weighing.Round], list[list[Numbers]]]:
    """Weights from the questions that `learning` marks, and the scores of all questions after each round.

    What a passage is worth, and how passages compare, is learnt from questions that need several documents. Where words
    lead, the order is learnt from all questions: those of one document, in many languages, teach what weak vectors say.
    """
    rounds: list[weighing.Round] = []
    trust: list[Numbers | None] = [None] * len(asked)
    scores: list[list[Numbers]] = []
    for _ in range(ROUNDS):
        numbers = [weighing.numbers_of(one.evidence, before) for one, before in zip(asked, trust, strict=True)]
        labels = [one.labels()[: len(x)] for one, x in zip(asked, numbers, strict=True)]
        taught = [(one, x, y) for one, x, y, learns in zip(asked, numbers, labels, learning, strict=True) if learns]
        several = [(x, y) for one, x, y in taught if one.has_several]
        every = np.concatenate([x for x, _ in several])
        mean, scale = every.mean(0), every.std(0) + 1e-9
        weights = weighing.Round(
            mean,
            scale,
            fit_trust(every, np.concatenate([y for _, y in several]), mean, scale),
            fit_order(several, mean, scale),
            fit_order([(x, y) for _, x, y in taught], mean, scale),
        )
        rounds.append(weights)
        judged = [weighing.judge(x, weights, words_lead=one.words_lead) for one, x in zip(asked, numbers, strict=True)]
        trust = [one[0] for one in judged]
        scores.append([one[1] for one in judged])
    return rounds, scores


def recall(one: Asked, scores: Numbers, at: int) -> float:
    order = np.argsort(-scores, kind="stable")
    keys = dict.fromkeys(one.evidence.candidates[one.evidence.rows[place]].chunk.key for place in order)
    return len(set(list(keys)[:at]) & one.gold) / len(one.gold)


def show(asked: Sequence[Asked], scores: Sequence[Numbers], folder: str) -> None:
    for name, titled in dict.fromkeys((one.name, one.titled) for one in asked if one.folder == folder):
        chosen = [
            (one, score) for one, score in zip(asked, scores, strict=True) if (one.name, one.titled) == (name, titled)
        ]
        figures = {at: 100 * float(np.mean([recall(one, score, at) for one, score in chosen])) for at in (1, 2, 5, 10)}
        told = "  ".join(f"R@{at} {figure:5.1f}" for at, figure in figures.items())
        print(f"{name:28} {'titled' if titled else 'title-blind':12} {told}", flush=True)


def try_out(asked: Sequence[Asked], sets: Sequence[str], tried: Sequence[str]) -> None:
    """Leaves every set out in turn; the last line of each round's figures is that of the whole agent."""
    for left_out in (*sets, *tried[:1]):
        _, by_round = fit(asked, [one.folder not in (left_out, *tried) for one in asked])
        for folder in tried if left_out in tried else [left_out]:
            for number, scores in ((1, by_round[0]), (ROUNDS, by_round[-1])):
                print(f"{folder} left out, after round {number}")
                show(asked, scores, folder)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("data", type=Path)
    arguments.add_argument("sets", nargs="+")
    arguments.add_argument("--data-dir", type=Path, required=True)
    arguments.add_argument("--tried", nargs="+", default=[])
    arguments.add_argument("--most", type=int, default=60)
    arguments.add_argument("--write", action="store_true")
    given = arguments.parse_args()
    with node(given.data_dir / "node") as runtime:
        folders = [given.data / name for name in (*given.sets, *given.tried)]
        asked = [one for folder in folders for one in asked_in(runtime, folder, given.most)]
        try_out(asked, given.sets, given.tried)
        if given.write:
            rounds, _ = fit(asked, [one.folder in given.sets for one in asked])
            stored = [
                {name: [round(float(x), 5) for x in getattr(one, name)] for name in weighing.PARTS} for one in rounds
            ]
            WEIGHTS.write_text(json.dumps(stored) + "\n")
            print(f"wrote {WEIGHTS}")


if __name__ == "__main__":
    main()
