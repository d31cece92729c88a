"""Websites as sources: a crawler whose items are pages and linked documents, named by their canonical URL."""

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Self

from pydantic import JsonValue

from hopnode.connectors.base import CheckResult, Content, Failure, Fetched, Gone, ItemRef, Listed, Unchanged
from hopnode.connectors.egress import EgressPolicy
from hopnode.connectors.errors import ConnectorError
from hopnode.connectors.http import Reply, Resolver, open_client, resolve
from hopnode.connectors.website.config import WebsiteConfig
from hopnode.connectors.website.crawl import Crawl, Tools
from hopnode.connectors.website.page_reader import PageReader
from hopnode.connectors.website.spool import Spool
from hopnode.connectors.website.urls import Scope, normalize
from hopnode.connectors.website.visitor import Visitor, document_version, file_name, kind_of

__all__ = ["WebsiteConfig", "WebsiteConnector"]


class WebsiteConnector:
    """A site behind the three verbs of a connector.

    To list a site is to crawl it, so each page comes to us while it is listed. `list` leaves it in a spool in memory (64 MB;
    the oldest go) and `fetch` hands it over from there; a page that is not in the spool (asked for late, or answered by 304)
    is fetched once more. The version of a page is a hash of its title and its text without navigation, as dates and tokens in
    the markup change daily; that of a document is a hash of its bytes. ETag, Last-Modified and links of each page are kept in
    the state: the next crawl asks conditionally, and follows the stored links of pages that answer 304 or fail.
    """

    deletes_after_missed = 2

    def __init__(self, config: WebsiteConfig, policy: EgressPolicy, resolver: Resolver = resolve) -> None:
        self._config = config
        self._client = open_client(policy, user_agent=config.user_agent, resolver=resolver)
        self._visitor = Visitor(
            self._client,
            delay=config.crawl_delay,
            max_bytes=config.max_bytes_per_page,
            respect_robots=config.respect_robots,
        )
        self._reader = PageReader()
        self._spool = Spool()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def check(self) -> CheckResult:
        """Asks for robots.txt and each start page."""
        scope = Scope(self._config.start_urls, self._config.allowed_hosts, (), ())
        try:
            problems = [problem for url in self._config.start_urls if (problem := self._problem(url, scope))]
        except ConnectorError as error:
            return CheckResult(False, str(error))
        if problems:
            return CheckResult(False, " ".join(problems))
        return CheckResult(True, f"{self._config.start_urls[0]} answers, and its robots.txt lets hopnode-bot in.")

    def list(self, state: Mapping[str, JsonValue], resume: Mapping[str, JsonValue] | None) -> Iterator[Listed]:
        """Crawls the site. Ends with Complete when nothing is left to visit, with Partial when a budget or a fault ended it.

        Raises EgressBlocked and InvalidAddress when a start URL may not be fetched from here.
        """
        tools = Tools(self._visitor, self._reader, self._spool)
        return Crawl(self._config, tools, state, resume).run()

    def fetch(self, ref: ItemRef, known_version: str | None) -> Fetched:
        """The page that was listed, or asks the site for it. Failures are data; no error is raised."""
        fetched = self._spool.take(ref.item_id) or self._fetch_again(ref.item_id)
        if isinstance(fetched, Content) and fetched.version is not None and fetched.version == known_version:
            return Unchanged()
        return fetched

    def close(self) -> None:
        """Ends the reader's child and the connections."""
        self._reader.close()
        self._client.close()

    def _problem(self, url: str, scope: Scope) -> str | None:
        if not self._visitor.robots(url).allows(url):
            return f"The robots.txt of the site does not let hopnode-bot fetch {url}."
        reply = self._visitor.fetch(url)
        for _ in range(5):
            target = normalize(reply.redirect or "")
            if target is None:
                break
            if not scope.on_site(target):
                return f"{url} leads to {target} on another host: use that as the start URL, or add its host to allowed_hosts."
            reply = self._visitor.fetch(target)
        if reply.status >= 300:
            return f"{url} answers {reply.status}."
        return None if kind_of(reply) else f"{url} is {reply.media_type}, not a page or document."

    def _fetch_again(self, url: str) -> Fetched:
        try:
            if not self._visitor.robots(url).allows(url):
                return Failure("robots", f"The robots.txt of the site does not allow {url} any more.", retryable=False)
            reply = self._visitor.fetch(url)
            return self._content(url, reply)
        except ConnectorError as error:
            return Failure(error.code, str(error), error.retryable)

    def _content(self, url: str, reply: Reply) -> Fetched:
        if reply.status in (404, 410):
            return Gone("not-found")
        kind = kind_of(reply) if reply.status < 300 else None
        if kind is None:
            return Failure(f"http-{reply.status}", f"{url} answers {reply.status}, and no page or document.")
        media_type = reply.headers.get("content-type") or None
        if kind == "document":
            return Content(reply.body, media_type, document_version(reply.body), url=url, filename=file_name(url))
        facts = self._reader.read(reply.body, media_type or "", url)
        return Gone("noindex") if facts.noindex else Content(reply.body, media_type, facts.version, facts.title, url)
