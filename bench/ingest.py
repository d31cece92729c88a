"""What ingesting costs beside embedding alone, and what it costs again: unchanged, and with one document in a hundred changed.

    python bench/ingest.py --documents 2000 [--embedder minilm|use] [--json FILE]

Real text (see `real_text.py`), one chunk a document. Prints chunks a second and ratios.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

from node import busy, keep, machine, node, say
from real_text import passages

from hopnode.worker.corpus.ingest import BATCH_CHUNKS
from hopnode.worker.corpus.sqlite.lexical import indexed_text
from hopnode.worker.evaluation.trial import Trial, workspace_of
from hopnode.worker.inference.embedding.embedder import Embedders


def seconds_of(work):
    started, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - started, time.process_time() - cpu


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=2_000)
    parser.add_argument("--embedder", default="minilm", choices=["minilm", "use"])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    texts = passages(options.documents)
    changed = [replace(one, text=f"{one.text}\n\nChanged.") if n % 100 == 0 else one for n, one in enumerate(texts)]
    embedder = Embedders().get(options.embedder)
    embedder.embed(["load"])
    whole = [indexed_text(one.title, "", one.text) for one in texts]
    batches = [whole[start : start + BATCH_CHUNKS] for start in range(0, len(whole), BATCH_CHUNKS)]
    with node(None) as runtime:
        trial = Trial.make(runtime, workspace_of(runtime), "ingest", options.embedder)
        works = {
            "embedding alone": lambda: [embedder.embed(batch) for batch in batches],
            "first ingest": lambda: trial.fill(texts, 0, lambda: None),
            "again, unchanged": lambda: trial.fill(texts, 0, lambda: None),
            "again, 1 % changed": lambda: trial.fill(changed, 0, lambda: None),
        }
        say(f"{machine()}, {busy()}\n{options.documents:,} documents, {options.embedder}")
        say(f"{'':20}  seconds  CPU seconds   per s   ÷ embedding alone (time, CPU)   ÷ first ingest")
        rows = []
        for name, work in works.items():
            taken, cpu = seconds_of(work)
            rows.append({"what": name, "seconds": taken, "cpu_seconds": cpu})
            alone, first = rows[0], rows[min(1, len(rows) - 1)]
            ratios = taken / alone["seconds"], cpu / alone["cpu_seconds"], taken / first["seconds"]
            say(
                f"{name:20} {taken:8.1f} {cpu:12.1f} {len(texts) / taken:7.0f} {ratios[0]:16.2f} {ratios[1]:6.2f}"
                f" {100 * ratios[2]:23.1f} %"
            )
        keep(
            options.json,
            {"machine": f"{machine()}, {busy()}", "documents": len(texts), "embedder": options.embedder, "rows": rows},
        )


if __name__ == "__main__":
    main()
