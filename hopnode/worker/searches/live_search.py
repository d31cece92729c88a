"""One search underway: what it wants, where it looks, what it may use, and who watches it. Finds nothing by itself.

Everything that a job adds to a search stands here as a function or a number, so that a search needs no job.
"""

import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from pydantic import JsonValue

from hopnode.worker.harness.outcome import AgentOutcome
from hopnode.worker.inference.chat import ChatModel
from hopnode.worker.ranking.evidence import Evidence
from hopnode.worker.ranking.one_shot import survey
from hopnode.worker.searches.request import SearchRequest
from hopnode.worker.searches.space import Space
from hopnode.worker.settings import WorkerSettings

TURN_SECONDS = 0.1
"""How often a search that waits for its turn at the cores looks whether it was cancelled."""
SPARE = 10
"""Passages that are looked at beyond what is asked for, in place of duplicates."""


class SearchRuntime(Protocol):
    """What a search needs of the process that it runs in."""

    @property
    def settings(self) -> WorkerSettings: ...  # noqa: D102
    @property
    def chat(self) -> ChatModel | None: ...  # noqa: D102
    @property
    def answers(self) -> ChatModel | None: ...  # noqa: D102
    @property
    def computing(self) -> threading.Semaphore: ...  # noqa: D102


@dataclass(frozen=True)
class LiveSearch:
    """A search that began at `started` on the monotonic clock. `check` raises when it has to end; `step` records what it
    does."""

    request: SearchRequest
    space: Space
    runtime: SearchRuntime
    check: Callable[[], None]
    step: Callable[[str, Mapping[str, JsonValue]], object]
    started: float

    @property
    def whole_seconds(self) -> float:
        """How long it may take, its answer included."""
        return self.request.deadline_seconds or self.runtime.settings.search_deadline_seconds

    @property
    def seconds(self) -> float:
        """How long it has taken."""
        return time.monotonic() - self.started

    @property
    def most(self) -> int:
        """How many passages are worth a look."""
        return self.request.top_k + SPARE

    def survey(self) -> Evidence:
        """What one hybrid query sees of the question. It computes: call it in a turn."""
        return survey(self.request.query, self.space.insight, self.most)

    @contextmanager
    def turn(self) -> Generator[None]:
        """A turn at the cores, waited for as long as the search may go on."""
        with turn_at(self.runtime.computing, self.check):
            yield


@dataclass(frozen=True)
class Searched:
    """How a search was done in the end, and what came of it. `why` tells how `auto` decided, and is empty otherwise;
    `reranker` names the one that was asked."""

    mode: str
    outcome: AgentOutcome
    profile: str | None = None
    reranker: str | None = None
    why: str = ""


@contextmanager
def turn_at(cores: threading.Semaphore, check: Callable[[], None]) -> Generator[None]:
    """A turn at the cores, waited for until `check` raises."""
    while not cores.acquire(timeout=TURN_SECONDS):
        check()
    try:
        yield
    finally:
        cores.release()
