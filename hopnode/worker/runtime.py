"""Who is who in one process: opens the parts that the settings name, hands them to the stories, and closes them again."""

import json
import os
import threading
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from hopnode.connectors.base import Connector
from hopnode.connectors.http import EgressPolicy
from hopnode.connectors.registry import make
from hopnode.worker import tracing
from hopnode.worker.corpus.corpus import Corpora
from hopnode.worker.corpus.parsing.parser import ParserPool
from hopnode.worker.corpus.vectors.chroma import EmbeddedChroma, HttpChroma, Vectors
from hopnode.worker.corpus.vectors.chroma_process import ChromaProcess
from hopnode.worker.errors import VectorsUnavailable
from hopnode.worker.harness.profiles.phrasing import load_phrasing
from hopnode.worker.inference.chat import ANSWERS, ChatModel, HttpChat
from hopnode.worker.inference.embedding.embedder import Embedders
from hopnode.worker.settings import WorkerSettings
from hopnode.worker.store.collections import fix_embedder
from hopnode.worker.store.database import Database
from hopnode.worker.store.secrets.keyring import open_keyring
from hopnode.worker.store.secrets.vault import Vault
from hopnode.worker.store.sources.secret_config import hide_clear_secrets, whole_config
from hopnode.worker.store.sources.sources import Source
from hopnode.worker.store.workspaces import ensure_default


@dataclass
class Runtime:
    """The open parts of a node. One per process; `close` ends what `open_runtime` began."""

    settings: WorkerSettings
    db: Database
    vault: Vault
    corpora: Corpora
    chat: ChatModel | None
    answers: ChatModel | None
    egress: EgressPolicy
    _closing: ExitStack = field(repr=False)
    computing: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(_compute_at_once()), repr=False)
    """Searches without a model compute all the time: more of them at once than there are cores end no sooner, and hold up
    those that wait for a model, and the API."""

    def connector_for(self, source: Source) -> Connector:
        """A connector bound to the source's configuration and secrets; the caller closes it. Raises SecretUnreadable."""
        return make(source.kind, whole_config(self.vault, source), self.egress)

    def close(self) -> None:
        """Closes everything, last opened first."""
        self._closing.close()


def open_runtime(settings: WorkerSettings, *, embedded: bool, hosts_chroma: bool = False) -> Runtime:
    """Opens the node's parts. `embedded`: this process owns the data folder, and Chroma runs inside it. Otherwise
    Chroma is the server at `HOPNODE_CHROMA_URL`, or one child server a machine that the process with `hosts_chroma`
    supervises and the others find through the data folder.

    Raises DataFolderInUse, StoreUnavailable, VectorsUnavailable or ConfigurationError.
    """
    settings.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    headers = settings.otlp_headers.get_secret_value() if settings.otlp_headers else None
    load_phrasing(settings.prompt_file)  # says at the start what is wrong with it, and not at the first search
    with ExitStack() as opening:
        opening.callback(tracing.start(settings.otlp_endpoint, headers))
        vectors = _open_vectors(settings, embedded, hosts_chroma, opening)
        db = Database(settings.sql_url)
        opening.callback(db.close)
        db.migrate()
        vault = Vault(db, open_keyring(settings))
        hide_clear_secrets(db, vault)
        if embedded or hosts_chroma:  # a worker's folder may lie on another machine: it must not make keys of its own
            ensure_default(db, settings.key_file)
        parser = ParserPool(
            settings.parse_timeout_seconds, settings.parse_memory_bytes, settings.max_document_characters
        )
        opening.callback(parser.close)
        corpora = Corpora(settings.root, vectors, _embedders(settings), parser, partial(fix_embedder, db))
        opening.callback(corpora.close)
        return Runtime(
            settings=settings,
            db=db,
            vault=vault,
            corpora=corpora,
            chat=_chat(settings),
            answers=_answers(settings),
            egress=EgressPolicy(settings.egress_allow_hosts, settings.egress_allow_cidrs),
            _closing=opening.pop_all(),
        )


def _open_vectors(settings: WorkerSettings, embedded: bool, hosts_chroma: bool, opening: ExitStack) -> Vectors:
    folder = settings.root / "chroma"
    if settings.chroma_url:
        return HttpChroma(settings.chroma_url)
    if embedded:
        return EmbeddedChroma(folder)
    if hosts_chroma:
        child = ChromaProcess(folder).start()
        opening.callback(child.stop)
        return HttpChroma(child.url)
    return HttpChroma(partial(_url_of_child, folder))


def _url_of_child(folder: Path) -> str:
    try:
        return str(json.loads((folder / "chroma.json").read_text())["url"])
    except (OSError, ValueError, KeyError) as error:
        raise VectorsUnavailable(
            "No Chroma server is known. Start `hopnode api` on this machine and data folder, which runs one for the workers, "
            "or set HOPNODE_CHROMA_URL to one."
        ) from error


def _embedders(settings: WorkerSettings) -> Embedders:
    return Embedders(
        settings.embedder,
        url=settings.embedder_url,
        model=settings.embedder_model,
        api_key=settings.embedder_api_key,
    )


def _chat(settings: WorkerSettings) -> ChatModel | None:
    if not settings.chat_url or not settings.chat_model:
        return None
    key = settings.chat_api_key.get_secret_value() if settings.chat_api_key else None
    return HttpChat(settings.chat_url, settings.chat_model, key, settings.chat_timeout_seconds)


def _answers(settings: WorkerSettings) -> ChatModel | None:
    if (endpoint := settings.answer_endpoint) is None or not settings.answer_model:
        return None
    url, secret = endpoint
    key = secret.get_secret_value() if secret else None
    return HttpChat(url, settings.answer_model, key, settings.answer_timeout_seconds, named=ANSWERS)


def _compute_at_once() -> int:
    """Python itself computes on one core at a time; searching and embedding keep some more busy."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(4, max(2, cores))
