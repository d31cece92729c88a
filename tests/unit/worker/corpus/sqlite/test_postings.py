import gzip
import hashlib
import json
import random
import threading
from collections.abc import Generator, Iterable, Sequence
from itertools import islice, pairwise
from pathlib import Path

import pytest
from rank_bm25 import BM25Okapi
from support.data.posting_lists import agrees_with_the_text_store

from hopnode.worker.corpus.analyzer import analyze
from hopnode.worker.corpus.records import ChunkSpan
from hopnode.worker.corpus.sqlite.lexical import Fts5Index
from hopnode.worker.corpus.sqlite.posting_segments import catch_up_postings
from hopnode.worker.corpus.sqlite.postings import PostingIndex, PostingLists
from hopnode.worker.corpus.sqlite.reading import CollectionRow, collection_row
from hopnode.worker.corpus.sqlite.text_store import Connection, TextStore
from hopnode.worker.corpus.sqlite.writing import (
    PreparedDocument,
    delete_documents,
    drop_collection,
    ensure_collection,
    put_document,
)

SAMPLE = Path("hopnode/node_service/commands/demo/data/2wiki-sample")


def read(name: str, limit: int) -> list[dict[str, str]]:
    with gzip.open(SAMPLE / name, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in islice(lines, limit)]


@pytest.fixture
def store(tmp_path: Path) -> Generator[TextStore]:
    store = TextStore(tmp_path / "corpus.db")
    yield store
    store.close()


def put(store: TextStore, texts: Iterable[tuple[str, str]], title: str = "", collection: str = "c1") -> None:
    """Documents of one chunk each, by key and text."""
    with store.write() as connection:
        number = ensure_collection(connection, collection).number
        for key, text in texts:
            sha = hashlib.sha256(f"{title}\n{text}".encode()).digest()
            span = ChunkSpan(text, 0, len(text), 1)
            document = PreparedDocument(key, title, None, "text/plain", "{}", text, "", sha, (), [span], [sha])
            put_document(connection, number, document)


def delete(store: TextStore, keys: Sequence[str]) -> None:
    with store.write() as connection:
        delete_documents(connection, state(connection).number, keys)


def state(connection: Connection, collection: str = "c1") -> CollectionRow:
    found = collection_row(connection, collection)
    assert found is not None
    return found


def catch_up(store: TextStore) -> None:
    catch_up_postings(store, from_chunks=0, least_tail=1)


def index(connection: Connection, lists: PostingLists | None = None, collection: str = "c1") -> PostingIndex:
    found = (lists or PostingLists()).get(connection, state(connection, collection))
    assert found is not None
    return found


def ask(found: PostingIndex | Fts5Index, query: str, limit: int = 50) -> list[int]:
    return list(islice(found.ranked(analyze(query, query=True)), limit))


def keys(store: TextStore, query: str, lists: PostingLists | None = None) -> list[str]:
    with store.read() as connection:
        statement = "SELECT d.key FROM chunk k JOIN document d ON d.id = k.document_id WHERE k.row = ?"
        return [connection.execute(statement, (row,)).fetchone()[0] for row in ask(index(connection, lists), query)]


def segments(store: TextStore) -> list[int]:
    with store.read() as connection:
        return [row[0] for row in connection.execute("SELECT chunks FROM segment ORDER BY chunks")]


def test_posting_lists_rank_as_fts5_does(store: TextStore) -> None:
    texts = [(entry["id"], f"{entry['title']}\n{entry['text']}") for entry in read("corpus.jsonl.gz", 400)]
    put(store, texts[:150])
    catch_up(store)
    put(store, texts[150:350])
    catch_up(store)
    put(store, texts[350:])  # stay in the tail
    lists = PostingLists()
    with store.read() as connection:
        mine, fts5 = index(connection, lists), Fts5Index(connection, 1, 400)
        assert len(mine.tail.lengths) == 50 and len(mine.layout.rows) == 350
        for entry in read("queries.jsonl.gz", 60):
            assert ask(mine, entry["question"]) == ask(fts5, entry["question"])
            assert set(ask(mine, entry["question"], 400)) == set(ask(fts5, entry["question"], 400))


