"""A question set in one collection of an open node: fills it, and asks through the story that every search takes.

What is right is not known here: documents go in, texts of questions go in, and rankings come out.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from pydantic import JsonValue

from hopnode.worker.corpus.records import NewDocument
from hopnode.worker.errors import Conflict, NodeError, NotFound
from hopnode.worker.evaluation.dataset import Question, Text
from hopnode.worker.evaluation.measures import distinct
from hopnode.worker.evaluation.spans import Passage
from hopnode.worker.runtime import Runtime
from hopnode.worker.searches.live_search import turn_at
from hopnode.worker.searches.request import SearchRequest
from hopnode.worker.searches.run import run_search
from hopnode.worker.searches.space import Space
from hopnode.worker.store.collections import Collection, create_collection, get_collection
from hopnode.worker.store.workspaces import DEFAULT_WORKSPACE, find_workspace
from hopnode.worker.tokens import count_tokens

LEG_DEPTH = 100
"""Chunks taken from each leg alone."""
KEYS_AT_ONCE = 1_000
COUNTED = (
    *("turns", "tool_calls", "pruned_chunks", "prompt_tokens", "completion_tokens"),
    *("context_tokens_peak", "context_tokens_final", "model_seconds", "tool_seconds"),
)
"""What a search costs, as its result counts it."""


@dataclass(frozen=True)
class Asking:
    """How the questions are asked."""

    mode: str = "auto"
    profile: str = "offline"
    top_k: int = 20


@dataclass(frozen=True)
class Filled:
    """What filling the collection took, and how many documents were refused, by reason."""

    seconds: float = 0.0
    failed: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class Retrieved:
    """What came back for one question. `documents` are distinct keys, best first; `mode` is the one that ran; `error` is
    set when the search failed, and then nothing was found."""

    question: str
    documents: tuple[str, ...]
    passages: tuple[Passage, ...]
    milliseconds: float
    mode: str
    cost: Mapping[str, float] = field(default_factory=dict[str, float])
    degraded: tuple[str, ...] = ()
    error: str | None = None


def _never_ends() -> None:
    """The check of a trial that nobody cancels."""


class Trial:
    """One collection of an open node. Its searches and looks end as soon as `check` raises, which is what ends a job."""

    def __init__(self, runtime: Runtime, workspace_id: str, name: str, check: Callable[[], None] = _never_ends) -> None:
        """`NotFound` when there is no such collection."""
        self._runtime = runtime
        self._check = check
        self._workspace = workspace_id
        self._name = name
        self._corpus = runtime.corpora.open(workspace_id)
        get_collection(runtime.db, workspace_id, name)

    @classmethod
    def make(cls, runtime: Runtime, workspace_id: str, name: str, embedder: str | None) -> "Trial":
        """The collection of that name, made if there is none; an earlier one is used again."""
        with suppress(Conflict):  # a folder that is kept: what is unchanged is not ingested again
            create_collection(runtime.db, workspace_id, name, embedder=embedder)
        return cls(runtime, workspace_id, name)

    @property
    def collection(self) -> Collection:
        """The collection as it is now."""
        return get_collection(self._runtime.db, self._workspace, self._name)

    @property
    def embedder(self) -> str:
        """Name of the collection's embedder, empty before there are documents."""
        return self.collection.embedder or ""

    @property
    def index_version(self) -> int:
        """Grows with every change of the collection."""
        return self._corpus.stats(self.collection).index_version

    def keys(self) -> set[str]:
        """The keys of all documents that are stored."""
        return {document.key for document in self._stored()}

    def fill(
        self, documents: Sequence[Text], seed: int, advance: Callable[[], None], *, chunk_tokens: int | None = None
    ) -> Filled:
        """Brings the collection to exactly these documents; `advance` is called once for each. `chunk_tokens` is the
        size of a chunk where it is not to be the node's.

        They go in as drawn with `seed`: sets list the documents of one question side by side, and neither a tie nor a
        neighbour may give that away.
        """
        started = time.perf_counter()
        if gone := self.keys() - {one.id for one in documents}:
            self._corpus.delete(self.collection, sorted(gone))
        order = np.random.default_rng(seed).permutation(len(documents)).tolist()
        new = [_new(documents[place]) for place in order]
        outcomes = self._corpus.ingest(self.collection, new, lambda _: advance(), max_chunk_tokens=chunk_tokens)
        failed = Counter(outcome.reason or "unknown" for outcome in outcomes if outcome.status == "failed")
        return Filled(time.perf_counter() - started, dict(failed))

    def search(self, question: Question, asking: Asking) -> dict[str, JsonValue]:
        """Runs one search to its end; the result as a node gives it. Raises what the search raises."""
        request = SearchRequest.model_validate(
            {
                "query": question.text,
                "collections": [self._name],
                "mode": asking.mode,
                "profile": asking.profile,
                "top_k": asking.top_k,
            }
        )
        space = Space(self._corpus, [self.collection])
        self._check()
        return run_search(request, space, self._runtime, check=self._check)

    def ask_each(
        self, questions: Sequence[Question], asking: Asking, before: Callable[[int], None] = lambda _: None
    ) -> Iterator[tuple[Question, Retrieved]]:
        """Asks one question after the other. The first one is asked twice, and the first time is not measured: what loads at
        the first search is no cost of a search. `before` gets the number of those asked, ahead of each, and may raise to end.
        """
        for place, question in enumerate(questions):
            before(place)
            if place == 0:
                self.ask(question, asking)
            yield question, self.ask(question, asking)

    def ask(self, question: Question, asking: Asking) -> Retrieved:
        """What a search finds, and how long it takes. A search that fails is an outcome too; raises only what `check`
        raises."""
        started = time.perf_counter()
        try:
            result = self.search(question, asking)
        except NodeError as error:
            self._check()  # what ends the trial is no outcome of a search
            milliseconds = (time.perf_counter() - started) * 1000
            return Retrieved(question.id, (), (), milliseconds, asking.mode, error=f"{error.code}: {error}")
        milliseconds = (time.perf_counter() - started) * 1000
        return _retrieved(question.id, cast(dict[str, Any], result), milliseconds)

    def legs(self, question: Question) -> dict[str, list[str]]:
        """The documents that either leg of the index finds alone."""
        found: dict[str, list[str]] = {}
        for leg, (dense, lexical) in {"lexical": (0, LEG_DEPTH), "dense": (LEG_DEPTH, 0)}.items():
            with turn_at(self._runtime.computing, self._check):
                hits = self._corpus.search([self.collection], question.text, k=LEG_DEPTH, dense=dense, lexical=lexical)
            found[leg] = distinct([hit.chunk.key for hit in hits.hits])
        return found

    def _stored(self) -> list[Any]:
        found: list[Any] = []
        while page := self._corpus.documents(
            self.collection, limit=KEYS_AT_ONCE, after=found[-1].key if found else None
        ):
            found += page
        return found


def _new(text: Text) -> NewDocument:
    return NewDocument(key=text.id, text=text.text, title=text.title or None, media_type="text/plain")


def _retrieved(question: str, result: dict[str, Any], milliseconds: float) -> Retrieved:
    passages = [Passage(one["key"], one["start"], one["end"], count_tokens(one["text"])) for one in result["passages"]]
    usage = result["usage"]
    return Retrieved(
        question=question,
        documents=tuple(distinct([one.document for one in passages])),
        passages=tuple(passages),
        milliseconds=milliseconds,
        mode=result["mode"],
        cost={name: float(usage.get(name, 0)) for name in COUNTED},
        degraded=tuple(result["degraded"]),
    )


def workspace_of(runtime: Runtime) -> str:
    """The workspace that every data folder has."""
    found = find_workspace(runtime.db, DEFAULT_WORKSPACE)
    if found is None:
        raise NotFound(f"The data folder has no workspace `{DEFAULT_WORKSPACE}`.")
    return found.id
