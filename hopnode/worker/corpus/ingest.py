"""Documents in: parse, cut, embed what is new, and write each small batch in one transaction.

A document that cannot be parsed is an outcome with a reason; an embedder or a disk that fails stops the run.
"""

import hashlib
import json
import mimetypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from hopnode.worker.corpus.chunking.chunker import chunk
from hopnode.worker.corpus.parsing.parser import PIPELINE_VERSION, ParserPool, normalize_text
from hopnode.worker.corpus.records import IngestOutcome, NewDocument, ParsedDocument
from hopnode.worker.corpus.sqlite.lexical import indexed_text
from hopnode.worker.corpus.sqlite.reading import collection_row, known_vectors, stored_source
from hopnode.worker.corpus.sqlite.text_store import TextStore
from hopnode.worker.corpus.sqlite.writing import PreparedDocument, Written, ensure_collection, put_document, put_vectors
from hopnode.worker.errors import DocumentRejected
from hopnode.worker.inference.embedding.embedder import Embedder, Embedders
from hopnode.worker.logs import get_logger
from hopnode.worker.store.collections import Collection

_log = get_logger(__name__)

Progress = Callable[[IngestOutcome], None]

BATCH_CHUNKS = 64
"""New chunks that are embedded together and then written together; more would not be faster, only later visible."""
BATCH_DOCUMENTS = 64
LONGEST_KEY = 2_048
_VOCABULARY_SAMPLE = 20


@dataclass(frozen=True)
class _Ready:
    """A document that is parsed and cut, with the texts that stand for its chunks."""

    document: PreparedDocument
    texts: Sequence[str]


class Ingest:
    """One run of documents into one collection."""

    def __init__(
        self,
        store: TextStore,
        collection: Collection,
        embedders: Embedders,
        parser: ParserPool,
        fix_embedder: Callable[[str, str, int], Collection],
        max_chunk_tokens: int,
    ) -> None:
        self._store = store
        self._collection = collection
        self._embedders = embedders
        self._parser = parser
        self._fix_embedder = fix_embedder
        self._max_chunk_tokens = max_chunk_tokens
        self._embedder: Embedder | None = None

    def run(self, documents: Sequence[NewDocument], progress: Progress) -> list[IngestOutcome]:
        """Outcomes in the order of `documents`; each is reported once it is on disk."""
        outcomes: dict[int, IngestOutcome] = {}

        def done(index: int, outcome: IngestOutcome) -> None:
            outcomes[index] = outcome
            progress(outcome)

        for batch in self._batches(documents, done):
            self._write(batch, done)
        return [outcomes[index] for index in range(len(documents))]

    def _batches(
        self, documents: Sequence[NewDocument], done: Callable[[int, IngestOutcome], None]
    ) -> Iterator[dict[int, _Ready]]:
        batch: dict[int, _Ready] = {}
        for index, document in enumerate(documents):
            prepared = self._prepare(document)
            if isinstance(prepared, IngestOutcome):
                done(index, prepared)
                continue
            batch[index] = prepared
            if len(batch) >= BATCH_DOCUMENTS or sum(len(one.texts) for one in batch.values()) >= BATCH_CHUNKS:
                yield batch
                batch = {}
        if batch:
            yield batch

    def _prepare(self, document: NewDocument) -> _Ready | IngestOutcome:
        try:
            _check(document)
            fingerprint = _fingerprint(document)
            with self._store.read() as connection:
                row = collection_row(connection, self._collection.id)
                stored = stored_source(connection, row.number, document.key) if row else None
            if stored and stored[1] == fingerprint:
                return IngestOutcome(document.key, "unchanged", stored[0])
            parsed = self._parse(document)
            if not parsed.text.strip():
                raise DocumentRejected("empty", "The document holds no text.")
            return self._cut(document, parsed, fingerprint)
        except DocumentRejected as error:
            return IngestOutcome(document.key, "failed", reason=error.reason, message=str(error))

    def _parse(self, document: NewDocument) -> ParsedDocument:
        if document.text is not None:
            return ParsedDocument(text=normalize_text(document.text), kind=_text_kind(document))
        raw = document.raw or b""
        return self._parser.parse_safely(raw, media_type=document.media_type, filename=document.filename)

    def _cut(self, document: NewDocument, parsed: ParsedDocument, fingerprint: bytes) -> _Ready:
        spans = chunk(parsed, self._max_chunk_tokens)
        title = normalize_text(document.title or parsed.title or PurePosixPath(document.filename or "").name).strip()
        texts = [indexed_text(title, span.heading, span.text) for span in spans]
        prepared = PreparedDocument(
            key=document.key,
            title=title,
            url=document.url,
            media_type=_media_type(document),
            metadata=json.dumps(dict(document.metadata), ensure_ascii=False),
            text=parsed.text,
            sha256=hashlib.sha256(parsed.text.encode()).hexdigest(),
            source_sha=fingerprint,
            warnings=parsed.warnings,
            spans=spans,
            embed_shas=[hashlib.sha256(text.encode()).digest() for text in texts],
        )
        return _Ready(prepared, texts)

    def _write(self, batch: Mapping[int, _Ready], done: Callable[[int, IngestOutcome], None]) -> None:
        embedder = self._bound_embedder(batch)
        vectors = self._vectors(embedder, batch)
        with self._store.write() as connection:
            row = ensure_collection(connection, self._collection.id)
            put_vectors(connection, embedder.id, vectors)
            written = {index: put_document(connection, row.number, one.document) for index, one in batch.items()}
        for index, result in written.items():
            done(index, _outcome(batch[index].document, result))

    def _vectors(self, embedder: Embedder, batch: Mapping[int, _Ready]) -> dict[bytes, NDArray[np.float32]]:
        texts = {
            sha: text for one in batch.values() for sha, text in zip(one.document.embed_shas, one.texts, strict=True)
        }
        with self._store.read() as connection:
            vectors = known_vectors(connection, embedder.id, texts)
        missing = [sha for sha in texts if sha not in vectors]
        for start in range(0, len(missing), BATCH_CHUNKS):
            part = missing[start : start + BATCH_CHUNKS]
            rows = embedder.embed([texts[sha] for sha in part])
            fresh = dict(zip(part, rows, strict=True))
            vectors |= fresh
            if len(missing) > BATCH_CHUNKS:  # a long document: what is embedded survives a crash
                with self._store.write() as connection:
                    put_vectors(connection, embedder.id, fresh)
        return vectors

    def _bound_embedder(self, batch: Mapping[int, _Ready]) -> Embedder:
        """The collection's embedder; the first batch of an open collection decides, once, whoever comes first."""
        if self._embedder is None:
            chosen = self._embedders.resolve(self._collection.embedder) if self._collection.embedder else None
            if chosen is None:
                sample = [text for one in batch.values() for text in one.texts[:_VOCABULARY_SAMPLE]]
                chosen = self._embedders.choose(sample)
            self._embedder = self._bind(self._embedders.get(chosen))
        return self._embedder

    def _bind(self, embedder: Embedder) -> Embedder:
        dimension = embedder.dimension
        with self._store.write() as connection:
            row = ensure_collection(connection, self._collection.id, embedder.id, dimension)
        if row.embedder != embedder.id:
            embedder = self._embedders.get(row.embedder or embedder.id)
        if (self._collection.embedder, self._collection.dimension) != (embedder.id, embedder.dimension):
            self._collection = self._fix_embedder(self._collection.id, embedder.id, embedder.dimension)
        return embedder


