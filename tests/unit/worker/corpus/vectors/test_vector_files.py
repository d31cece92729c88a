import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.data.corpora import CollectionBook

from hopnode.worker.corpus.corpus import Corpora
from hopnode.worker.corpus.records import NewDocument
from hopnode.worker.corpus.sqlite.outbox import vector_name
from hopnode.worker.corpus.vectors.chroma import EmbeddedChroma, HttpChroma, VectorsDamaged
from hopnode.worker.corpus.vectors.chroma_files import damaged_indexes, unused_folders
from hopnode.worker.corpus.vectors.chroma_process import ChromaProcess

NAME = "hn-w1-c1-g1"
OTHER = "hn-w1-c2-g1"
ROWS = np.random.default_rng(0).standard_normal((300, 16)).astype(np.float32)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Chroma folder with two indexes on disk."""
    folder = tmp_path_factory.mktemp("chroma")
    chroma = EmbeddedChroma(folder)
    for name in (NAME, OTHER):
        chroma.upsert(name, list(range(300)), ROWS)
    chroma.upsert(NAME, list(range(200, 500)), ROWS)
    chroma.delete(NAME, list(range(150)))
    chroma.upsert("hn-w1-c3-g1", [1], ROWS[:1])  # too small for files of its own
    chroma.close()
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "chroma")


def files(folder: Path, name: str) -> list[Path]:
    """One file of each index, that of the largest, which is `NAME`'s, first."""

    def vectors(path: Path) -> int:
        return (path.parent / "data_level0.bin").stat().st_size

    return sorted(folder.glob(f"*/{name}"), key=vectors, reverse=True)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def remove(path: Path) -> None:
    path.unlink()


def swap(path: Path) -> None:
    """As it was when the index was smaller: what a kill between two files leaves."""
    shutil.copy(files(path.parents[1], path.name)[1], path)


DAMAGES = [
    ("header.bin", empty),
    ("header.bin", cut),
    ("header.bin", remove),
    ("data_level0.bin", empty),
    ("data_level0.bin", cut),
    ("data_level0.bin", swap),
    ("link_lists.bin", empty),
    ("link_lists.bin", cut),
    ("link_lists.bin", swap),
    ("index_metadata.pickle", empty),
    ("index_metadata.pickle", cut),
    ("index_metadata.pickle", remove),
    ("length.bin", remove),
]


def test_whole_indexes_are_whole(folder: Path, tmp_path: Path) -> None:
    assert len(files(folder, "header.bin")) == 3 and len(files(folder, "index_metadata.pickle")) == 2
    assert damaged_indexes(folder) == []
    assert damaged_indexes(tmp_path / "nothing") == []


@pytest.mark.parametrize(("name", "damage"), DAMAGES)
def test_a_half_written_index_is_noticed_and_only_it(folder: Path, name: str, damage: Callable[[Path], None]) -> None:
    damage(files(folder, name)[0])
    assert damaged_indexes(folder) == [NAME]


@pytest.mark.parametrize(("name", "damage"), [("link_lists.bin", empty), ("index_metadata.pickle", cut)])
def test_opening_the_folder_drops_the_damaged_index_and_keeps_the_others(
    folder: Path, name: str, damage: Callable[[Path], None]
) -> None:
    damage(files(folder, name)[0])
    chroma = EmbeddedChroma(folder)
    assert chroma.count(NAME) is None
    assert chroma.query(OTHER, ROWS[7], 1) == [7]
    chroma.upsert(NAME, [1, 2], ROWS[:2])
    assert chroma.query(NAME, ROWS[1], 2)[0] == 2
    chroma.close()
    assert damaged_indexes(folder) == []


def test_damage_is_noticed_also_where_the_kill_broke_off_a_transaction_of_the_catalogue(folder: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _BROKEN_OFF, str(folder / "chroma.sqlite3")], check=False)
    assert done.returncode == -signal.SIGKILL and (folder / "chroma.sqlite3-journal").stat().st_size > 0
    empty(files(folder, "link_lists.bin")[0])
    assert damaged_indexes(folder) == [NAME]


