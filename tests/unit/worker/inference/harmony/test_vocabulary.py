import hashlib
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hopnode.worker.errors import ConfigurationError
from hopnode.worker.inference.harmony.vocabulary import FILE_NAME, SHA256, ensure_vocabulary


def test_the_vocabulary_is_unpacked_once_and_is_the_one_that_the_model_was_trained_with(tmp_path: Path) -> None:
    folder = ensure_vocabulary(tmp_path / "cache")
    file = folder / FILE_NAME
    assert hashlib.sha256(file.read_bytes()).hexdigest() == SHA256
    written = file.stat().st_mtime_ns
    assert ensure_vocabulary(folder) == folder
    assert file.stat().st_mtime_ns == written
    assert [path.name for path in folder.iterdir()] == [FILE_NAME]


@pytest.mark.parametrize("damage", [b"", b"half", None])
def test_a_damaged_vocabulary_is_replaced(tmp_path: Path, damage: bytes | None) -> None:
    file = ensure_vocabulary(tmp_path) / FILE_NAME
    file.write_bytes(file.read_bytes()[:-1] if damage is None else damage)
    ensure_vocabulary(tmp_path)
    assert hashlib.sha256(file.read_bytes()).hexdigest() == SHA256


def test_several_that_start_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    threads = [threading.Thread(target=ensure_vocabulary, args=(tmp_path,)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
    assert hashlib.sha256((tmp_path / FILE_NAME).read_bytes()).hexdigest() == SHA256


def test_a_place_that_is_no_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=str(tmp_path / "file")):
        ensure_vocabulary(tmp_path / "file")


NO_SOCKETS = """
import sys
from pathlib import Path

def forbid(event, arguments):
    if event.startswith("socket."):
        raise RuntimeError(f"{event} {arguments}")

sys.addaudithook(forbid)
from hopnode.worker.inference.harmony.rendering import Harmony
harmony = Harmony(Path(sys.argv[1]))
print(harmony.encode("<|start|>assistant"))
"""


@pytest.mark.slow
def test_the_encoding_loads_without_opening_a_single_socket(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_SOCKETS, str(tmp_path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout.strip() == "[200006, 173781]", done.stderr
