"""One crawl of a site: from start URLs and sitemaps along the links, breadth first, until nothing is left or a budget is used up.
It says what is there now; whether something is new, changed or gone is for others to find."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from pydantic import JsonValue

from hopnode.connectors.base import Complete, Content, Failure, Gone, ItemRef, Listed, Partial, Resume, Skip, Wait
from hopnode.connectors.errors import (
    BodyTooLarge,
    ConnectorError,
    EgressBlocked,
    InvalidAddress,
    PageRejected,
    RobotsUnavailable,
)
from hopnode.connectors.http import Reply
from hopnode.connectors.website.config import WebsiteConfig
from hopnode.connectors.website.crawl_memory import Frontier, Memory, PageRecord, Progress, Visit
from hopnode.connectors.website.page_reader import PageReader
from hopnode.connectors.website.pages import PageFacts, robots_directives
from hopnode.connectors.website.sitemap_walk import SitemapWalk
from hopnode.connectors.website.spool import Spool
from hopnode.connectors.website.urls import Scope, normalize, origin
from hopnode.connectors.website.visitor import Visitor, document_version, file_name, kind_of

_MOST_HOPS = 5
_MOST_TRIES = 3
_TROUBLES_IN_A_ROW = 10
_RESUME_EVERY = 50


@dataclass(frozen=True)
class Tools:
    """What a crawl works with."""

    visitor: Visitor
    reader: PageReader
    spool: Spool


class Crawl:
    """A crawl by `config`, with the memory of the last one; `run` lists what it finds."""

    def __init__(
        self,
        config: WebsiteConfig,
        tools: Tools,
        state: Mapping[str, JsonValue],
        resume: Mapping[str, JsonValue] | None,
    ) -> None:
        self._config = config
        self._tools = tools
        self._scope = Scope(config.start_urls, config.allowed_hosts, config.include, config.exclude)
        self._old = Memory.from_json(state, config.scope_id)
        self._frontier = Frontier(self._old.pages, config.max_similar_urls, 20 * config.max_pages + 10_000)
        found = Progress.from_json(resume, config.scope_id, self._frontier) if resume else None
        self._resumed = found is not None
        self._progress = found or Progress(Memory(config.scope_id))
        self._started = time.monotonic() - self._progress.seconds
        self._troubles = 0

    def run(self) -> Iterator[Listed]:
        """Lists all pages of the site that the scope includes."""
        yield Wait(0)
        if not self._resumed:
            for url in self._config.start_urls:
                self._frontier.add(Visit(url, 0), trusted=True)
            if self._config.use_sitemaps:
                yield from self._discover()
        saved_at = self._progress.fetched
        while self._frontier.queue:
            if reason := self._spent():
                yield Partial(reason, self._kept_memory().to_json())
                return
            yield from self._visit(self._frontier.queue.popleft())
            # Writing the token costs in proportion to its size, hence ever longer steps.
            if self._progress.fetched - saved_at >= max(_RESUME_EVERY, self._progress.fetched // 5):
                saved_at = self._progress.fetched
                self._progress.seconds = time.monotonic() - self._started
                yield Resume(self._progress.to_json(self._frontier))
        reason = self._progress.incomplete or ("too-many-urls" if self._frontier.full else None)
        yield Partial(reason, self._kept_memory().to_json()) if reason else Complete(self._progress.memory.to_json())

    def _discover(self) -> Iterator[Listed]:
        walk = SitemapWalk(self._tools.visitor, self._config.start_urls, self._old.sitemaps)
        for found in walk.pages():
            if isinstance(found, Wait):
                yield found
                continue
            for page in found:
                if self._scope.crawls(page):
                    self._frontier.add(Visit(page, 1), trusted=True)
        self._progress.memory.sitemaps |= walk.readable
        if walk.doubt:
            self._doubt(walk.doubt)

    def _spent(self) -> str | None:
        """Why the crawl has to stop before its end."""
        if self._progress.fetched >= self._config.max_pages:
            return "page-budget"
        if time.monotonic() - self._started >= self._config.max_minutes * 60:
            return "time-budget"
        return "site-unreachable" if self._troubles >= _TROUBLES_IN_A_ROW else None

    def _kept_memory(self) -> Memory:
        """After an unfinished crawl, what was not visited stays as it was remembered."""
        now = self._progress.memory
        pages = {url: page for url, page in self._old.pages.items() if url not in self._frontier.seen}
        waiting = {v.url: self._old.pages[v.url] for v in self._frontier.queue if v.url in self._old.pages}
        return Memory(now.scope, {**pages, **waiting, **now.pages}, self._old.sitemaps | now.sitemaps)

    def _doubt(self, reason: str) -> None:
        """From here on the listing cannot be called complete; the first reason is the one that is told."""
        self._progress.incomplete = self._progress.incomplete or reason

    # --- one visit -----------------------------------------------------------------------------------------------------

    def _visit(self, visit: Visit) -> Iterator[Listed]:
        yield Wait(self._tools.visitor.pause_left(visit.url))
        try:
            if not self._tools.visitor.robots(visit.url).allows(visit.url):
                yield from self._left_out(visit, "robots")
                return
            self._progress.fetched += 1
            known = self._old.pages.get(visit.url, PageRecord())
            reply = self._tools.visitor.fetch(visit.url, known.conditions)
        except RobotsUnavailable as error:
            self._doubt(error.code)
            yield Skip(visit.url, error.code)
        except BodyTooLarge as error:
            yield from self._left_out(visit, error.code)
        except (EgressBlocked, InvalidAddress) as error:
            if visit.depth == 0:
                raise
            yield from self._failed(visit, error.code, str(error), retryable=False)
        except ConnectorError as error:
            self._troubles += 1
            yield from self._failed(visit, error.code, str(error), retryable=error.retryable)
        else:
            yield from self._answered(visit, reply)

    def _answered(self, visit: Visit, reply: Reply) -> Iterator[Listed]:
        status = reply.status
        self._count_trouble(status, known=visit.url in self._old.pages)
        if status == 304:
            yield from self._not_modified(visit)
        elif reply.redirect:
            yield from self._redirected(visit, reply)
        elif status < 300:
            yield from self._found(visit, reply)
        elif status in (404, 410):
            yield from self._gone(visit, "not-found")
        elif status in (429, 503) and visit.tries + 1 < _MOST_TRIES:
            self._tools.visitor.back_off(visit.url, reply, visit.tries)
            self._frontier.again(replace(visit, tries=visit.tries + 1))
        elif status in (401, 403) and visit.url not in self._old.pages:
            yield from self._left_out(visit, "forbidden")
        else:
            yield from self._failed(visit, f"http-{status}", f"{visit.url} answers {status}.", retryable=True)

    def _count_trouble(self, status: int, *, known: bool) -> None:
        """A site that refuses page after page is left alone; pages that were never open to us say nothing."""
        if status in (401, 403):
            self._troubles += known
        elif status == 429 or status >= 500:
            self._troubles += 1
        else:
            self._troubles = 0

    def _not_modified(self, visit: Visit) -> Iterator[Listed]:
        record = self._old.pages.get(visit.url)
        if record is None or record.version is None:
            yield from self._failed(
                visit, "http-304", f"{visit.url} answers 304 without being asked to.", retryable=True
            )
            return
        self._remember(visit, record)
        yield from self._follow(visit, record.links)
        yield ItemRef(visit.url, record.version, media_type=record.media_type, url=visit.url)

    def _redirected(self, visit: Visit, reply: Reply) -> Iterator[Listed]:
        target = normalize(reply.redirect or "")
        on_the_way_in = visit.depth == 0 and self._scope.on_site(target or "")
        if target is None or not (on_the_way_in or self._scope.crawls(target)):
            yield from self._left_out(visit, "redirect-leaves-site")
        elif target == visit.url or visit.hops >= _MOST_HOPS:
            yield from self._left_out(visit, "redirect-loop")
        else:
            yield from self._aliased(visit, target, permanent=reply.status in (301, 308))

    def _aliased(self, visit: Visit, target: str, *, permanent: bool) -> Iterator[Listed]:
        """The page lives under another address: that one is visited in its place."""
        self._progress.aliases[visit.url] = target
        self._frontier.add(Visit(target, visit.depth, visit.hops + 1), trusted=True)
        yield from self._withdrawn(visit, "moved") if permanent else iter([Skip(visit.url, "redirect")])

    # --- what was found ------------------------------------------------------------------------------------------------

    def _found(self, visit: Visit, reply: Reply) -> Iterator[Listed]:
        kind = kind_of(reply)
        directives = robots_directives(reply.headers.get_list("x-robots-tag"))
        if kind == "html":
            try:
                facts = self._tools.reader.read(reply.body, reply.headers.get("content-type", ""), visit.url)
            except PageRejected as error:
                yield from self._left_out(visit, error.code)
            else:
                yield from self._page(visit, reply, facts, directives)
        elif kind is None:
            yield from self._left_out(visit, "unsupported-type")
        elif "noindex" in directives:
            yield from self._withdrawn(visit, "noindex")
        else:
            name = file_name(visit.url)
            content = Content(reply.body, None, document_version(reply.body), url=visit.url, filename=name)
            yield from self._item(visit, reply, content, ())

    def _page(self, visit: Visit, reply: Reply, facts: PageFacts, directives: frozenset[str]) -> Iterator[Listed]:
        links = () if facts.nofollow or "nofollow" in directives else facts.links
        yield from self._follow(visit, links)
        if (target := self._canonical(visit, facts)) is not None:
            yield from self._aliased(visit, target, permanent=True)
        elif facts.noindex or "noindex" in directives:
            yield from self._withdrawn(visit, "noindex")
        elif facts.needs_js or not facts.characters:
            yield from self._left_out(visit, "needs-js" if facts.needs_js else "empty")
        elif not self._scope.includes(visit.url):
            self._remember(visit, PageRecord(links=links))
            yield Skip(visit.url, "not-included")
        else:
            content = Content(reply.body, None, facts.version, facts.title, visit.url)
            yield from self._item(visit, reply, content, links)

    def _canonical(self, visit: Visit, facts: PageFacts) -> str | None:
        """Another address that the page names as its own, if it can be believed.

        Some are not believed: addresses outside of the scope, and two pages that name one another. Nor is the home page as
        the canonical form of all pages, which is a frequent mistake of templates.
        """
        target = facts.canonical
        if target is None or target == visit.url or not self._scope.includes(target):
            return None
        if (
            target == f"{origin(target)}/"
            or self._progress.aliases.get(target) == visit.url
            or visit.hops >= _MOST_HOPS
        ):
            return None
        return target

    def _item(self, visit: Visit, reply: Reply, content: Content, links: tuple[str, ...]) -> Iterator[Listed]:
        url, headers, version = visit.url, reply.headers, content.version
        twin = url.removesuffix("/") if url.endswith("/") else f"{url}/"
        if (other := self._progress.memory.pages.get(twin)) and other.version == version:
            yield Skip(url, "duplicate")
            return
        media_type = headers.get("content-type") or None
        self._remember(visit, PageRecord(headers.get("etag"), headers.get("last-modified"), version, media_type, links))
        self._tools.spool.put(url, replace(content, media_type=media_type))
        yield ItemRef(url, version, size=len(reply.body), media_type=media_type, url=url)

    def _follow(self, visit: Visit, links: tuple[str, ...]) -> Iterator[Listed]:
        if visit.depth >= self._config.max_depth:
            return
        for link in links:
            if self._scope.crawls(link) and not self._frontier.add(Visit(link, visit.depth + 1)):
                yield Skip(link, "trap")

    def _remember(self, visit: Visit, record: PageRecord) -> None:
        links = tuple(link for link in record.links if self._scope.crawls(link))
        self._progress.memory.pages[visit.url] = replace(record, links=links)

    # --- what was not found --------------------------------------------------------------------------------------------

    def _left_out(self, visit: Visit, reason: str) -> Iterator[Listed]:
        """The page exists and is no item. A start page that cannot be read may hide the whole site."""
        if visit.depth == 0:
            self._doubt(f"start-{reason}")
        yield Skip(visit.url, reason)

    def _withdrawn(self, visit: Visit, reason: str) -> Iterator[Listed]:
        """The owner took the page back: what was stored of it goes at once."""
        if visit.url not in self._old.pages:
            yield Skip(visit.url, reason)
            return
        self._tools.spool.put(visit.url, Gone(reason))
        yield ItemRef(visit.url, url=visit.url)

    def _gone(self, visit: Visit, reason: str) -> Iterator[Listed]:
        if visit.depth == 0:
            self._doubt(f"start-{reason}")
        self._tools.spool.put(visit.url, Gone(reason))
        yield ItemRef(visit.url, url=visit.url)

    def _failed(self, visit: Visit, reason: str, message: str, *, retryable: bool) -> Iterator[Listed]:
        """No answer for now: the page and what it led to stay as they were."""
        if visit.depth == 0:
            self._doubt("start-unreachable")
        if record := self._old.pages.get(visit.url):
            self._remember(visit, record)
            yield from self._follow(visit, record.links)
        self._tools.spool.put(visit.url, Failure(reason, message, retryable))
        yield ItemRef(visit.url, url=visit.url)
