"""Long work with a bar: a few threads over many items. Knows neither the items nor the node."""

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

from node_service.commands import display

AT_ONCE = 4
T = TypeVar("T")
R = TypeVar("R")


def in_parallel(work: Callable[[T], R], items: Sequence[T], label: str) -> list[R]:
    """`work` over `items` on a few threads with a progress bar; the first exception ends the rest."""
    results = dict[int, R]()
    with progress(label, len(items)) as advance, ThreadPoolExecutor(AT_ONCE) as pool:
        pending: dict[Future[R], int] = {pool.submit(work, item): place for place, item in enumerate(items)}
        try:
            while pending:
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    results[pending.pop(future)] = future.result()
                    advance()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [results[place] for place in range(len(items))]


@contextmanager
def progress(label: str, total: int) -> Generator[Callable[[], None]]:
    """A progress bar on stderr while a terminal looks on; the yielded function moves it by one."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = display.notices()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda: bar.advance(task)
