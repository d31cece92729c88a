import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hopnode.worker.corpus.folder_lock import FolderLock, process_lives
from hopnode.worker.errors import DataFolderInUse

HOLD = """
import sys
from pathlib import Path
from hopnode.worker.corpus.folder_lock import FolderLock
lock = FolderLock(Path(sys.argv[1]), "another node")
print("held", flush=True)
sys.stdin.read()
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "held\n"
    return child


def test_the_folder_is_made_and_says_who_owns_it(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path / "new" / "folder", "a test")
    written = json.loads((tmp_path / "new" / "folder" / "owner.lock").read_text())
    assert written == {"pid": os.getpid(), "purpose": "a test"}
    assert (tmp_path / "new" / "folder" / "owner.lock").stat().st_mode & 0o077 == 0
    lock.release()


def test_what_was_given_free_can_be_taken_again(tmp_path: Path) -> None:
    for _ in range(3):
        lock = FolderLock(tmp_path, "a test")
        lock.release()
        lock.release()  # twice is once
        assert lock.fileno == -1


def test_a_folder_in_use_is_refused_at_once_with_its_owner_and_a_way_out(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path, "the first")
    before = time.monotonic()
    with pytest.raises(DataFolderInUse, match=rf"process {os.getpid()} \(the first\).*HOPNODE_DATA_DIR") as caught:
        FolderLock(tmp_path, "the second")
    assert time.monotonic() - before < 2
    assert str(tmp_path) in str(caught.value)
    assert json.loads((tmp_path / "owner.lock").read_text())["purpose"] == "the first"
    lock.release()


def test_a_refusal_leaves_no_file_open(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path, "the first")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(DataFolderInUse):
            FolderLock(tmp_path, "another")
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    lock.release()


def test_another_process_keeps_the_folder_while_it_lives_and_no_longer(tmp_path: Path) -> None:
    child = holder(tmp_path)
    with pytest.raises(DataFolderInUse, match=f"process {child.pid} \\(another node\\)"):
        FolderLock(tmp_path, "a test")
    child.kill()
    child.communicate(timeout=20)
    FolderLock(tmp_path, "a test").release()


@pytest.mark.parametrize("left", ["", "{", "[1]", '{"pid": "many"}', "\x00\x01", '{"pid": 999999999}'])
def test_what_a_crash_left_in_the_file_does_not_matter(tmp_path: Path, left: str) -> None:
    (tmp_path / "owner.lock").write_text(left)
    lock = FolderLock(tmp_path, "a test")
    assert json.loads((tmp_path / "owner.lock").read_text())["pid"] == os.getpid()
    lock.release()


def test_a_longer_text_of_an_earlier_owner_leaves_no_rest(tmp_path: Path) -> None:
    FolderLock(tmp_path, "x" * 2_000).release()
    lock = FolderLock(tmp_path, "y")
    assert json.loads((tmp_path / "owner.lock").read_text()) == {"pid": os.getpid(), "purpose": "y"}
    lock.release()


def test_processes_are_known_to_live_or_not() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait(20)
    assert not process_lives(child.pid)
    assert process_lives(os.getpid())
    assert process_lives(1)  # may belong to another user
    assert process_lives(0)  # unknown counts as living
