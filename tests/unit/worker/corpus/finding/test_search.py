import gzip
import json
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from support.data.corpora import CollectionBook, WordEmbedder, open_corpora
from support.servers.embeddings_server import EmbeddingsServer

from hopnode.worker.corpus.corpus import Corpora, Corpus
from hopnode.worker.corpus.records import NewDocument, SearchHits
from hopnode.worker.corpus.sqlite import lexical
from hopnode.worker.corpus.vectors.chroma import EmbeddedChroma, HttpChroma
from hopnode.worker.errors import InvalidRequest, ModelUnavailable, VectorsUnavailable
from hopnode.worker.inference.embedding.embedder import Embedders

NOUNS = ["whale", "glacier", "violin", "harbour", "lantern", "meadow", "comet", "turbine"]
ADJECTIVES = ["blue", "silent", "broken", "distant", "heavy"]


def documents(count: int = 60) -> list[NewDocument]:
    return [
        NewDocument(
            f"d{number:03}",
            text=f"The {ADJECTIVES[number % 5]} {NOUNS[number % 8]} of case{number} and item{number % 7}.",
            title=f"Case {number}",
            metadata={"number": number, "group": f"g{number % 3}", "tags": [f"t{number % 2}"]},
        )
        for number in range(count)
    ]


def keys(hits: SearchHits) -> list[str]:
    return [hit.chunk.key for hit in hits.hits]


def test_both_legs_find_and_the_fused_order_says_where(corpus: Corpus, book: CollectionBook) -> None:
    corpus.ingest(book.make(), documents())
    hits = corpus.search([book.make()], "the blue whale of case0")
    assert keys(hits)[0] == "d000"
    first = hits.hits[0]
    assert (first.dense_rank, first.lexical_rank) == (1, 1)
    assert [hit.score for hit in hits.hits] == sorted((hit.score for hit in hits.hits), reverse=True)
    assert hits.degraded == () and hits.vector_lag == 0 and hits.index_version > 0


def test_k_and_the_leg_sizes_are_kept(corpus: Corpus, book: CollectionBook) -> None:
    corpus.ingest(book.make(), documents())
    hits = corpus.search([book.make()], "the whale", k=7)
    assert len(hits.hits) == 7
    hits = corpus.search([book.make()], "the whale", dense=3, lexical=4)
    assert sum(hit.dense_rank is not None for hit in hits.hits) == 3
    assert sum(hit.lexical_rank is not None for hit in hits.hits) == 4
    assert all(hit.dense_rank is None for hit in corpus.search([book.make()], "whale", dense=0).hits)
    assert all(hit.lexical_rank is None for hit in corpus.search([book.make()], "whale", lexical=0).hits)


def test_a_leg_that_does_not_hold_a_chunk_can_count_as_a_rank_of_its_own(corpus: Corpus, book: CollectionBook) -> None:
    corpus.ingest(book.make(dense_weight=0.5), documents())
    collection = [book.make(dense_weight=0.5)]
    counted = corpus.search(collection, "the blue whale", missing_rank=20)
    plain = corpus.search(collection, "the blue whale")
    for hit in counted.hits:
        ranks = (hit.dense_rank or 20, hit.lexical_rank or 20)
        assert hit.score == pytest.approx(sum(0.5 / (60 + rank) for rank in ranks))
    assert set(keys(counted)) == set(keys(plain))


def test_excluded_chunks_take_no_place(corpus: Corpus, book: CollectionBook) -> None:
    corpus.ingest(book.make(), documents())
    seen: set[str] = set()
    for _ in range(6):
        hits = corpus.search([book.make()], "the blue whale", k=10, dense=10, lexical=10, exclude=seen)
        assert len(hits.hits) == 10
        assert seen.isdisjoint(hit.chunk.id for hit in hits.hits)
        seen |= {hit.chunk.id for hit in hits.hits}
    assert len(seen) == 60
    assert corpus.search([book.make()], "the blue whale", exclude=seen).hits == ()


