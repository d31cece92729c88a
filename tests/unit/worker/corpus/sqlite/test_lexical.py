import gzip
import json
import sqlite3
from collections.abc import Callable, Generator
from itertools import islice
from pathlib import Path

import pytest
from rank_bm25 import BM25Okapi
from support.data.corpora import CollectionBook

from hopnode.worker.corpus.analyzer import analyze
from hopnode.worker.corpus.corpus import Corpora
from hopnode.worker.corpus.records import NewDocument
from hopnode.worker.corpus.sqlite.lexical import (
    Fts5Index,
    RankBm25Index,
    SmallIndexes,
    add_to_index,
    create_index,
    remove_from_index,
)
from hopnode.worker.corpus.sqlite.text_store import Connection, TextStore
from hopnode.worker.corpus.sqlite.writing import ensure_collection

SAMPLE = Path("hopnode/node_service/commands/demo/data/2wiki-sample")


def read(name: str, limit: int) -> list[dict[str, str]]:
    with gzip.open(SAMPLE / name, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in islice(lines, limit)]


@pytest.fixture
def connection() -> Generator[Connection]:
    connection = sqlite3.connect(":memory:")
    create_index(connection, 1)
    yield connection
    connection.close()


def fts(connection: Connection, texts: list[str], chunks: int | None = None) -> Fts5Index:
    for row, text in enumerate(texts, start=1):
        add_to_index(connection, 1, row, text)
    return Fts5Index(connection, 1, chunks or len(texts))


def in_memory(texts: list[str]) -> RankBm25Index:
    return RankBm25Index(range(1, len(texts) + 1), [analyze(text) for text in texts])


def ask(index: Fts5Index | RankBm25Index, query: str, limit: int = 10) -> list[int]:
    return list(islice(index.ranked(analyze(query, query=True)), limit))


def test_fts5_ranks_like_rank_bm25_on_real_text(connection: Connection) -> None:
    texts = [f"{entry['title']}\n{entry['text']}" for entry in read("corpus.jsonl.gz", 400)]
    queries = [entry["question"] for entry in read("queries.jsonl.gz", 40)]
    index = fts(connection, texts)
    oracle = BM25Okapi([analyze(text) for text in texts], k1=1.2, b=0.75)
    for query in queries:
        terms = list(dict.fromkeys(analyze(query, query=True)))
        # FTS5 gives a term of more than half of the texts no weight, rank-bm25's Okapi a small one: ask without those.
        telling = [term for term in terms if sum(term in bag for bag in oracle.doc_freqs) * 2 < len(texts)]
        scores = oracle.get_scores(telling)
        found = list(islice(index.ranked(telling), 10))
        best = sorted(scores, reverse=True)[: len(found)]
        assert [round(float(scores[row - 1]), 6) for row in found] == [round(float(score), 6) for score in best]


def test_both_engines_rank_alike(connection: Connection) -> None:
    texts = [f"{entry['title']}\n{entry['text']}" for entry in read("corpus.jsonl.gz", 400)]
    index, small = fts(connection, texts), in_memory(texts)
    for entry in read("queries.jsonl.gz", 40):
        assert ask(index, entry["question"]) == ask(small, entry["question"])


@pytest.mark.parametrize("query", ["nothing of this", "검색", "!!", ""])
def test_a_chunk_without_a_term_of_the_query_is_not_ranked(connection: Connection, query: str) -> None:
    texts = ["alpha beta", "beta gamma", "데이터"]
    assert ask(fts(connection, texts), query) == []
    assert ask(in_memory(texts), query) == []


@pytest.mark.parametrize("texts", [["alpha"], ["alpha", "alpha"], ["alpha", "beta"], ["alpha", "", "!"]])
def test_the_smallest_collections_can_be_searched(connection: Connection, texts: list[str]) -> None:
    expected = [row for row, text in enumerate(texts, start=1) if text == "alpha"]
    assert ask(fts(connection, texts), "alpha") == expected
    assert ask(in_memory(texts), "Alpha?") == expected


def test_an_empty_collection_gives_nothing(connection: Connection) -> None:
    assert ask(fts(connection, []), "alpha") == []
    assert ask(in_memory([]), "alpha") == []
    assert ask(in_memory(["", "?"]), "alpha") == []