def _check(document: NewDocument) -> None:
    if not document.key or len(document.key) > LONGEST_KEY or "\0" in document.key:
        raise DocumentRejected("invalid-key", f"The key of a document has 1 to {LONGEST_KEY} characters and no NUL.")
    if document.text is None and document.raw is None:
        raise DocumentRejected("empty", "The document has neither text nor bytes.")
    metadata = json.dumps(dict(document.metadata), ensure_ascii=False)
    try:
        for part in (document.key, document.text, document.title, document.url, metadata):
            (part or "").encode()
    except UnicodeEncodeError as error:
        raise DocumentRejected("corrupt", "The document holds half characters (lone surrogates).") from error


def _outcome(document: PreparedDocument, written: Written) -> IngestOutcome:
    outcome = IngestOutcome(
        document.key, "stored" if written.changed else "unchanged", written.document_id, warnings=document.warnings
    )
    return replace(outcome, chunks_added=written.added, chunks_kept=written.kept, chunks_removed=written.removed)


def _fingerprint(document: NewDocument) -> bytes:
    """Equal for equal input through an equal pipeline: then there is nothing to do."""
    about = [
        *(PIPELINE_VERSION, document.title, document.url, document.media_type, document.filename),
        dict(document.metadata),
        document.text is None,
    ]
    content = document.raw or b"" if document.text is None else document.text.encode()
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    digest.update(content)
    return digest.digest()


def _text_kind(document: NewDocument) -> str:
    name = (document.filename or "").lower()
    markdown = document.media_type in ("text/markdown", "text/x-markdown") or name.endswith((".md", ".markdown"))
    return "markdown" if markdown else "text"


def _media_type(document: NewDocument) -> str:
    guessed = mimetypes.guess_type(document.filename)[0] if document.filename else None
    fallback = "application/octet-stream" if document.text is None else "text/plain"
    return document.media_type or guessed or fallback
