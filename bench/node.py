"""An embedded node for a bench, what the machine is, and how long things take when several do them at once."""

import json
import os
import platform
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from hopnode.worker import logs
from hopnode.worker.runtime import Runtime, open_runtime
from hopnode.worker.settings import WorkerSettings


@contextmanager
def node(folder: Path | None, **more: Any) -> Generator[Runtime]:
    """A node on `folder`, or on a temporary one, with `more` settings than the defaults."""
    logs.configure("error", "console")
    with TemporaryDirectory(prefix="hopnode-bench-") as temporary:
        plain = {"database_url": None, "redis_url": None, "chroma_url": None, "chat_url": None} | more
        settings = WorkerSettings(_env_file=None, data_dir=folder or Path(temporary), **plain)
        runtime = open_runtime(settings, embedded=True)
        try:
            yield runtime
        finally:
            runtime.close()


def machine() -> str:
    """Processor, cores, memory and Python: what stays the same when a page is written again."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores, {memory:.0f} GB, "
        f"Python {platform.python_version()}"
    )


def busy() -> str:
    """How busy the machine is with this and with other things."""
    return f"load average {os.getloadavg()[0]:.1f}"


def times(work: Callable[[Any], object], items: Sequence[Any], at_once: int) -> tuple[list[float], float]:
    """Milliseconds of each call with `at_once` calls running all the time, and the seconds of all."""

    def one(item: Any) -> float:
        started = time.perf_counter()
        work(item)
        return (time.perf_counter() - started) * 1000

    started = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        taken = list(pool.map(one, items))
    return taken, time.perf_counter() - started


def summary(taken: Sequence[float], seconds: float) -> dict[str, float]:
    """Median and 95th percentile in milliseconds, and calls a second."""
    p50, p95 = np.percentile(taken, (50, 95)).tolist()
    return {"p50": p50, "p95": p95, "per_second": len(taken) / seconds}


def timed(work: Callable[[Any], object], items: Sequence[Any], at_once: int) -> dict[str, float]:
    """How long calls take with `at_once` of them running all the time, after one that does not count."""
    work(items[0])
    return summary(*times(work, items, at_once))


def say(line: str) -> None:
    """Prints at once, also into a pipe."""
    print(line, flush=True)


@contextmanager
def quiet(_label: str, _total: int) -> Generator[Callable[[], None]]:
    """Progress that shows nothing."""
    yield lambda: None


def keep(path: Path | None, result: dict[str, Any]) -> None:
    """Writes a result for the page of benchmarks."""
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n")
