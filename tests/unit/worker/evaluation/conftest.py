from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from hopnode.worker.runtime import Runtime, open_runtime
from hopnode.worker.settings import WorkerSettings


@pytest.fixture
def open_node(tmp_path: Path) -> Generator[Callable[[], Runtime]]:
    """Opens an embedded node on the test's folder, again and again; what is open at the end is closed."""
    opened: list[Runtime] = []

    def make() -> Runtime:
        while opened:
            opened.pop().close()
        settings = WorkerSettings(_env_file=None, data_dir=tmp_path / "node", embedder="minilm")  # pyright: ignore[reportCallIssue]
        opened.append(open_runtime(settings, embedded=True))
        return opened[-1]

    yield make
    while opened:
        opened.pop().close()


@pytest.fixture
def runtime(open_node: Callable[[], Runtime]) -> Runtime:
    return open_node()
