"""What a search needs where there is no node and no database: the parts of a process, and a watcher who keeps its steps."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hopnode.worker.inference.chat import ChatModel
from hopnode.worker.searches.live_search import LiveSearch
from hopnode.worker.searches.request import SearchRequest
from hopnode.worker.searches.space import Space
from hopnode.worker.settings import WorkerSettings


@dataclass
class SearchParts:
    """The parts of a process that a search uses."""

    settings: WorkerSettings
    chat: ChatModel | None = None
    answers: ChatModel | None = None
    computing: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(2))


class Watcher:
    """Keeps the steps of a search; each look goes to `on_check`, which ends the search by raising."""

    def __init__(self, on_check: Callable[[], None] = lambda: None) -> None:
        self.steps: list[tuple[str, dict[str, Any]]] = []
        self.check = on_check

    def step(self, kind: str, data: Mapping[str, Any]) -> None:
        """Takes a step."""
        self.steps.append((kind, dict(data)))

    @property
    def kinds(self) -> list[str]:
        """The kinds of the steps so far."""
        return [kind for kind, _ in self.steps]


def live_search(
    query: str, space: Space, parts: SearchParts, watcher: Watcher | None = None, **fields: Any
) -> LiveSearch:
    """A search that begins now."""
    watcher = watcher or Watcher()
    names = [one.name for one in space.collections]
    request = SearchRequest.model_validate({"query": query, "collections": names} | fields)
    return LiveSearch(request, space, parts, watcher.check, watcher.step, time.monotonic())
