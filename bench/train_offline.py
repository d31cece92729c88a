"""Fits the weights of the ranking on public questions, and says how well they carry over to questions of other sets.

    python bench/train_offline.py DATA_FOLDER SET [SET …] --data-dir FOLDER [--most 60] [--tried SET …] [--held-out FILE] [--write]

DATA_FOLDER holds question sets as described in its README. Sets with several gold documents a question are used twice,
with titles and without; of a set in several languages each language is used. Collections are built once in --data-dir,
which may be that of `retrieval_quality.py`. First every set is left out in turn: weights fitted on the others are tried
on it, which is what a user's own questions would see. Sets of --tried are never learnt from. --held-out FILE keeps these
figures for the page of benchmarks: leave it among the reports of `retrieval_quality.py`. With --write, weights fitted on all
SETs replace `ranking.json`, with their names, their origin and their sha256; then no set is left out, unless --held-out asks.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from node import keep, node, quiet, say
from retrieval_quality import is_multi_hop, languages

from hopnode.worker.evaluation import measures
from hopnode.worker.evaluation.loading import load
from hopnode.worker.evaluation.running import Setup, prepare
from hopnode.worker.evaluation.trial import workspace_of
from hopnode.worker.ranking import weighing
from hopnode.worker.ranking.evidence import Evidence
from hopnode.worker.ranking.one_shot import survey
from hopnode.worker.ranking.weights import ROUNDS, Numbers, Origin, Round, written
from hopnode.worker.runtime import Runtime

SEED = 0
TAUGHT_FROM = 60
"""Passages that the candidates are gathered for: far more than searches want, since what does not answer teaches too."""
SEARCHED_FROM = 20
"""Passages that a search of `retrieval_quality.py` wants: what is held out is ranked as those searches rank."""
HELD_OUT_CUTS = (2, 5, 10)


@dataclass(frozen=True)
class Asked:
    """A question as evidence, with the keys of the documents that answer it."""

    folder: str
    name: str
    titled: bool
    has_several: bool
    language: str | None
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
                evidence = survey(one.text, insight, TAUGHT_FROM)
                yield Asked(folder.name, dataset.name, titled, several, language, evidence, gold)


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


def fit(asked: Sequence[Asked], learning: Sequence[bool]) -> list[Round]:
    """Weights from the questions that `learning` marks; the others' evidence is not touched.

    What a passage is worth, and how passages compare, is learnt from questions that need several documents. Where words
    lead, the order is learnt from all questions: those of one document, in many languages, teach what weak vectors say.
    """
    pupils = [one for one, learns in zip(asked, learning, strict=True) if learns]
    rounds: list[Round] = []
    trust: list[Numbers | None] = [None] * len(pupils)
    for _ in range(ROUNDS):
        numbers = [weighing.numbers_of(one.evidence, before) for one, before in zip(pupils, trust, strict=True)]
        taught = [(one, x, one.labels()[: len(x)]) for one, x in zip(pupils, numbers, strict=True)]
        several = [(x, y) for one, x, y in taught if one.has_several]
        every = np.concatenate([x for x, _ in several])
        mean, scale = every.mean(0), every.std(0) + 1e-9
        weights = Round(
            mean,
            scale,
            fit_trust(every, np.concatenate([y for _, y in several]), mean, scale),
            fit_order(several, mean, scale),
            fit_order([(x, y) for _, x, y in taught], mean, scale),
        )
        rounds.append(weights)
        trust = [weighing.judge(x, weights)[0] for x in numbers]
    return rounds


def ranking_of(one: Asked, rounds: Sequence[Round]) -> list[str]:
    """The documents that a search ranks, best first: candidates and order are those of the product."""
    evidence = survey(one.evidence.question.text, one.evidence.insight, SEARCHED_FROM)
    return measures.distinct([evidence.candidates[place.row].chunk.key for place in weighing.rank(evidence, rounds)])


def figures_of(asked: Sequence[Asked], rounds: Sequence[Round]) -> dict[str, dict[str, float]]:
    """Mean and 95 % interval of recall, after one shot (no links) and of all rounds (the agent's order)."""
    found: dict[str, measures.Values] = {}
    for mode, used in (("one_shot", rounds[:1]), ("agent", rounds)):
        gold = [dict.fromkeys(one.gold, 1) for one in asked]
        ranks = [measures.ranks_of(wanted, ranking_of(one, used)) for one, wanted in zip(asked, gold, strict=True)]
        found[mode] = measures.table_of([measures.figures_of(*both) for both in zip(ranks, gold, strict=True)])
    found["difference"] = found["agent"] - found["one_shot"]
    told: dict[str, dict[str, float]] = {}
    for mode, table in found.items():
        intervals = measures.intervals(table, SEED)
        columns = {f"recall@{cut}": measures.NAMES.index(f"recall@{cut}") for cut in (1, *HELD_OUT_CUTS)}
        told[mode] = {name: float(table[:, column].mean()) for name, column in columns.items()}
        told[mode] |= {"low": intervals[columns["recall@5"]].low, "high": intervals[columns["recall@5"]].high}
    return told


def hold_out(asked: Sequence[Asked], sets: Sequence[str], tried: Sequence[str]) -> Iterator[dict[str, object]]:
    """Leaves every set out in turn; yields what weights of the others find in it, in each language and layout."""
    for left_out in (*sets, *tried[:1]):
        rounds = fit(asked, [one.folder not in (left_out, *tried) for one in asked])
        for folder in tried if left_out in tried else [left_out]:
            for name, titled in dict.fromkeys((one.name, one.titled) for one in asked if one.folder == folder):
                chosen = [one for one in asked if (one.name, one.titled) == (name, titled)]
                yield {
                    "set": name,
                    "titled": titled,
                    "questions": len(chosen),
                    "learnt": [one for one in sets if one != left_out],
                    "figures": figures_of(chosen, rounds),
                }


def show(row: dict[str, Any]) -> None:
    for mode in ("one_shot", "agent"):
        told = "  ".join(f"{name} {100 * value:5.1f}" for name, value in row["figures"][mode].items())
        layout = "titled" if row["titled"] else "title-blind"
        say(f"{row['set']:28} n {row['questions']:4} {layout:12} {mode:9} {told}")


def origin_of(asked: Sequence[Asked], sets: Sequence[str]) -> Origin:
    return Origin(
        sets=tuple(sets),
        languages=tuple(sorted({one.language for one in asked if one.language and one.folder in sets})),
        fitted_on=datetime.now(UTC).date().isoformat(),
        command=command(sets, "--write"),
        reproduced=True,
        remarks=("words was learnt from all these sets, the other lines from those that need several documents.",),
    )


def command(sets: Sequence[str], rest: str) -> str:
    """How to get the same figures; folders are whatever they are elsewhere."""
    return f"python bench/train_offline.py DATA {' '.join(sets)} --data-dir FOLDER {rest}"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("data", type=Path)
    arguments.add_argument("sets", nargs="+")
    arguments.add_argument("--data-dir", type=Path, required=True)
    arguments.add_argument("--tried", nargs="+", default=[])
    arguments.add_argument("--most", type=int, default=60)
    arguments.add_argument("--held-out", type=Path)
    arguments.add_argument("--write", action="store_true")
    given = arguments.parse_args()
    with node(given.data_dir / "node") as runtime:
        folders = [given.data / name for name in (*given.sets, *given.tried)]
        asked = [one for folder in folders for one in asked_in(runtime, folder, given.most)]
        if given.held_out or not given.write:
            rows: list[dict[str, object]] = []
            for row in hold_out(asked, given.sets, given.tried):
                show(row)
                rows.append(row)
            keep(given.held_out, {"held_out": rows, "command": command(given.sets, "--held-out FILE")})
        if given.write:
            rounds = fit(asked, [one.folder in given.sets for one in asked])
            weighing.WEIGHTS.write_text(written(origin_of(asked, given.sets), rounds), encoding="utf-8")
            say(f"wrote {weighing.WEIGHTS}")


if __name__ == "__main__":
    main()