_BROKEN_OFF = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")  # what does not fit is written to the file before the commit
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE collections SET name = name || 'x'")
connection.execute("CREATE TABLE filler (content)")
connection.executemany("INSERT INTO filler VALUES (?)", [(b"x" * 3000,)] * 400)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_files_of_dropped_indexes_go_at_the_next_start(folder: Path) -> None:
    chroma = EmbeddedChroma(folder)
    chroma.drop(OTHER)
    chroma.close()
    (left,) = unused_folders(folder)
    (folder / "notes").mkdir()
    EmbeddedChroma(folder).close()
    assert not left.exists() and unused_folders(folder) == []
    assert (folder / "notes").exists() and len(files(folder, "header.bin")) == 2


def test_nothing_is_unused_where_there_is_no_catalogue(tmp_path: Path) -> None:
    kept = tmp_path / "046aad23-6694-4896-9d0b-7a81242e33ec"
    kept.mkdir()
    assert unused_folders(tmp_path) == []
    (tmp_path / "chroma.sqlite3").write_text("no database")
    assert unused_folders(tmp_path) == []


@pytest.mark.slow
def test_the_server_starts_on_a_damaged_folder_without_the_damaged_index(folder: Path) -> None:
    empty(files(folder, "link_lists.bin")[0])
    with ChromaProcess(folder) as server:
        vectors = HttpChroma(server.url)
        assert vectors.count(NAME) is None
        assert vectors.query(OTHER, ROWS[7], 1) == [7]
        vectors.close()


@pytest.mark.slow
def test_an_index_damaged_under_a_running_server_is_told_from_one_that_is_out_of_reach(folder: Path) -> None:
    with ChromaProcess(folder) as server:
        cut(files(folder, "index_metadata.pickle")[0])
        vectors = HttpChroma(server.url)
        with pytest.raises(VectorsDamaged):
            vectors.query(NAME, ROWS[0], 1)
        assert vectors.query(OTHER, ROWS[7], 1) == [7]
        vectors.close()


DOCUMENTS = [NewDocument(f"{number:03}", text=f"text number{number}") for number in range(250)]


def opened_then_damaged(open_node: Callable[..., Corpora], book: CollectionBook, root: Path) -> EmbeddedChroma:
    """Chroma with an index of 250 chunks that is damaged after the look at the start."""
    first = open_node()
    first.open("w1").ingest(book.make(), DOCUMENTS)
    first.close()
    chroma = EmbeddedChroma(root / "chroma")
    cut(files(root / "chroma", "index_metadata.pickle")[0])
    return chroma


def test_an_index_that_turns_out_damaged_is_built_again_while_the_node_runs(
    open_node: Callable[..., Corpora], book: CollectionBook, tmp_path: Path
) -> None:
    chroma = opened_then_damaged(open_node, book, tmp_path)
    second = open_node(chroma)
    corpus = second.open("w1")
    assert corpus.search([book.make()], "text number3").degraded == ("vectors-unavailable",)
    second.drain_vectors()
    found = corpus.search([book.make()], "text number3", lexical=0)
    assert found.degraded == () and found.hits[0].chunk.key == "003"
    assert chroma.count(vector_name("w1", "c1", 2)) == 250
    assert chroma.count(vector_name("w1", "c1", 1)) is None


@pytest.mark.slow
def test_documents_that_arrive_at_a_damaged_index_are_in_the_new_one(
    open_node: Callable[..., Corpora], book: CollectionBook, tmp_path: Path
) -> None:
    chroma = opened_then_damaged(open_node, book, tmp_path)
    corpora = open_node(chroma)
    corpus = corpora.open("w1")
    corpus.ingest(book.make(), [NewDocument("new", text="something else entirely"), *DOCUMENTS[:5]])
    corpora.drain_vectors()
    assert corpus.stats(book.make()).vector_lag == 0
    assert chroma.count(vector_name("w1", "c1", 2)) == 251