def test_posting_lists_agree_with_rank_bm25_on_real_text(store: TextStore) -> None:
    texts = [f"{entry['title']}\n{entry['text']}" for entry in read("corpus.jsonl.gz", 400)]
    put(store, [(str(number), text) for number, text in enumerate(texts)])
    catch_up(store)
    oracle = BM25Okapi([analyze(text) for text in texts], k1=1.2, b=0.75)
    with store.read() as connection:
        mine = index(connection)
        for entry in read("queries.jsonl.gz", 40):
            terms = list(dict.fromkeys(analyze(entry["question"], query=True)))
            telling = [term for term in terms if sum(term in bag for bag in oracle.doc_freqs) * 2 < len(texts)]
            scores = oracle.get_scores(telling)
            found = list(islice(mine.ranked(telling), 10))
            best = sorted(scores, reverse=True)[: len(found)]
            assert [round(float(scores[row - 1]), 6) for row in found] == [round(float(one), 6) for one in best]


def test_the_guard_against_common_terms_is_that_of_fts5(store: TextStore) -> None:
    put(store, [(str(number), f"common word{number}") for number in range(100)])
    catch_up(store)
    with store.read() as connection:
        connection.execute("UPDATE collection SET chunks = 6000")  # as if there were more, in this transaction only
        mine, fts5 = index(connection), Fts5Index(connection, 1, 6000)
        assert ask(mine, "common word7", 200) == ask(fts5, "common word7", 200)


def test_what_is_written_is_found_at_once_and_what_is_deleted_is_gone_at_once(store: TextStore) -> None:
    lists = PostingLists()
    put(store, [("a", "alpha whale"), ("b", "beta whale"), ("c", "gamma whale")])
    catch_up(store)
    assert keys(store, "whale", lists) == ["a", "b", "c"]
    put(store, [("d", "delta whale"), ("b", "beta walrus")])
    assert set(keys(store, "whale", lists)) == {"a", "c", "d"} and keys(store, "walrus", lists) == ["b"]
    delete(store, ["a", "d"])
    assert keys(store, "whale", lists) == ["c"] and keys(store, "alpha delta", lists) == []
    catch_up(store)
    assert keys(store, "whale", lists) == keys(store, "whale") == ["c"]


def test_a_new_title_is_found_and_the_old_one_is_not(store: TextStore) -> None:
    put(store, [("a", "a text"), ("b", "another text")], title="Whales")
    catch_up(store)
    with store.read() as connection:
        before = connection.execute("SELECT document_id, n FROM chunk ORDER BY document_id").fetchall()
    put(store, [("a", "a text"), ("b", "another text")], title="Krill")
    assert sorted(keys(store, "krill")) == ["a", "b"] and keys(store, "whales") == []
    with store.read() as connection:
        after = connection.execute("SELECT document_id, n FROM chunk ORDER BY document_id").fetchall()
    assert [tuple(row) for row in before] == [tuple(row) for row in after]


def test_a_search_keeps_to_its_snapshot_while_others_write(store: TextStore) -> None:
    lists = PostingLists()
    put(store, [("a", "whale one"), ("b", "whale two")])
    catch_up(store)
    put(store, [("c", "whale three")])
    with store.read() as old:
        before = index(old, lists)
        assert ask(before, "whale") == [1, 2, 3]
        delete(store, ["a"])
        put(store, [("d", "whale four")])
        with store.read() as new:
            assert ask(index(new, lists), "whale") == [2, 3, 4]
        assert ask(index(old, lists), "whale") == [1, 2, 3]
        catch_up(store)
        with store.read() as new:
            assert ask(index(new, lists), "whale") == [2, 3, 4]
        again = lists.get(old, state(old))
        assert again is None or ask(again, "whale") == [1, 2, 3]  # None: FTS5 answers for the old snapshot
        assert ask(before, "whale") == [1, 2, 3]


