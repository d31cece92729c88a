"""Reports for tests, made of the ranks of gold documents."""

from collections.abc import Mapping

from hopnode.worker.evaluation.dataset import Dataset, Gold, Question
from hopnode.worker.evaluation.report import Report
from hopnode.worker.evaluation.scoring import Run, summed_up
from hopnode.worker.evaluation.trial import Asking, Retrieved


def make_run(ranks: Mapping[str, Mapping[str, int | None]], *, mode: str = "one_shot") -> Run:
    """A run that returned each gold document at its rank, and strangers at all others up to the tenth."""
    gold = {question: Gold(dict.fromkeys(places, 1)) for question, places in ranks.items()}
    retrieved = [
        Retrieved(question, tuple(_ranking(places)), (), 10.0 + number, mode)
        for number, (question, places) in enumerate(ranks.items())
    ]
    dataset = Dataset("made", tuple(Question(one, "?") for one in ranks), gold)
    return Run(dataset, Asking(mode), retrieved, embedder="words", titles=True, seed=0, documents=10)


def make_report(ranks: Mapping[str, Mapping[str, int | None]], *, mode: str = "one_shot") -> Report:
    """The report of `make_run`."""
    return summed_up(make_run(ranks, mode=mode))


def _ranking(places: Mapping[str, int | None]) -> list[str]:
    by_rank = {rank: document for document, rank in places.items() if rank}
    return [by_rank.get(rank, f"stranger-{rank}") for rank in range(1, max([10, *by_rank]) + 1)]
