"""Measures every question set of a folder in every mode and writes docs/benchmarks.md.

    python bench/retrieval_quality.py DATA --data-dir /tmp/bench [--pooled 20000] [--limit 300] [--sets NAME …] [--page-only]

DATA holds question sets in folders (docs/evaluation.md describes the forms). Sets whose questions have several gold documents
are measured titled and title-blind. Reports are kept in RESULTS (default: `reports` in --data-dir); a report that is there is not
measured again, so a run that was broken off goes on. --pooled N adds the sets with several gold documents in one collection,
with N unrelated passages of real text between them. --page-only writes the page from the reports that there are.
"""

import argparse
import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from node import machine, node, quiet, say
from page.benchmark_page import MODES, write_page
from real_text import passages

from hopnode.worker.errors import InvalidRequest
from hopnode.worker.evaluation.dataset import Dataset, pooled
from hopnode.worker.evaluation.loading import load
from hopnode.worker.evaluation.report import Report
from hopnode.worker.evaluation.running import Setup, measure, prepare
from hopnode.worker.evaluation.trial import Asking

UNRELATED_CHARACTERS = 600
"""Most of an unrelated passage, so that those are about as long as the sets' own."""
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"


def languages(folder: Path) -> list[str | None]:
    """The languages of a set that says them line by line; one None for all others."""
    path = folder / "queries.jsonl.gz"
    if not path.exists():
        return [None]
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        found = {json.loads(line).get("lang") for line in lines}
    return sorted(found, key=str)


def sets_in(data: Path) -> Iterator[Dataset]:
    for folder in sorted(path for path in data.iterdir() if path.is_dir()):
        try:
            yield from (load(folder, language=language) for language in languages(folder))
        except InvalidRequest as error:
            say(f"left out: {error}")


def is_multi_hop(dataset: Dataset) -> bool:
    return sum(len(gold.gains) for gold in dataset.gold.values()) > 1.5 * len(dataset.gold)


def measured(runtime, dataset: Dataset, titles: bool, results: Path, limit: int, seed: int) -> None:
    variant = "titled" if titles else "blind"
    paths = {mode: results / f"{dataset.name}.{variant}.{mode}.json" for mode in MODES}
    missing = [mode for mode in MODES if not paths[mode].exists()]
    if not missing:
        return
    prepared = prepare(runtime, dataset.limited(limit, seed), Setup(titles, seed), quiet)
    for mode in missing:
        report = measure(prepared, Asking(mode), quiet).report
        report.write(paths[mode])
        took = f"{report.ingest.seconds:.0f} s ingest, p50 {report.latency_ms.p50:.0f} ms"
        say(f"{dataset.name} {variant} {mode}: R@1 {report.recall['1']:.3f} R@5 {report.recall['5']:.3f}, {took}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--sets", nargs="+", default=[])
    parser.add_argument("--limit", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pooled", type=int, default=0)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--page-only", action="store_true")
    options = parser.parse_args()
    results = options.results or options.data_dir / "reports"
    if not options.page_only:
        found = [one for one in sets_in(options.data) if not options.sets or one.name in options.sets]
        with node(options.data_dir / "node") as runtime:
            for dataset in found:
                for titles in (True, False) if is_multi_hop(dataset) else (True,):
                    measured(runtime, dataset, titles, results, options.limit, options.seed)
            if options.pooled:
                found_text = passages(options.pooled, options.seed, kinds=("man", "doc"), longest=UNRELATED_CHARACTERS)
                unrelated = [replace(one, title="") for one in found_text]  # a file's name is no title
                pool = pooled(f"pooled-{options.pooled}", [one for one in found if is_multi_hop(one)], unrelated)
                for titles in (True, False):
                    measured(runtime, pool, titles, results, 10_000, options.seed)
        (results / "machine.txt").write_text(machine() + "\n")
    reports = [Report.read(path) for path in sorted(results.glob("*.*.*.json"))]
    others = [json.loads(path.read_text()) for path in sorted(results.glob("*.json")) if path.name.count(".") == 1]
    options.page.write_text(write_page(reports, others, (results / "machine.txt").read_text().strip()))
    say(f"written: {options.page}")


if __name__ == "__main__":
    main()
