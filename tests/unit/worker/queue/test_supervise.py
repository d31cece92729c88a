"""The supervisor of a worker process: restarts it, hands stop signals on, leaves nothing behind."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from support.node.queue import wait_until

pytestmark = pytest.mark.slow

CHILD = """
import os, signal, subprocess, sys, time
from hopnode.worker.queue.supervise import end_with_supervisor
end_with_supervisor(1.0)
own = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open(sys.argv[1], "a") as log:
    log.write(f"{os.getpid()} {own.pid}\\n")
if sys.argv[2] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
elif sys.argv[2] == "polite":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
time.sleep(600)
"""
SUPERVISOR = """
import sys
from hopnode.worker.queue.supervise import supervise
sys.exit(supervise(sys.argv[1:], grace_seconds=1.0))
"""


class Supervised:
    """A supervisor in a process of its own, over a child that notes its pid and that of its own child."""

    def __init__(self, folder: Path, manner: str) -> None:
        self.log = folder / "lives.txt"
        argv = [sys.executable, "-c", SUPERVISOR, sys.executable, "-c", CHILD, str(self.log), manner]
        self.process = subprocess.Popen(argv)
        self.wait_for_life(1)

    def lives(self) -> list[list[int]]:
        """Pids of every child so far, each with its own child's."""
        text = self.log.read_text() if self.log.exists() else ""
        return [[int(pid) for pid in line.split()] for line in text.splitlines()]

    def wait_for_life(self, number: int) -> None:
        wait_until(lambda: len(self.lives()) >= number, 15, f"life {number} of the child")

    def wait_until_all_gone(self) -> None:
        pids = [pid for life in self.lives() for pid in life]
        wait_until(lambda: not any(_alive(pid) for pid in pids), 5, "all children are gone")


def _alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_killed_child_is_started_again_and_its_own_children_end_with_it(tmp_path: Path) -> None:
    supervised = Supervised(tmp_path, "polite")
    for life in (1, 2):
        child, grandchild = supervised.lives()[-1]
        os.kill(child, signal.SIGKILL)
        supervised.wait_for_life(life + 1)
        assert not _alive(grandchild)
    supervised.process.send_signal(signal.SIGTERM)
    assert supervised.process.wait(10) == 7
    assert len(supervised.lives()) == 3
    supervised.wait_until_all_gone()


def test_a_child_that_ignores_the_signal_is_killed_after_the_grace(tmp_path: Path) -> None:
    supervised = Supervised(tmp_path, "stubborn")
    supervised.process.send_signal(signal.SIGINT)
    assert supervised.process.wait(10) == -signal.SIGKILL % 256
    supervised.wait_until_all_gone()


@pytest.mark.parametrize("manner", ["polite", "stubborn"])
def test_the_child_ends_when_its_supervisor_is_killed(tmp_path: Path, manner: str) -> None:
    supervised = Supervised(tmp_path, manner)
    supervised.process.kill()
    supervised.process.wait()
    supervised.wait_until_all_gone()