@pytest.mark.parametrize(
    ("wanted", "allowed"),
    [
        ({"group": "g1"}, lambda number: number % 3 == 1),
        ({"number": {"gte": 50}}, lambda number: number >= 50),
        ({"tags": "t1", "group": {"in": ["g0", "g2"]}}, lambda number: number % 2 == 1 and number % 3 != 1),
        ({"group": "nope"}, lambda number: False),
    ],
)
def test_a_filter_is_exact_in_every_leg(
    corpus: Corpus, book: CollectionBook, wanted: dict[str, object], allowed: Callable[[int], bool]
) -> None:
    corpus.ingest(book.make(), documents())
    expected = {f"d{number:03}" for number in range(60) if allowed(number)}
    for legs in ({"lexical": 0}, {"dense": 0}, {}):
        limits = {"dense": 60, "lexical": 60, "k": 60} | legs
        hits = corpus.search([book.make()], "the whale of the case", filter=wanted, **limits)  # type: ignore[arg-type]
        assert set(keys(hits)) == expected


def test_a_filter_that_leaves_few_of_many_still_fills_the_legs(corpus: Corpus, book: CollectionBook) -> None:
    corpus.ingest(book.make(), documents(300))
    hits = corpus.search([book.make()], "blue whale of case0", k=5, dense=5, lexical=5, filter={"number": {"gte": 290}})
    assert len(hits.hits) == 5
    hits = corpus.search([book.make()], "whale of case0", dense=8, lexical=0, filter={"number": {"gte": 290}})
    assert len(hits.hits) == 8 and all(key >= "d290" for key in keys(hits))


def test_a_wide_filter_of_a_large_collection_is_answered_through_chroma_and_exact(
    corpus: Corpus, book: CollectionBook
) -> None:
    corpus.ingest(book.make(), documents(1_600))
    corpus.delete(book.make(), [f"d{number:03}" for number in range(30)])
    hits = corpus.search([book.make()], "the whale of the case", dense=40, lexical=0, filter={"tags": "t1"})
    assert len(hits.hits) == 40 and all(hit.chunk.metadata["tags"] == ["t1"] for hit in hits.hits)
    everything = corpus.search([book.make()], "whale", k=2_000, dense=2_000, lexical=0, filter={"number": {"gte": 0}})
    assert len(everything.hits) == 1_570


def test_a_filter_that_cannot_be_read_is_the_callers_mistake(corpus: Corpus, book: CollectionBook) -> None:
    corpus.ingest(book.make(), documents(3))
    with pytest.raises(InvalidRequest):
        corpus.search([book.make()], "whale", filter={"group": {"like": "g%"}})
    with pytest.raises(InvalidRequest):
        corpus.grep([book.make()], "whale", filter={"group": ["g1"]})


def test_a_deleted_document_is_never_returned_while_the_vectors_lag(
    open_node: Callable[..., Corpora], book: CollectionBook, tmp_path: Path
) -> None:
    chroma = _Stoppable(tmp_path / "chroma")
    corpus = open_node(chroma).open("w1")
    corpus.ingest(book.make(), documents())
    chroma.stopped_writes = True
    assert corpus.delete(book.make(), ["d000", "d008"]) == 2
    corpus.ingest(book.make(), [NewDocument("d001", text="Rewritten about a blue whale of case0.", title="Case 1")])
    hits = corpus.search([book.make()], "the blue whale of case0", k=60, dense=60, lexical=60)
    assert hits.vector_lag > 0 and hits.degraded == ()
    assert not {"d000", "d008"} & set(keys(hits))
    assert len(hits.hits) == 58
    for hit in hits.hits:
        assert hit.chunk.text == corpus.document_text(hit.chunk.document_id)[hit.chunk.start : hit.chunk.end]
    chroma.stopped_writes = False
    assert corpus.maintain() > 0
    assert corpus.search([book.make()], "whale").vector_lag == 0


def test_without_chroma_words_are_enough_and_the_result_says_so(
    open_node: Callable[..., Corpora], book: CollectionBook
) -> None:
    corpus = open_node(HttpChroma("http://127.0.0.1:9")).open("w1")
    assert {outcome.status for outcome in corpus.ingest(book.make(), documents())} == {"stored"}
    hits = corpus.search([book.make()], "the blue whale of case0")
    assert keys(hits)[0] == "d000"
    assert hits.degraded == ("vectors-unavailable",) and hits.vector_lag == 60
    corpus.delete(book.make(), ["d000"])
    assert "d000" not in keys(corpus.search([book.make()], "the blue whale of case0"))