@pytest.mark.parametrize("query", ['"', "alpha OR", "NEAR(alpha", "alpha* ^beta -gamma", "col:alpha", "' ; --"])
def test_a_query_is_never_read_as_fts5_syntax(connection: Connection, query: str) -> None:
    texts = ["alpha or near", "beta col"]
    assert set(ask(fts(connection, texts), query)) == set(ask(in_memory(texts), query))


@pytest.mark.parametrize(
    ("query", "found"),
    [("검색", [1, 2]), ("検索", [3]), ("搜索", [4]), ("猫", [5]), ("京都", [3]), ("数据库", [4]), ("ค้นหา", [6])],
)
def test_two_and_one_character_queries_find_cjk_text(connection: Connection, query: str, found: list[int]) -> None:
    texts = [
        "데이터베이스에서 검색 엔진을 설치하는 방법",
        "검색엔진의 성능을 높이려면",
        "東京都の図書館で全文検索システムを導入した",
        "数据库的搜索引擎",
        "猫がソファで眠っている",
        "ระบบค้นหาข้อความในฐานข้อมูล",
    ]
    assert sorted(ask(fts(connection, texts), query)) == found
    assert sorted(ask(in_memory(texts), query)) == found


def test_a_removed_chunk_leaves_no_trace(connection: Connection) -> None:
    index = fts(connection, ["alpha beta", "alpha gamma"])
    remove_from_index(connection, 1, 1, "alpha beta")
    assert ask(index, "alpha beta gamma") == [2]
    assert connection.execute("SELECT term FROM terms_1 ORDER BY term").fetchall() == [("alpha",), ("gamma",)]
    connection.execute("INSERT INTO fts_1 (fts_1) VALUES ('integrity-check')")


def test_terms_that_are_nearly_everywhere_are_left_out_in_large_collections(connection: Connection) -> None:
    texts = [f"common word{row}" for row in range(1, 101)]
    small, large = fts(connection, texts), Fts5Index(connection, 1, 100_000)
    assert len(ask(small, "common word7", 200)) == 100
    guarded = Fts5Index(connection, 1, 5_000)
    assert ask(guarded, "common word7", 200)[0] == 7
    assert ask(large, "common", 200) != []
    # 'common' is in all of the 100 chunks, but only in a fraction of the claimed 100,000: the guard looks at the share.
    assert len(ask(large, "common word7", 200)) == 100


def test_a_query_of_hundreds_of_words_is_answered(connection: Connection) -> None:
    texts = ["needle in hay", "hay"]
    query = " ".join(f"filler{number}" for number in range(2_000)) + " needle"
    assert ask(fts(connection, texts), query) == [1]


def test_rank_bm25_is_built_when_a_version_is_asked_for_twice(tmp_path: Path) -> None:
    store = TextStore(tmp_path / "corpus.db")
    indexes = SmallIndexes()
    with store.write() as connection:
        number = ensure_collection(connection, "c1").number
        assert indexes.get(connection, number, 1) is None
        assert indexes.get(connection, number, 1) is not None
        assert indexes.get(connection, number, 2) is None
        assert indexes.get(connection, number, 3) is None
        assert indexes.get(connection, number, 3) is not None
    store.close()


def test_an_index_of_an_older_analyzer_is_made_again_when_the_workspace_is_opened(
    open_node: Callable[..., Corpora], book: CollectionBook, tmp_path: Path
) -> None:
    first = open_node()
    first.open("w1").ingest(book.make(), [NewDocument("a", text="alpha beta")])
    first.close()
    store = TextStore(tmp_path / "workspaces" / "w1" / "corpus.db")
    with store.write() as connection:
        remove_from_index(connection, 1, 1, "alpha beta")
        add_to_index(connection, 1, 1, "ALPH")  # as an analyzer might have done that cut words
        connection.execute("UPDATE collection SET analyzer = 0")
    store.close()
    corpus = open_node().open("w1")
    assert corpus.search([book.make()], "alpha", dense=0).hits
    assert not corpus.search([book.make()], "alph", dense=0).hits
    corpus.delete(book.make(), ["a"])
    again = TextStore(tmp_path / "workspaces" / "w1" / "corpus.db")
    with again.read() as connection:
        assert connection.execute("SELECT count(*) FROM terms_1").fetchone()[0] == 0
    again.close()
