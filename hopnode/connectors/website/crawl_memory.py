"""What a crawl knows and keeps: the frontier of URLs to visit, and a record of each page for the next crawl. JSON in and out."""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Self, TypeAlias

from pydantic import BaseModel, JsonValue, ValidationError

from hopnode.connectors.website.urls import shape

StoredPage: TypeAlias = tuple[int, str | None, str | None, str | None, str | None, list[int]]
StoredVisit: TypeAlias = tuple[int, int, int, int]


@dataclass(frozen=True)
class PageRecord:
    """A page as it was when last fetched: its validators, the version of its item (None: followed, not stored), its links."""

    etag: str | None = None
    modified: str | None = None
    version: str | None = None
    media_type: str | None = None
    links: tuple[str, ...] = ()

    @property
    def conditions(self) -> dict[str, str]:
        """Headers that let the site answer 304."""
        found = {"if-none-match": self.etag, "if-modified-since": self.modified}
        return {name: value for name, value in found.items() if value and self.version}


@dataclass(frozen=True)
class Visit:
    """A URL to fetch: `depth` links away from a start URL, after `hops` redirects, for the `tries`-th time."""

    url: str
    depth: int
    hops: int = 0
    tries: int = 0


@dataclass
class Memory:
    """Pages by URL, and the sitemap files that could be read: the state between two crawls of one scope."""

    scope: str
    pages: dict[str, PageRecord] = field(default_factory=dict[str, PageRecord])
    sitemaps: set[str] = field(default_factory=set[str])

    @classmethod
    def from_json(cls, state: Mapping[str, JsonValue], scope: str) -> Self:
        """The memory in a state; an empty one when the state has another form or scope: then everything is fetched anew.

        The stored links of a page are those within the scope of that time, hence of no use to another.
        """
        try:
            stored = _StoredMemory.model_validate(state)
            memory = cls(stored.scope, stored.records(), {stored.urls[i] for i in stored.sitemaps})
        except (ValidationError, IndexError):
            return cls(scope)
        return memory if memory.scope == scope else cls(scope)

    def to_json(self) -> dict[str, JsonValue]:
        """The state to keep; every URL is written once, links are numbers."""
        return _StoredMemory.of(self, _Numbers()).model_dump(mode="json")


class Frontier:
    """URLs to visit in the order of their depth, each once; endless shapes get a limited number of visits.

    URLs of the last crawl are exempt from that limit, but count: what was let in once does not come and go with the order.
    """

    def __init__(self, known: Iterable[str], most_alike: int, most: int) -> None:
        self.queue: deque[Visit] = deque()
        self.seen: set[str] = set()
        self.full = False
        self._known = frozenset(known)
        self._alike = Counter(shape(url) for url in self._known)
        self._most_alike = most_alike
        self._most = most

    def add(self, visit: Visit, *, trusted: bool = False) -> bool:
        """Queues the visit unless its URL was seen. Returns False only when the limit for its shape turned it away.

        `trusted`: the site's owner named the URL, in a sitemap or as a start, so the limit does not apply.
        """
        if visit.url in self.seen:
            return True
        if len(self.seen) >= self._most:
            self.full = True
            return True
        self.seen.add(visit.url)
        if visit.url not in self._known and not self._admits(visit.url, trusted):
            return False
        self.queue.append(visit)
        return True

    def again(self, visit: Visit) -> None:
        """Puts a visit that has to be repeated in front."""
        self.queue.appendleft(visit)

    def _admits(self, url: str, trusted: bool) -> bool:
        form = shape(url)
        if not trusted and self._alike[form] >= self._most_alike:
            return False
        self._alike[form] += 1
        return True


@dataclass
class Progress:
    """Where a crawl stands, so that another process can go on with it."""

    memory: Memory
    fetched: int = 0
    seconds: float = 0.0
    incomplete: str | None = None
    aliases: dict[str, str] = field(default_factory=dict[str, str])

    def to_json(self, frontier: Frontier) -> dict[str, JsonValue]:
        """The token."""
        numbers = _Numbers()
        queue = [(numbers[v.url], v.depth, v.hops, v.tries) for v in frontier.queue]
        seen = [numbers[url] for url in sorted(frontier.seen)]
        aliases = [(numbers[a], numbers[b]) for a, b in self.aliases.items()]
        memory = _StoredMemory.of(self.memory, numbers)
        return _StoredProgress(
            queue=queue,
            seen=seen,
            aliases=aliases,
            fetched=self.fetched,
            seconds=self.seconds,
            incomplete=self.incomplete,
            **dict(memory),
        ).model_dump(mode="json")

    @classmethod
    def from_json(cls, token: Mapping[str, JsonValue], scope: str, frontier: Frontier) -> Self | None:
        """Fills the frontier and returns the progress. For a token of another form or scope: None, and the frontier stays."""
        try:
            stored = _StoredProgress.model_validate(token)
            urls = stored.urls
            queue = [Visit(urls[i], depth, hops, tries) for i, depth, hops, tries in stored.queue]
            seen = {urls[i] for i in stored.seen}
            aliases = {urls[a]: urls[b] for a, b in stored.aliases}
            memory = Memory(stored.scope, stored.records(), {urls[i] for i in stored.sitemaps})
        except (ValidationError, IndexError):
            return None
        if memory.scope != scope:
            return None
        for url in sorted(seen):
            frontier.add(Visit(url, 0), trusted=True)
        frontier.queue = deque(queue)
        return cls(memory, stored.fetched, stored.seconds, stored.incomplete, aliases)


class _Numbers(dict[str, int]):
    """Gives each URL the number of its first mention."""

    def __missing__(self, url: str) -> int:
        self[url] = len(self)
        return self[url]


class _StoredMemory(BaseModel):
    format: Literal[1] = 1
    scope: str
    pages: list[StoredPage]
    sitemaps: list[int]
    urls: list[str]

    @classmethod
    def of(cls, memory: Memory, numbers: _Numbers) -> "_StoredMemory":
        pages = [
            (numbers[url], p.etag, p.modified, p.version, p.media_type, [numbers[link] for link in p.links])
            for url, p in memory.pages.items()
        ]
        sitemaps = [numbers[url] for url in sorted(memory.sitemaps)]
        return cls(scope=memory.scope, pages=pages, sitemaps=sitemaps, urls=list(numbers))

    def records(self) -> dict[str, PageRecord]:
        return {
            self.urls[i]: PageRecord(etag, modified, version, media, tuple(self.urls[link] for link in links))
            for i, etag, modified, version, media, links in self.pages
        }


class _StoredProgress(_StoredMemory):
    queue: list[StoredVisit]
    seen: list[int]
    aliases: list[tuple[int, int]]
    fetched: int
    seconds: float
    incomplete: str | None