def test_vectors_that_could_not_be_told_are_told_when_chroma_is_back(
    open_node: Callable[..., Corpora], book: CollectionBook, tmp_path: Path
) -> None:
    chroma = _Stoppable(tmp_path / "chroma")
    chroma.stopped_writes = True
    corpora = open_node(chroma)
    corpus = corpora.open("w1")
    corpus.ingest(book.make(), documents())
    corpus.delete(book.make(), ["d000"])
    assert corpus.search([book.make()], "whale").degraded == ("vectors-unavailable",)
    chroma.stopped_writes = False
    assert corpora.drain_vectors() == 61
    hits = corpus.search([book.make()], "the blue whale", k=60, dense=60, lexical=0)
    assert hits.degraded == () and hits.vector_lag == 0
    assert len(hits.hits) == 59 and "d000" not in keys(hits)


def test_an_embedder_that_is_away_leaves_the_words(
    corpus: Corpus, book: CollectionBook, embedder: WordEmbedder
) -> None:
    corpus.ingest(book.make(), documents())

    def away(texts: Sequence[str]) -> None:
        raise ModelUnavailable("The embeddings endpoint did not answer in time.")

    embedder.on_embed = away
    hits = corpus.search([book.make()], "the blue whale of case0")
    assert keys(hits)[0] == "d000" and hits.degraded == ("embedder-unavailable",)


def test_collections_with_different_embedders_are_searched_together(corpus: Corpus, book: CollectionBook) -> None:
    words, use = book.make("c1"), book.make("c2", embedder="use", dense_weight=0.5)
    corpus.ingest(words, [NewDocument("a", text="The whale swims south."), NewDocument("b", text="A violin is heard.")])
    corpus.ingest(use, [NewDocument("c", text="Whales migrate in winter."), NewDocument("d", text="Taxes are due.")])
    hits = corpus.search([words, use], "where does the whale swim")
    assert set(keys(hits)[:2]) == {"a", "c"}
    assert {hit.chunk.collection_id for hit in hits.hits} == {"c1", "c2"}
    assert hits.index_version == sum(corpus.stats(one).index_version for one in (words, use))


def test_the_weight_of_a_collection_decides_between_the_legs(corpus: Corpus, book: CollectionBook) -> None:
    corpus.ingest(book.make("c1", dense_weight=0.0), documents(5))
    corpus.ingest(book.make("c2", dense_weight=1.0), documents(5))
    assert all(hit.dense_rank is None for hit in corpus.search([book.make("c1")], "blue whale").hits)
    assert all(hit.lexical_rank is None for hit in corpus.search([book.make("c2")], "blue whale").hits)


@pytest.mark.parametrize(
    ("query", "key"),
    [("검색", "ko"), ("検索", "ja"), ("搜索", "zh"), ("ค้นหา", "th"), ("猫", "cat"), ("エンジン", "ja")],
)
def test_short_queries_find_text_without_spaces(corpus: Corpus, book: CollectionBook, query: str, key: str) -> None:
    collection = book.make(embedder="use")
    corpus.ingest(
        collection,
        [
            NewDocument("ko", text="데이터베이스에서 검색엔진을 설치하는 방법을 설명합니다."),
            NewDocument("ja", text="新しい検索エンジンを図書館に導入した。"),
            NewDocument("zh", text="搜索引擎的性能取决于索引的质量。"),
            NewDocument("th", text="ระบบค้นหาข้อความในฐานข้อมูล"),
            NewDocument("cat", text="猫がソファで眠っている。"),
            NewDocument("en", text="The weather was fine."),
        ],
    )
    assert keys(corpus.search([collection], query))[0] == key


@pytest.mark.parametrize("query", ["", " ", "?!", "\0", "a" * 100_000, "\ud800 whale"])
def test_odd_queries_are_answered(corpus: Corpus, book: CollectionBook, query: str) -> None:
    corpus.ingest(book.make(), documents(5))
    assert len(corpus.search([book.make()], query).hits) <= 5


def test_a_search_of_nothing_is_empty(corpus: Corpus, book: CollectionBook) -> None:
    assert corpus.search([], "whale").hits == ()
    assert corpus.search([book.make()], "whale").hits == ()
    corpus.ingest(book.make(), documents(1))
    corpus.delete(book.make(), ["d000"])
    hits = corpus.search([book.make()], "whale")
    assert hits.hits == () and hits.degraded == ()


