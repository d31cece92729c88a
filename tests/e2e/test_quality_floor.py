"""Retrieval quality does not fall: small slices of three public question sets, searched as `hopnode eval` searches them.

The sets and their licences are described beside them. A floor is what was measured less three points.
"""

import gzip
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import pytest

from hopnode.worker.evaluation.dataset import Dataset
from hopnode.worker.evaluation.loading import load
from hopnode.worker.evaluation.report import Report
from hopnode.worker.evaluation.running import Setup, measure, prepare
from hopnode.worker.evaluation.trial import Asking
from hopnode.worker.runtime import open_runtime
from hopnode.worker.settings import WorkerSettings

pytestmark = pytest.mark.slow

DATA = Path(__file__).parents[1] / "data"
SLACK = 0.03

TWOWIKI = "2wiki-sample, 40 questions over their 346 paragraphs"
HOTPOT = "hotpotqa-train, 40 questions over their 400 paragraphs"
JAPANESE = "jaquad, 60 questions over 200 paragraphs"

MEASURED: dict[str, dict[tuple[str, bool, str], float]] = {
    TWOWIKI: {
        ("one_shot", True, "5"): 0.700,
        ("one_shot", False, "5"): 0.662,
        ("agent", True, "5"): 1.000,
        ("agent", False, "5"): 0.956,
    },
    HOTPOT: {
        ("one_shot", True, "5"): 0.825,
        ("one_shot", False, "5"): 0.825,
        ("agent", True, "5"): 0.975,
        ("agent", False, "5"): 0.950,
    },
    JAPANESE: {
        ("one_shot", True, "1"): 0.867,
        ("one_shot", True, "5"): 1.000,
        ("agent", True, "1"): 0.900,
        ("agent", True, "5"): 1.000,
    },
}
"""Recall by (mode, titled, rank), as measured."""


def two_wiki() -> Dataset:
    folder = Path(str(files("hopnode.node_service.commands.demo").joinpath("data", "2wiki-sample")))
    dataset = load(folder)
    lines = gzip.decompress((folder / "queries.jsonl.gz").read_bytes()).splitlines()[:40]
    kept = {one for line in map(json.loads, lines) for one in (*line["gold"], *line["distractors"])}
    return cut(dataset, 40, kept)


def hotpot() -> Dataset:
    return load(DATA / "hotpotqa-train-40")


def japanese() -> Dataset:
    return load(DATA / "jaquad-dev-60")


def cut(dataset: Dataset, questions: int, documents: set[str]) -> Dataset:
    return replace(
        dataset,
        questions=dataset.questions[:questions],
        documents=tuple(one for one in dataset.documents if one.id in documents),
    )


SETS: dict[str, Callable[[], Dataset]] = {TWOWIKI: two_wiki, HOTPOT: hotpot, JAPANESE: japanese}


@contextmanager
def silent(_label: str, _total: int) -> Generator[Callable[[], None]]:
    yield lambda: None


@pytest.mark.parametrize("name", SETS)
def test_recall_stays_within_three_points_of_what_was_measured(name: str, tmp_path: Path) -> None:
    runtime = open_runtime(WorkerSettings(_env_file=None, data_dir=tmp_path), embedded=True)  # type: ignore[call-arg]
    found: dict[tuple[str, bool, str], float] = {}
    try:
        for titles in sorted({titles for _, titles, _ in MEASURED[name]}, reverse=True):
            prepared = prepare(runtime, SETS[name](), Setup(titles=titles), silent)
            assert prepared.unknown_gold == 0
            for mode in sorted({mode for mode, titled, _ in MEASURED[name] if titled == titles}):
                found |= recalls(measure(prepared, Asking(mode), silent).report)
    finally:
        runtime.close()
    told = {key: f"{100 * found[key]:.1f} (measured {100 * value:.1f})" for key, value in MEASURED[name].items()}
    print(name, told)
    low = {key: told[key] for key, value in MEASURED[name].items() if found[key] < value - SLACK}
    assert not low, low


def recalls(report: Report) -> dict[tuple[str, bool, str], float]:
    assert report.failed == {}
    assert report.degraded == {}
    return {(report.mode, report.titles, cut): value for cut, value in report.recall.items()}


def test_every_set_has_its_notice_and_its_promised_size() -> None:
    assert all((DATA / name / "NOTICE.md").exists() for name in ("hotpotqa-train-40", "jaquad-dev-60"))
    for name, make in SETS.items():
        dataset = make()
        assert f", {len(dataset.questions)} questions over " in name
        assert f" {len(dataset.documents)} paragraphs" in name