def test_before_the_first_segment_and_behind_a_long_tail_the_answer_is_left_to_fts5(store: TextStore) -> None:
    lists = PostingLists(longest_tail=5)
    put(store, [("a", "whale")])
    with store.read() as connection:
        assert lists.get(connection, state(connection)) is None
    catch_up(store)
    put(store, [(f"b{number}", f"whale {number}") for number in range(6)])
    with store.read() as connection:
        assert lists.get(connection, state(connection)) is None
    delete(store, ["b0"])
    assert len(keys(store, "whale", lists)) == 6
    for number in range(40):  # a tail that changes all the time is not remembered for ever
        put(store, [("b1", f"whale again{number}")])
        assert len(keys(store, "whale", lists)) == 6
    with store.read() as connection:
        assert len(index(connection, lists).tail.lengths) <= 5 + 2 * 5 + 1


def test_small_segments_become_large_ones(store: TextStore) -> None:
    for number in range(40):
        put(store, [(str(number), f"whale of case{number}")])
        catch_up(store)
        sizes = segments(store)
        assert sum(sizes) == number + 1
        assert all(large >= 2 * small for small, large in pairwise(sizes))
    assert len(keys(store, "whale")) == 40
    assert keys(store, "case17") == ["17"]


def test_segments_full_of_deleted_chunks_are_written_again(store: TextStore) -> None:
    put(store, [(str(number), f"whale of case{number}") for number in range(40)])
    catch_up(store)
    delete(store, [str(number) for number in range(5)])
    catch_up(store)
    assert segments(store) == [40]
    delete(store, [str(number) for number in range(5, 20)])
    catch_up(store)
    assert segments(store) == [20]
    with store.read() as connection:
        assert index(connection).frequencies(["whale", "case3", "case30"]) == {"whale": 20, "case30": 1}
        assert connection.execute("SELECT count(*) FROM posting WHERE term = 'case3'").fetchone()[0] == 0
    delete(store, [str(number) for number in range(20, 40)])
    catch_up(store)
    assert segments(store) == []


def test_any_history_leaves_each_chunk_in_one_place_and_found_by_its_words(store: TextStore) -> None:
    draw = random.Random(7)
    words = ["whale", "krill", "검색 엔진", "検索", "Ärger", "head", "x" * 90, "blow", "comet"]
    lists = PostingLists()
    for _ in range(80):
        act = draw.random()
        some = [f"k{draw.randrange(30)}" for _ in range(draw.randrange(1, 6))]
        if act < 0.5:
            texts = [(key, " ".join(draw.choices(words, k=draw.randrange(1, 30)))) for key in dict.fromkeys(some)]
            put(store, texts, title=draw.choice(["", "Whales", "검색"]))
        elif act < 0.75 and segments(store):
            delete(store, some)
        else:
            catch_up(store)
        agrees_with_the_text_store(store, lists)


def test_two_that_catch_up_at_once_do_not_double_anything(store: TextStore, tmp_path: Path) -> None:
    put(store, [(str(number), f"whale of case{number}") for number in range(300)])
    others = [TextStore(tmp_path / "corpus.db") for _ in range(3)]
    threads = [threading.Thread(target=catch_up, args=(other,)) for other in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for other in others:
        other.close()
    catch_up(store)
    assert sum(segments(store)) == 300
    agrees_with_the_text_store(store, PostingLists())


def test_one_word_a_thousand_times_is_no_overflow(store: TextStore) -> None:
    put(store, [("a", "whale " * 1_000), ("b", "whale " * 256 + "krill"), ("c", "krill")])
    catch_up(store)
    with store.read() as connection:
        assert set(ask(index(connection), "whale")) == {1, 2}
        assert ask(index(connection), "krill") == ask(Fts5Index(connection, 1, 3), "krill") == [3, 2]


def test_a_collection_takes_its_posting_lists_along(store: TextStore) -> None:
    put(store, [("a", "whale")])
    put(store, [("a", "whale")], collection="c2")
    catch_up(store)
    assert segments(store) == [1, 1]
    with store.write() as connection:
        drop_collection(connection, state(connection), [])
    assert segments(store) == [1]
    with store.read() as connection:
        assert connection.execute("SELECT count(*) FROM posting").fetchone()[0] == 1
        assert ask(index(connection, collection="c2"), "whale") == [2]


@pytest.mark.parametrize("query", ["nothing of this", "!!", "", "\ud800", "a" * 10_000, "' OR 1; --"])
def test_odd_queries_find_nothing(store: TextStore, query: str) -> None:
    put(store, [("a", "whale")])
    catch_up(store)
    assert keys(store, query) == []
