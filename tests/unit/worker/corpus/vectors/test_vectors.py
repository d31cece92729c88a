import os
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Generator
from pathlib import Path

import numpy as np
import pytest

from hopnode.worker.corpus.vectors.chroma import EmbeddedChroma, HttpChroma
from hopnode.worker.errors import ConfigurationError, DataFolderInUse, VectorsUnavailable

NAME = "hn-w1-c1-g1"
ROWS = np.eye(4, dtype=np.float32)


@pytest.fixture
def vectors(tmp_path: Path) -> Generator[EmbeddedChroma]:
    chroma = EmbeddedChroma(tmp_path)
    yield chroma
    chroma.close()


def test_the_nearest_comes_first(vectors: EmbeddedChroma) -> None:
    vectors.upsert(NAME, [10, 20, 30, 40], ROWS)
    asked = np.array([0.1, 0.9, 0.4, 0], np.float32)
    assert vectors.query(NAME, asked, 3) == [20, 30, 10]
    assert vectors.query(NAME, asked, 100)[:3] == [20, 30, 10]


def test_writing_twice_is_the_same_as_once(vectors: EmbeddedChroma) -> None:
    for _ in range(2):
        vectors.upsert(NAME, [1, 2], ROWS[:2])
    for _ in range(2):
        vectors.delete(NAME, [1, 99])
    assert vectors.count(NAME) == 1
    assert vectors.query(NAME, ROWS[0], 5) == [2]


def test_an_upsert_moves_a_vector(vectors: EmbeddedChroma) -> None:
    vectors.upsert(NAME, [1, 2], ROWS[:2])
    vectors.upsert(NAME, [1], ROWS[3:])
    assert vectors.query(NAME, ROWS[3], 1) == [1]


def test_a_missing_index_counts_none_and_cannot_be_asked(vectors: EmbeddedChroma) -> None:
    assert vectors.count(NAME) is None
    vectors.delete(NAME, [1])
    vectors.drop(NAME)
    with pytest.raises(VectorsUnavailable, match="does not exist"):
        vectors.query(NAME, ROWS[0], 1)


def test_an_index_can_be_dropped_and_made_again(vectors: EmbeddedChroma) -> None:
    vectors.upsert(NAME, [1, 2], ROWS[:2])
    vectors.drop(NAME)
    assert vectors.count(NAME) is None
    vectors.upsert(NAME, [3], ROWS[2:3])
    assert vectors.query(NAME, ROWS[0], 5) == [3]


def test_vectors_are_there_after_a_restart(tmp_path: Path) -> None:
    first = EmbeddedChroma(tmp_path)
    first.upsert(NAME, [1, 2], ROWS[:2])
    first.close()
    second = EmbeddedChroma(tmp_path)
    assert second.count(NAME) == 2
    assert second.query(NAME, ROWS[1], 1) == [2]
    second.close()


def test_a_second_owner_of_the_folder_is_refused_with_the_pid_and_what_to_do(
    tmp_path: Path, vectors: EmbeddedChroma
) -> None:
    with pytest.raises(DataFolderInUse, match=rf"process {os.getpid()} .*HOPNODE_DATA_DIR"):
        EmbeddedChroma(tmp_path)


def test_another_process_is_refused_while_the_first_lives_and_let_in_when_it_died(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import sys, time
        from pathlib import Path
        from hopnode.worker.corpus.folder_lock import FolderLock
        lock = FolderLock(Path(sys.argv[1]), "test")
        print("held", flush=True)
        time.sleep(60)
        """
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        with pytest.raises(DataFolderInUse, match=f"process {holder.pid} "):
            EmbeddedChroma(tmp_path)
        holder.kill()
    EmbeddedChroma(tmp_path).close()


def test_a_server_that_is_not_there_is_unavailable_and_not_fatal() -> None:
    vectors = HttpChroma("http://127.0.0.1:9")
    with pytest.raises(VectorsUnavailable, match="Chroma could not answer"):
        vectors.query(NAME, ROWS[0], 1)
    with pytest.raises(VectorsUnavailable):
        vectors.upsert(NAME, [1], ROWS[:1])
    vectors.close()


def test_a_server_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        vectors = HttpChroma(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_seconds=0.1)
        with pytest.raises(VectorsUnavailable, match="Timeout"):
            vectors.query(NAME, ROWS[0], 1)
        vectors.close()


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host:1", "", "http://"])
def test_an_address_that_cannot_be_one_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigurationError, match="HOPNODE_CHROMA_URL"):
        HttpChroma(url)


def test_many_threads_may_ask_and_write_at_once(vectors: EmbeddedChroma) -> None:
    vectors.upsert(NAME, [1, 2, 3, 4], ROWS)
    answers: list[list[int]] = []

    def work(number: int) -> None:
        for _ in range(10):
            vectors.upsert(NAME, [number + 10], ROWS[number : number + 1])
            answers.append(vectors.query(NAME, ROWS[number], 2))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 40 and all(answers)
    assert vectors.count(NAME) == 8
