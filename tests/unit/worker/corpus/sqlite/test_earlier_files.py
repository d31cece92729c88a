"""Files of workspaces as earlier versions of Hopnode wrote them, one for each schema; none may ever become unreadable."""

import gzip
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from support.data.corpora import CollectionBook
from support.data.posting_lists import agrees_with_the_text_store

from hopnode.worker.corpus.analyzer import ANALYZER_VERSION
from hopnode.worker.corpus.corpus import Corpora, Corpus
from hopnode.worker.corpus.records import NewDocument
from hopnode.worker.corpus.sqlite.posting_segments import catch_up_postings
from hopnode.worker.corpus.sqlite.postings import PostingLists
from hopnode.worker.corpus.sqlite.reading import collection_rows
from hopnode.worker.corpus.sqlite.text_store import MIGRATIONS, TextStore

FILES = Path(__file__).parent / "earlier_files"
"""`schema-<n>.db.gz`: three documents of one chunk each that the code of that time ingested, one of them in a second
version, and a fourth that it deleted. A new schema needs a new file, made by the version before it."""
SCHEMAS = range(1, len(MIGRATIONS) + 1)


def unpacked(schema: int, root: Path) -> Path:
    path = root / "workspaces" / "w1" / "corpus.db"
    path.parent.mkdir(parents=True)
    path.write_bytes(gzip.decompress((FILES / f"schema-{schema}.db.gz").read_bytes()))
    return path


@pytest.fixture(params=SCHEMAS, ids=lambda schema: f"schema-{schema}")
def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return unpacked(request.param, tmp_path)


@pytest.fixture
def reopened(earlier: Path, open_node: Callable[..., Corpora], tmp_path: Path) -> Corpus:
    """The workspace as this version opens it; nothing of its vector index was kept."""
    return open_node(root=tmp_path).open("w1")


def shape_of(path: Path) -> dict[str, str]:
    """The statements that made the file's tables and indexes, without those of single collections."""
    connection = sqlite3.connect(path)
    made = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    connection.close()
    return {name: " ".join(sql.split()) for name, sql in made if not name.startswith(("fts_", "terms_", "grep_"))}


def columns_of(path: Path) -> set[tuple[str, str, str]]:
    connection = sqlite3.connect(path)
    found = {
        (table, column[1], column[2])
        for table in shape_of(path)
        for column in connection.execute(f"PRAGMA table_info({table})")
    }
    connection.close()
    return found


@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_files_are_of_the_schemas_that_their_names_say(schema: int, tmp_path: Path) -> None:
    connection = sqlite3.connect(unpacked(schema, tmp_path))
    assert connection.execute("PRAGMA user_version").fetchone()[0] == schema
    assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    connection.close()


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_migration_that_was_shipped_is_never_edited(schema: int, tmp_path: Path) -> None:
    TextStore(tmp_path / "new.db").close()
    unpacked_file = unpacked(schema, tmp_path)
    TextStore(unpacked_file).close()
    assert columns_of(unpacked_file) == columns_of(tmp_path / "new.db")
    assert set(shape_of(unpacked_file)) == set(shape_of(tmp_path / "new.db"))


def test_an_earlier_file_is_read_as_it_was_written(reopened: Corpus, book: CollectionBook) -> None:
    collection = book.make()
    documents = {document.key: document for document in reopened.documents(collection, limit=10)}
    assert list(documents) == ["krill", "whales.md", "搜索"]
    assert documents["whales.md"].metadata == {"sea": "all"}
    assert documents["krill"].url == "https://example.org/krill" and documents["krill"].version == 2
    assert reopened.document_text(documents["krill"].id) == "Krill is what the whale eats. Ärger für den Krill!"
    (chunk,) = reopened.read([collection], documents["whales.md"].id)
    text = reopened.document_text(documents["whales.md"].id)
    assert chunk.text == text[chunk.start : chunk.end] and chunk.heading == "Whales"
    assert reopened.chunks([collection], [chunk.id]) == [chunk]


@pytest.mark.parametrize(
    ("query", "key"),
    [("musculus", "whales.md"), ("ärger", "krill"), ("arger", "krill"), ("搜索引擎", "搜索"), ("whales", "whales.md")],
)
def test_an_earlier_file_is_found_by_its_words(reopened: Corpus, book: CollectionBook, query: str, key: str) -> None:
    for _ in range(3):  # FTS5, then rank-bm25
        hits = reopened.search([book.make()], query, dense=0).hits
        assert hits and hits[0].chunk.key == key
    assert reopened.search([book.make()], "plesiosaur", dense=0).hits == ()
    assert [chunk.key for chunk in reopened.grep([book.make()], "Balaenoptera")] == ["whales.md"]


def test_the_vectors_of_an_earlier_file_make_a_new_index(
    reopened: Corpus, book: CollectionBook, embedder: object
) -> None:
    reopened.maintain()
    assert embedder.texts == 0  # type: ignore[attr-defined]
    hits = reopened.search([book.make()], "whale blue Balaenoptera", lexical=0)
    assert hits.degraded == () and hits.hits[0].chunk.key == "whales.md" and len(hits.hits) == 3
    assert reopened.stats(book.make()).vector_lag == 0


def test_an_earlier_file_takes_changes(reopened: Corpus, book: CollectionBook) -> None:
    collection = book.make()
    assert reopened.delete(collection, ["krill"]) == 1
    (outcome,) = reopened.ingest(collection, [NewDocument("new", text="Plankton glows at night.")])
    assert outcome.status == "stored"
    found = reopened.search([collection], "plankton krill ärger", dense=0).hits
    assert [hit.chunk.key for hit in found] == ["new"]
    names = reopened.insight([collection]).phrases(["plankton", "krill"])
    assert "krill" not in names


def test_an_earlier_file_gets_posting_lists_that_hold_all_of_it(earlier: Path) -> None:
    store = TextStore(earlier)
    with store.read() as connection:
        (row,) = collection_rows(connection)
        assert row.posted_row == 0
    catch_up_postings(store, from_chunks=0, least_tail=1)
    if row.analyzer == ANALYZER_VERSION:
        with store.read() as connection:
            assert collection_rows(connection)[0].posted_row > 0
        agrees_with_the_text_store(store, PostingLists())
    else:  # they wait until the workspace is opened and indexed anew
        with store.read() as connection:
            assert collection_rows(connection)[0].posted_row == 0
    store.close()


def test_an_earlier_file_is_brought_up_to_date_once(earlier: Path, tmp_path: Path) -> None:
    for _ in range(2):
        TextStore(earlier).close()
    raw = sqlite3.connect(earlier)
    assert raw.execute("PRAGMA user_version").fetchone()[0] == len(MIGRATIONS)
    assert raw.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    assert raw.execute("PRAGMA foreign_key_check").fetchall() == []
    raw.close()
