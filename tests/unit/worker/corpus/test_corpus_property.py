"""Whatever is ingested, edited and deleted in whatever order: what a search returns is what is stored, character by character."""

import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.data.corpora import CollectionBook, WordEmbedder, open_corpora

from hopnode.worker.corpus.analyzer import analyze
from hopnode.worker.corpus.records import NewDocument
from hopnode.worker.corpus.sqlite.lexical import chunk_texts
from hopnode.worker.corpus.sqlite.outbox import vector_name
from hopnode.worker.corpus.sqlite.reading import collection_rows
from hopnode.worker.corpus.sqlite.text_store import TextStore
from hopnode.worker.corpus.vectors.chroma import EmbeddedChroma
from hopnode.worker.inference.embedding.embedder import Embedders

WORDS = st.sampled_from(
    ["whale", "krill", "검색 엔진", "検索", "Ärger", "🐳 blow", "x" * 90, "e\u0301t\u00e9", "\n# Head\n", "\r\n", "\t"]
)
PARAGRAPH = st.lists(WORDS, min_size=1, max_size=40).map(" ".join)
TEXTS = st.lists(PARAGRAPH, min_size=1, max_size=6).map("\n\n".join)
KEYS = st.sampled_from(["a", "b", "c.md"])
TITLES = st.sampled_from(["", "Whales", "검색"])


class CorpusMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        root = Path(self.folder.name)
        self.chroma = EmbeddedChroma(root / "chroma")
        self.book = CollectionBook()
        embedders = Embedders(extra=[WordEmbedder()])
        self.corpora = open_corpora(root, self.chroma, self.book, embedders, max_chunk_tokens=30)
        self.corpus = self.corpora.open("w1")
        self.collection = self.book.make()
        self.store = TextStore(root / "workspaces" / "w1" / "corpus.db")
        self.texts: dict[str, str] = {}
        self.seen: dict[str, str] = {}

    def teardown(self) -> None:
        self.store.close()
        self.corpora.close()
        self.folder.cleanup()

    @rule(key=KEYS, text=TEXTS, title=TITLES)
    def ingest(self, key: str, text: str, title: str) -> None:
        (outcome,) = self.corpus.ingest(self.collection, [NewDocument(key, text=text, title=title, filename="n.md")])
        if outcome.status != "failed":
            self.texts[key] = self.corpus.document_text(outcome.document_id or "")

    @rule(key=KEYS, data=st.data())
    def edit(self, key: str, data: st.DataObject) -> None:
        if key not in self.texts:
            return
        text = self.texts[key]
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, len(text)))
        self.ingest(key, text[:start] + data.draw(PARAGRAPH) + text[end:], data.draw(TITLES))

    @rule(keys=st.lists(KEYS, max_size=3))
    def delete(self, keys: list[str]) -> None:
        expected = len(set(keys) & set(self.texts))
        assert self.corpus.delete(self.collection, keys) == expected
        for key in keys:
            self.texts.pop(key, None)

    @rule()
    def same_again(self) -> None:
        version = self.corpus.stats(self.collection).index_version
        for key in list(self.texts):
            document = self.corpus.document(self.collection, key)
            again = NewDocument(key, text=self.texts[key], title=document.title, filename="n.md")
            self.corpus.ingest(self.collection, [again])
            version = max(version, self.corpus.stats(self.collection).index_version)
            (outcome,) = self.corpus.ingest(self.collection, [again])
            assert outcome.status == "unchanged"

    @rule(query=st.sampled_from(["whale", "krill", "검색", "検索", "head", "x" * 90]))
    def search(self, query: str) -> None:
        hits = self.corpus.search([self.collection], query)
        assert hits.degraded == () or not self.seen
        for hit in hits.hits:
            chunk = hit.chunk
            assert chunk.key in self.texts
            assert chunk.text == self.texts[chunk.key][chunk.start : chunk.end]
            assert self.seen[chunk.id] == chunk.text

    @invariant()
    def chunks_are_slices_and_ids_are_never_reused(self) -> None:
        documents = self.corpus.documents(self.collection, limit=10)
        assert {document.key for document in documents} == set(self.texts)
        for document in documents:
            assert self.corpus.document_text(document.id) == self.texts[document.key]
            end = 0
            for position, chunk in enumerate(self.corpus.read([self.collection], document.id)):
                assert chunk.text and chunk.text == self.texts[document.key][chunk.start : chunk.end]
                assert chunk.position == position and chunk.start >= end
                assert self.seen.setdefault(chunk.id, chunk.text) == chunk.text
                end = chunk.end

    @invariant()
    def both_indexes_hold_exactly_the_stored_chunks(self) -> None:
        with self.store.read() as connection:
            for row in collection_rows(connection):
                rows = [
                    one[0] for one in connection.execute("SELECT row FROM chunk WHERE collection = ?", (row.number,))
                ]
                assert row.chunks == len(rows)
                assert sorted(one[0] for one in connection.execute(f"SELECT rowid FROM fts_{row.number}")) == sorted(
                    rows
                )
                texts = chunk_texts(connection, rows).values()
                expected = Counter(term for text in texts for term in set(analyze(text)))
                assert dict(connection.execute(f"SELECT term, doc FROM terms_{row.number}").fetchall()) == expected
                assert (self.chroma.count(vector_name("w1", row.id, row.generation)) or 0) == len(rows)
                assert connection.execute("SELECT count(*) FROM outbox").fetchone()[0] == 0


CorpusMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAnyHistory = pytest.mark.slow(CorpusMachine.TestCase)
