"""A small, real search space in memory: lexical search, RE2 grep and reading over a few texts."""

import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import re2

from hopnode.worker.corpus.records import Chunk, Hit, SearchHits
from hopnode.worker.errors import InvalidRequest, NotFound
from hopnode.worker.tokens import count_tokens


def make_chunk(document_id: str, position: int, text: str, *, start: int = 0, title: str = "") -> Chunk:
    """A chunk as the corpus would give it."""
    return Chunk(
        id=f"{document_id}_{position}",
        row=position,
        document_id=document_id,
        collection_id="c1",
        position=position,
        text=text,
        start=start,
        end=start + len(text),
        tokens=count_tokens(text),
        page=None,
        heading="",
        key=f"{document_id}.txt",
        title=title,
        url=None,
        metadata={},
    )


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


class MemorySpace:
    """Documents given as id → texts of their chunks. `before` runs at the start of every call, on the calling thread."""

    def __init__(
        self,
        documents: Mapping[str, Sequence[str]],
        *,
        titles: Mapping[str, str] | None = None,
        before: Callable[[str], None] = lambda name: None,
        degraded: tuple[str, ...] = (),
        leg: int = 25,
    ) -> None:
        self.documents: dict[str, list[Chunk]] = {}
        for document_id, texts in documents.items():
            start, chunks = 0, []
            for position, text in enumerate(texts):
                title = (titles or {}).get(document_id, "")
                chunks.append(make_chunk(document_id, position, text, start=start, title=title))
                start += len(text)
            self.documents[document_id] = chunks
        self._before, self._degraded, self._leg = before, degraded, leg
        self._lock = threading.Lock()
        self.queries: list[str] = []

    def search(self, query: str, *, k: int, exclude: frozenset[str], missing_rank: int | None = None) -> SearchHits:
        """Two legs (shared words, and shared words per length) of limited depth, fused by reciprocal ranks: so ranks
        shift and others move up when ids are excluded, as in the real corpus."""
        self._before("search")
        with self._lock:
            self.queries.append(query)
        wanted = set(_words(query))
        scored = []
        for chunk in (chunk for chunks in self.documents.values() for chunk in chunks if chunk.id not in exclude):
            counts = Counter(_words(chunk.text))
            overlap = sum(counts[word] for word in wanted)
            if overlap:
                scored.append((chunk, overlap, overlap / sum(counts.values())))
        one = [chunk for chunk, *_ in sorted(scored, key=lambda row: (-row[1], row[0].id))][: self._leg]
        two = [chunk for chunk, *_ in sorted(scored, key=lambda row: (-row[2], row[0].id))][: self._leg]
        fused: dict[str, float] = {}
        for leg in (one, two):
            for rank, chunk in enumerate(leg, start=1):
                fused[chunk.id] = fused.get(chunk.id, 0) + 1 / (60 + rank)
        by_id = {chunk.id: chunk for chunk in (*one, *two)}
        hits = [Hit(by_id[key], score) for key, score in sorted(fused.items(), key=lambda item: (-item[1], item[0]))]
        return SearchHits(tuple(hits[:k]), degraded=self._degraded, index_version=7, vector_lag=2)

    def grep(self, pattern: str, *, limit: int) -> list[Chunk]:
        """First matches in document order."""
        self._before("grep")
        try:
            options = re2.Options()
            options.log_errors = False
            compiled = re2.compile(pattern, options)
        except re2.error as error:
            raise InvalidRequest(f"The pattern is not valid: {error}") from error
        chunks = (chunk for chunks in self.documents.values() for chunk in chunks)
        return [chunk for chunk in chunks if compiled.search(chunk.text)][:limit]

    def read(self, document_id: str) -> list[Chunk]:
        """All chunks of one document."""
        self._before("read")
        if document_id not in self.documents:
            raise NotFound(f"There is no document {document_id!r}.")
        return list(self.documents[document_id])
