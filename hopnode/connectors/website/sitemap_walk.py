"""Walks the sitemaps of a site, file by file, and says which pages they name. What becomes of the pages is not its affair."""

from collections.abc import Iterable, Iterator

from hopnode.connectors.base import Wait
from hopnode.connectors.errors import ConnectorError, RobotsUnavailable
from hopnode.connectors.website.sitemaps import Sitemap, read_sitemap
from hopnode.connectors.website.urls import origin
from hopnode.connectors.website.visitor import Visitor

_MOST_FILES = 50


class SitemapWalk:
    """The sitemaps of all hosts of `starts`; `remembered` are files that could be read at the last crawl.

    After the walk, `readable` are the files that can be read now, and `doubt` is a slug when pages may be missing.
    """

    def __init__(self, visitor: Visitor, starts: Iterable[str], remembered: set[str]) -> None:
        self._visitor = visitor
        self._starts = list(starts)
        self._remembered = remembered
        self.readable: set[str] = set()
        self.doubt: str | None = None

    def pages(self) -> Iterator[Wait | tuple[str, ...]]:
        """The pages of each file, and a Wait before each request. Raises EgressBlocked when a start host is not allowed."""
        waiting = list(dict.fromkeys(url for start in self._starts for url in self._files_of(start)))
        seen = set(waiting)
        while waiting:
            if len(seen) > _MOST_FILES:
                self.doubt = "sitemap-truncated"
                return
            url = waiting.pop(0)
            yield Wait(self._visitor.pause_left(url))
            sitemap = self._read(url)
            files = [file for file in sitemap.files if file not in seen]
            seen.update(files)
            waiting += files
            yield sitemap.pages

    def _files_of(self, start: str) -> list[str]:
        try:
            return self._visitor.robots(start).sitemaps or [f"{origin(start)}/sitemap.xml"]
        except RobotsUnavailable:
            return []  # the visit of the start URL meets the same error, and says so

    def _read(self, url: str) -> Sitemap:
        """A file that could be read before and cannot now may name pages that nothing else leads to."""
        nothing = Sitemap((), (), True)
        try:
            reply = self._visitor.fetch_sitemap(url)
            if reply.status in (404, 410):
                return nothing
            sitemap = read_sitemap(reply.body, url) if reply.status < 300 else None
        except ConnectorError:
            sitemap = None
        if sitemap is None:
            self.doubt = "sitemap-unavailable" if url in self._remembered else self.doubt
            return nothing
        if not sitemap.whole:
            self.doubt = "sitemap-truncated"
        if sitemap.pages or sitemap.files:
            self.readable.add(url)
        return sitemap