def test_a_large_collection_answers_like_a_small_one_whatever_engine_answers(
    corpus: Corpus, book: CollectionBook
) -> None:
    filler = [NewDocument(f"f{number}", text=f"filler text number {number}") for number in range(2_100)]
    corpus.ingest(book.make(), documents())
    small = corpus.search([book.make()], "the distant turbine of case3", dense=0, lexical=10)
    assert corpus.stats(book.make()).lexical_engine == "rank-bm25"
    corpus.ingest(book.make(), filler)
    assert corpus.stats(book.make()).chunks > lexical.SMALL_COLLECTION
    for engine in ("fts5", "postings"):
        assert corpus.stats(book.make()).lexical_engine == engine
        large = corpus.search([book.make()], "the distant turbine of case3", dense=0, lexical=10)
        assert keys(large)[0] == keys(small)[0] == "d003"
        assert corpus.search([book.make()], "case59", dense=0).hits[0].chunk.key == "d059"
        assert corpus.search([book.make()], "filler", filter={"number": {"gte": 0}}, dense=0).hits == ()
        corpus.maintain()


def test_a_fresh_build_answers_like_one_with_a_past(corpus: Corpus, book: CollectionBook) -> None:
    with gzip.open(
        "hopnode/node_service/commands/demo/data/2wiki-sample/corpus.jsonl.gz", "rt", encoding="utf-8"
    ) as lines:
        entries = [entry for line in islice(lines, 160) if len((entry := json.loads(line))["text"]) > 200]
    real = [NewDocument(entry["id"], text=entry["text"], title=entry["title"]) for entry in entries]
    other = [NewDocument(entry["id"], text="something else entirely") for entry in entries[1::4]]
    worn, fresh = book.make("c1"), book.make("c2")
    corpus.ingest(worn, real)
    corpus.delete(worn, [document.key for document in real[::2]])
    corpus.ingest(worn, other)
    corpus.ingest(worn, list(reversed(real)))
    corpus.ingest(fresh, real)
    assert corpus.stats(worn).chunks == corpus.stats(fresh).chunks
    for entry in entries[::10]:
        query = entry["title"] + " " + entry["text"][:200]  # long: no two of the best five score the same
        for dense, words in ((5, 0), (0, 5), (5, 5)):
            one, two = (corpus.search([made], query, dense=dense, lexical=words) for made in (worn, fresh))
            assert [(hit.chunk.key, hit.chunk.text, round(hit.score, 9)) for hit in one.hits] == [
                (hit.chunk.key, hit.chunk.text, round(hit.score, 9)) for hit in two.hits
            ]


def test_an_embedder_over_http_is_learnt_stored_and_asked(tmp_path: Path, book: CollectionBook) -> None:
    with EmbeddingsServer() as server:
        embedders = Embedders("http", url=server.url, model="m")
        corpora = open_corpora(tmp_path, EmbeddedChroma(tmp_path / "chroma"), book, embedders)
        corpus = corpora.open("w1")
        collection = book.make(embedder=None)
        corpus.ingest(collection, [NewDocument("a", text="short"), NewDocument("b", text="a longer text, much longer")])
        assert (book.now("c1").embedder, book.now("c1").dimension) == ("http:m", 3)
        hits = corpus.search([book.now("c1")], "five5", lexical=0)
        assert keys(hits) == ["a", "b"] and hits.degraded == ()
        server.answers = [503] * 2
        assert corpus.search([book.now("c1")], "short").degraded == ("embedder-unavailable",)
        corpora.close()


class _Stoppable(EmbeddedChroma):
    """Real Chroma whose disk can be made to refuse writes, as a server that is restarting does."""

    stopped_writes = False

    def upsert(self, name: str, ids: Sequence[int], rows: np.ndarray) -> None:
        self._refuse()
        super().upsert(name, ids, rows)

    def delete(self, name: str, ids: Sequence[int]) -> None:
        self._refuse()
        super().delete(name, ids)

    def _refuse(self) -> None:
        if self.stopped_writes:
            raise VectorsUnavailable("Chroma is restarting.")
