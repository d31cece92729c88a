import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
from support.data.corpora import CollectionBook

from hopnode.worker.corpus.corpus import Corpora
from hopnode.worker.corpus.records import NewDocument
from hopnode.worker.corpus.vectors.chroma import EmbeddedChroma, HttpChroma
from hopnode.worker.corpus.vectors.chroma_process import ChromaProcess
from hopnode.worker.errors import DataFolderInUse, VectorsUnavailable

pytestmark = pytest.mark.slow

NAME = "hn-w1-c1-g1"
ROWS = np.eye(4, dtype=np.float32)


def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    ends_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends_at, "the condition did not come true in time"
        time.sleep(0.02)


def answers(vectors: HttpChroma) -> bool:
    try:
        return vectors.count(NAME) is not None
    except VectorsUnavailable:
        return False


def test_the_child_serves_says_where_and_ends_with_its_owner(tmp_path: Path) -> None:
    with ChromaProcess(tmp_path) as server:
        told = json.loads((tmp_path / "chroma.json").read_text())
        assert told == {"url": server.url, "pid": server.pid}
        assert server.url.startswith("http://127.0.0.1:")
        assert (tmp_path / "chroma.json").stat().st_mode & 0o077 == 0
        vectors = HttpChroma(server.url)
        vectors.upsert(NAME, [1, 2, 3, 4], ROWS)
        assert vectors.query(NAME, ROWS[2], 1) == [3]
        assert vectors.count("hn-w1-other-g1") is None
        vectors.drop(NAME)
        assert vectors.count(NAME) is None
        vectors.close()
        with pytest.raises(DataFolderInUse):
            EmbeddedChroma(tmp_path)
    assert not psutil.pid_exists(told["pid"])
    assert not (tmp_path / "chroma.json").exists()
    EmbeddedChroma(tmp_path).close()


def test_a_child_that_is_killed_comes_back_with_what_it_knew(tmp_path: Path) -> None:
    with ChromaProcess(tmp_path) as server:
        vectors = HttpChroma(server.url)
        vectors.upsert(NAME, [1, 2, 3, 4], ROWS)
        first = server.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        until(lambda: server.pid != first and answers(vectors))
        assert vectors.count(NAME) == 4
        assert vectors.query(NAME, ROWS[1], 1) == [2]
        vectors.close()


def test_an_owner_that_is_killed_takes_the_child_along(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from hopnode.worker.corpus.vectors.chroma_process import ChromaProcess\n"
        "server = ChromaProcess(Path(sys.argv[1])).start(); print(server.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        owner.kill()
    until(lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE)
    with ChromaProcess(tmp_path) as again:
        assert again.pid != child


def test_two_processes_fill_one_workspace_through_one_server(
    tmp_path: Path, book: CollectionBook, open_node: Callable[..., Corpora]
) -> None:
    tests = Path(__file__).parents[4]
    environment = {**os.environ, "PYTHONPATH": f"{tests}:{tests.parent}"}
    with ChromaProcess(tmp_path / "chroma") as server:
        writers = [
            subprocess.Popen(
                [sys.executable, "-m", "support.data.ingest_forever", str(tmp_path), str(seed), server.url],
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for seed in (1, 2)
        ]
        corpora = open_node(HttpChroma(server.url))
        corpus = corpora.open("w1")
        for writer in writers:
            assert writer.stdout is not None
            said = [writer.stdout.readline() for _ in range(40)]
            assert all(said), "a writer ended by itself"
            for hit in corpus.search([book.make()], "word1 word2").hits:
                assert hit.chunk.text
        for writer in writers:
            writer.kill()
            writer.communicate()
        until(lambda: corpora.drain_vectors() == 0 and corpus.stats(book.make()).vector_lag == 0, seconds=90)
        corpus.ingest(book.make(), [NewDocument("mine", text="a last word")])
        vectors = HttpChroma(server.url)
        assert corpus.stats(book.make()).chunks > 1
        hits = corpus.search([book.make()], "a last word", lexical=0)
        assert hits.degraded == () and hits.hits[0].chunk.key == "mine"
        vectors.close()


def test_a_server_that_comes_back_elsewhere_is_found_by_those_who_ask_for_its_address(tmp_path: Path) -> None:
    with ChromaProcess(tmp_path) as first:
        address = first.url
        vectors = HttpChroma(lambda: address)
        vectors.upsert(NAME, [1, 2, 3, 4], ROWS)
    with pytest.raises(VectorsUnavailable):
        vectors.query(NAME, ROWS[2], 1)
    with ChromaProcess(tmp_path) as second:
        assert second.url != first.url
        address = second.url
        assert vectors.query(NAME, ROWS[2], 1) == [3]
        vectors.close()
