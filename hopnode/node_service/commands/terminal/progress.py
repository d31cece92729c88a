"""Long work with a bar: a few threads over many items. Knows neither the items nor the node."""

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TypeVar

from hopnode.node_service.commands.terminal import display

AT_ONCE = 4
T = TypeVar("T")
R = TypeVar("R")


def in_parallel(work: Callable[[T], R], items: Sequence[T], label: str) -> list[R]:
    """`work` over `items` on a few threads, with a progress bar; results in the order of `items`.

    The first exception ends it. The threads are daemons, so that Ctrl-C need not wait for what is under way.
    """
    left, done = SimpleQueue[tuple[int, T]](), SimpleQueue[tuple[int, R] | BaseException]()
    stop = threading.Event()
    for place, item in enumerate(items):
        left.put((place, item))
    for _ in range(min(AT_ONCE, len(items))):
        threading.Thread(target=_work_off, args=(work, left, done, stop), daemon=True).start()
    results = dict[int, R]()
    try:
        with progress(label, len(items)) as advance:
            while len(results) < len(items):
                outcome = done.get()
                if isinstance(outcome, BaseException):
                    raise outcome
                results[outcome[0]] = outcome[1]
                advance()
    finally:
        stop.set()
    return [results[place] for place in range(len(items))]


def _work_off(
    work: Callable[[T], R],
    left: SimpleQueue[tuple[int, T]],
    done: SimpleQueue[tuple[int, R] | BaseException],
    stop: threading.Event,
) -> None:
    while not stop.is_set():
        try:
            place, item = left.get_nowait()
        except Empty:
            return
        try:
            done.put((place, work(item)))
        except BaseException as error:  # noqa: BLE001 - carried to the thread that waits, which raises it
            done.put(error)
            return


@contextmanager
def progress(label: str, total: int) -> Generator[Callable[[], None]]:
    """A progress bar on stderr while a terminal looks on; the yielded function moves it by one."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = display.notices()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda: bar.advance(task)
