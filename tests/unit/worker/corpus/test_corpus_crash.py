import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from support.data.corpora import CollectionBook
from support.data.posting_lists import agrees_with_the_text_store

from hopnode.worker.corpus.analyzer import analyze
from hopnode.worker.corpus.corpus import Corpora
from hopnode.worker.corpus.sqlite.lexical import chunk_texts
from hopnode.worker.corpus.sqlite.outbox import vector_name
from hopnode.worker.corpus.sqlite.postings import PostingLists
from hopnode.worker.corpus.sqlite.reading import collection_rows
from hopnode.worker.corpus.sqlite.text_store import TextStore
from hopnode.worker.corpus.vectors.chroma import EmbeddedChroma

pytestmark = pytest.mark.slow


def start(root: Path, seed: int, *more: str) -> "subprocess.Popen[str]":
    tests = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": f"{tests}:{tests.parent}"}
    command = [sys.executable, "-m", "support.data.ingest_forever", str(root), str(seed), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def run_and_kill(root: Path, seed: int, lines: int) -> list[str]:
    """What the process said before it was killed, at a moment of chance after `lines` lines."""
    said: list[str] = []
    with start(root, seed) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line.strip())
            if len(said) == lines:
                threading.Timer(random.Random(seed).uniform(0, 0.05), process.send_signal, [signal.SIGKILL]).start()
    assert process.returncode == -signal.SIGKILL
    return said


def assert_whole(root: Path, chroma: EmbeddedChroma) -> None:
    store = TextStore(root / "workspaces" / "w1" / "corpus.db")
    with store.read() as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        assert connection.execute("SELECT count(*) FROM outbox").fetchone()[0] == 0
        for row in collection_rows(connection):
            rows = [one[0] for one in connection.execute("SELECT row FROM chunk WHERE collection = ?", (row.number,))]
            assert row.chunks == len(rows)
            expected = Counter(term for text in chunk_texts(connection, rows).values() for term in set(analyze(text)))
            assert dict(connection.execute(f"SELECT term, doc FROM terms_{row.number}").fetchall()) == expected
            assert chroma.count(vector_name("w1", row.id, row.generation)) == len(rows)
            segments = "SELECT count(*) FROM posting WHERE segment NOT IN (SELECT id FROM segment)"
            assert connection.execute(segments).fetchone()[0] == 0
    agrees_with_the_text_store(store, PostingLists())
    store.close()


def test_a_process_that_is_killed_at_any_moment_leaves_a_whole_store(
    open_node: Callable[..., Corpora], book: CollectionBook, tmp_path: Path
) -> None:
    last: dict[str, str | None] = {}
    for seed in range(8):
        for line in run_and_kill(tmp_path, seed, lines=5 + 3 * seed):
            word, *rest = line.split()
            if word == "deleted":
                last.update(dict.fromkeys(rest))
            elif word in ("stored", "unchanged"):
                last[rest[0]] = rest[1]
        chroma = EmbeddedChroma(tmp_path / "chroma")
        corpora = open_node(chroma)
        corpora.drain_vectors()
        assert_whole(tmp_path, chroma)
        corpus = corpora.open("w1")
        stored = {document.key: document for document in corpus.documents(book.make(), limit=100)}
        for document in stored.values():
            text = corpus.document_text(document.id)
            for chunk in corpus.read([book.make()], document.id):
                assert chunk.text == text[chunk.start : chunk.end]
        # What was reported is there; the process may have done one thing more than it could say.
        firsts = {key: corpus.document_text(document.id).split()[0] for key, document in stored.items()}
        differing = [key for key, first in last.items() if firsts.get(key) != first]
        assert len(differing) <= 2
        last = {key: firsts.get(key) for key in {*last, *firsts}}
        corpora.close()


def test_a_second_process_on_the_folder_is_refused(tmp_path: Path) -> None:
    with start(tmp_path, 0) as first:
        assert first.stdout is not None and first.stdout.readline() == "ready\n"
        second = subprocess.run(
            [sys.executable, "-c", _OPEN, str(tmp_path / "chroma")],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        first.kill()
    assert second.returncode != 0
    assert f"in use by process {first.pid} (embedded node)" in second.stderr
    assert "HOPNODE_DATA_DIR" in second.stderr


_OPEN = """
import sys
from pathlib import Path
from hopnode.worker.corpus.vectors.chroma import EmbeddedChroma
EmbeddedChroma(Path(sys.argv[1]))
"""
