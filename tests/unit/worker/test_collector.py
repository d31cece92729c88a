import gc
import subprocess
import sys
import weakref
from collections.abc import Generator

import pytest

from hopnode.worker.garbage_collection import NEW_OBJECTS, settle


class Knot:
    """An object that holds itself, so that only the collector can end it."""

    def __init__(self) -> None:
        self.self = self


@pytest.fixture(autouse=True)
def _as_before() -> Generator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_what_stands_is_not_looked_through_again() -> None:
    settle()
    assert gc.get_freeze_count() > NEW_OBJECTS
    assert len(gc.get_objects()) < NEW_OBJECTS


def test_what_is_garbage_at_the_start_and_later_is_collected() -> None:
    early = weakref.ref(Knot())
    settle()
    late = weakref.ref(Knot())
    gc.collect()
    assert (early(), late()) == (None, None)


@pytest.mark.slow
def test_a_worker_process_settles_once_it_is_open() -> None:
    program = (
        "import gc; from contextlib import nullcontext; from hopnode.worker.settings import WorkerSettings; "
        "from hopnode.worker.queue.worker_process import WorkerProcess; "
        "class_ = type('Runner', (), {'run_next': lambda self, role: False, 'interrupt': lambda self: None}); "
        "process = WorkerProcess(WorkerSettings(_env_file=None, redis_url='redis://127.0.0.1:1'), "
        "lambda: nullcontext(class_())); process.run_next('agent'); print(gc.get_freeze_count() > 0); process.close()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "True", done.stderr
