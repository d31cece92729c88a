"""A second connector: a source in memory whose every whim can be set, and a bench that runs syncs over real parts."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import monotonic

from pydantic import JsonValue

from hopnode.connectors.base import (
    CheckResult,
    Complete,
    Connector,
    Content,
    Failure,
    Fetched,
    Gone,
    ItemRef,
    Listed,
    Resume,
    Skip,
    Unchanged,
    Wait,
)
from hopnode.worker.corpus.corpus import Corpora, Corpus
from hopnode.worker.corpus.parsing.parser import ParserPool
from hopnode.worker.corpus.vectors.chroma import EmbeddedChroma
from hopnode.worker.inference.embedding.embedder import Embedders
from hopnode.worker.queue.job_context import Heartbeat, JobContext
from hopnode.worker.settings import WorkerSettings
from hopnode.worker.store.collections import Collection, create_collection, fix_embedder
from hopnode.worker.store.database import Database
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.sources import sources
from hopnode.worker.store.sources.sources import Source, Sync
from hopnode.worker.store.workspaces import create_workspace
from hopnode.worker.syncs.job import run_sync_job
from support.data.corpora import WordEmbedder
from support.node.queue import worker_settings


@dataclass
class MemorySource:
    """What the outside world holds, by item id, and how it behaves. Versions are the bytes, unless `versioned` is off."""

    files: dict[str, str] = field(default_factory=dict)
    versioned: bool = True
    failing: dict[str, str] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    skipped: dict[str, str] = field(default_factory=dict)
    raw: dict[str, Content] = field(default_factory=dict)
    ending: Listed | None = field(default_factory=lambda: Complete({"runs": 1}))
    repeated: list[str] = field(default_factory=list)
    resume_every: int = 0
    wait_seconds: float = 0.0
    deletes_after_missed: int = 1
    on_list: Callable[[str], None] = lambda item_id: None
    on_fetch: Callable[[str], None] = lambda item_id: None
    on_connect: Callable[[], None] = lambda: None
    fetched: list[str] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)
    states: list[Mapping[str, JsonValue]] = field(default_factory=list)
    tokens: list[Mapping[str, JsonValue] | None] = field(default_factory=list)
    closed: int = 0


class MemoryConnector:
    """The three verbs over a `MemorySource`; lists in the order of the ids, and its token is the last id listed."""

    def __init__(self, source: MemorySource) -> None:
        self._source = source
        self.deletes_after_missed = source.deletes_after_missed

    def check(self) -> CheckResult:
        return CheckResult(True, "It is in memory.")

    def list(self, state: Mapping[str, JsonValue], resume: Mapping[str, JsonValue] | None) -> Iterator[Listed]:
        source = self._source
        source.states.append(state)
        source.tokens.append(resume)
        after = str(resume["after"]) if resume else ""
        names = sorted({*source.files, *source.raw, *source.failing, *source.gone, *source.skipped})
        for number, name in enumerate([name for name in names if name > after], start=1):
            if source.wait_seconds:
                yield Wait(source.wait_seconds)
            source.on_list(name)
            source.listed.append(name)
            if name in source.skipped:
                yield Skip(name, source.skipped[name])
            else:
                yield ItemRef(name, self._version(name), url=f"memory://{name}")
            if source.resume_every and number % source.resume_every == 0:
                yield Resume({"after": name})
        for name in source.repeated:
            yield ItemRef(name, self._version(name))
        if source.ending is not None:
            yield source.ending

    def fetch(self, ref: ItemRef, known_version: str | None) -> Fetched:
        source, name = self._source, ref.item_id
        source.on_fetch(name)
        source.fetched.append(name)
        if name in source.failing:
            return Failure(source.failing[name], f"{name} does not answer.")
        if name in source.gone:
            return Gone("not-found")
        if name in source.raw:
            return source.raw[name]
        if known_version is not None and known_version == self._version(name):
            return Unchanged()
        return Content(source.files[name].encode(), "text/plain", self._version(name), title=f"Title of {name}")

    def close(self) -> None:
        self._source.closed += 1

    def _version(self, name: str) -> str | None:
        hidden = not self._source.versioned or name in self._source.failing or name in self._source.gone
        if name in self._source.raw:
            return self._source.raw[name].version
        return None if hidden else self._source.files[name]


@dataclass
class BenchRuntime:
    """What a sync needs of a node, with a connector in memory."""

    settings: WorkerSettings
    db: Database
    opened: Corpora
    outside: MemorySource
    on_corpora: Callable[[], None] = lambda: None

    @property
    def corpora(self) -> Corpora:
        self.on_corpora()
        return self.opened

    def connector_for(self, source: Source) -> Connector:
        self.outside.on_connect()
        return MemoryConnector(self.outside)


class Bench:
    """A workspace with one collection and one source, over a real database and a real corpus."""

    def __init__(self, db: Database, folder: Path, closing: ExitStack, **settings: object) -> None:
        parser = ParserPool(timeout_seconds=60, memory_bytes=2_000_000_000, max_characters=10_000_000)
        closing.callback(parser.close)
        self.embedder = WordEmbedder()
        embedders = Embedders(extra=[self.embedder])
        corpora = Corpora(folder, EmbeddedChroma(folder / "chroma"), embedders, parser, partial(fix_embedder, db))
        closing.callback(corpora.close)
        self.db = db
        self.outside = MemorySource()
        self.runtime = BenchRuntime(worker_settings(folder, **settings), db, corpora, self.outside)
        self.workspace_id = create_workspace(db, "bench").id
        self.collection: Collection = create_collection(db, self.workspace_id, "docs", embedder="words")
        self.source = sources.create_source(
            db, self.workspace_id, self.collection.id, kind="memory", name="memory", config={}
        )

    @property
    def corpus(self) -> Corpus:
        return self.runtime.corpora.open(self.workspace_id)

    def stored(self) -> set[str]:
        """Keys of the documents in the collection."""
        return {document.key for document in self.corpus.documents(self.collection, limit=10_000)}

    def text(self, key: str) -> str:
        return self.corpus.document_text(self.corpus.document(self.collection, key).id)

    def items(self) -> dict[str, sources.Item]:
        """All items of the source by id."""
        return {item.item_id: item for item in sources.missing_items(self.db, self.source.id, "no such sync")}

    def queue(self) -> Sync:
        return sources.create_sync(self.db, self.workspace_id, self.source.id)

    def claim(self, lease_seconds: float = 30) -> JobContext:
        at = monotonic()
        job = jobs.claim_next(self.db, role="sync", lease_seconds=lease_seconds, workspace_limit=4)
        assert job is not None
        return JobContext(self.db, job, lease_seconds=lease_seconds, claimed_at=at)

    def run(self, context: JobContext) -> dict[str, JsonValue]:
        """One attempt as a runner would make it, heartbeat included; ends the job as a runner would."""
        try:
            with Heartbeat(context, 30):
                result = run_sync_job(self.runtime, context)
        except Exception as error:
            if not jobs.finish(self.db, context.job, jobs.JobStatus.FAILED, error={"message": str(error)}):
                raise
            raise
        assert jobs.finish(self.db, context.job, jobs.JobStatus.SUCCEEDED, result=result)
        assert isinstance(result, dict)
        return result

    def sync(self, confirm: bool = False) -> dict[str, JsonValue]:
        """Queues a sync, runs it, and gives its JSON."""
        self.queue()
        context = self.claim()
        if confirm:
            context = self.confirmed(context)
        return self.run(context)

    def confirmed(self, context: JobContext) -> JobContext:
        """The context of a job whose request confirms deletes."""
        job = replace(context.job, request={**context.job.request, "confirm_deletes": True})
        return JobContext(self.db, job, lease_seconds=30, claimed_at=context.claimed_at)

    def last(self) -> Sync:
        return sources.list_syncs(self.db, self.workspace_id, self.source.id)[0]

    def steps(self, kind: str) -> list[Mapping[str, JsonValue]]:
        """Data of the last sync's steps of one kind."""
        return [step.data for step in jobs.list_steps(self.db, self.last().job_id) if step.kind == kind]
