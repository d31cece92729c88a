"""A polite visitor of one site: robots.txt, pauses between requests, limits, and media types worth reading. It follows no links."""

import hashlib
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Literal, Required, TypedDict, Unpack
from urllib.parse import unquote, urlsplit

import httpx

from hopnode.connectors.errors import RobotsUnavailable
from hopnode.connectors.http import Reply, get
from hopnode.connectors.website.robots import Robots, read_robots
from hopnode.connectors.website.sitemaps import MAX_BYTES
from hopnode.connectors.website.urls import ending, origin

_HTML = frozenset({"text/html", "application/xhtml+xml"})
_DOCUMENTS = frozenset(
    {
        "application/pdf",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "text/plain",
        "text/markdown",
        "text/x-markdown",
        "text/csv",
    }
)
_UNNAMED = frozenset({"", "application/octet-stream", "binary/octet-stream", "application/x-download"})
_DOCUMENT_ENDINGS = frozenset({"pdf", "docx", "pptx", "xlsx", "txt", "md", "markdown", "csv"})

_PAGE_SECONDS = 30.0
_LONGEST_PAUSE = 120.0
_FIRST_PAUSE = 5.0


class GetOptions(TypedDict, total=False):
    """Limits of one GET, as `hopnode.connectors.http.get` takes them."""

    max_bytes: Required[int]
    headers: Mapping[str, str] | None
    redirects: int
    wanted: Callable[[Reply], bool]


def kind_of(reply: Reply) -> Literal["html", "document"] | None:
    """What an answer holds, by its media type, or by the ending of its URL when the server does not know."""
    if reply.media_type in _HTML:
        return "html"
    if reply.media_type in _DOCUMENTS:
        return "document"
    if reply.media_type in _UNNAMED and ending(reply.url) in _DOCUMENT_ENDINGS:
        return "document"
    return "html" if not reply.media_type else None


def file_name(url: str) -> str | None:
    """The last part of a URL's path."""
    return unquote(urlsplit(url).path.rpartition("/")[2]) or None


def document_version(body: bytes) -> str:
    """Version of a file that is not HTML: by its bytes."""
    return f"b1:{hashlib.sha256(body).hexdigest()[:40]}"


class Visitor:
    """Fetches one URL after the other. `delay` is the least pause between two requests to one host, in seconds."""

    def __init__(self, client: httpx.Client, *, delay: float, max_bytes: int, respect_robots: bool) -> None:
        self._client = client
        self._delay = delay
        self._max_bytes = max_bytes
        self._respect_robots = respect_robots
        self._robots: dict[str, Robots | RobotsUnavailable] = {}
        self._due: dict[str, float] = {}

    def robots(self, url: str) -> Robots:
        """Rules of the URL's host, asked for once. Raises RobotsUnavailable (from then on at once) and EgressBlocked."""
        home = origin(url)
        known = self._robots.get(home) or (Robots("", home) if not self._respect_robots else None)
        if known is None:
            try:
                known = read_robots(self._client, home)
            except RobotsUnavailable as error:
                known = error
        self._robots[home] = known
        if isinstance(known, RobotsUnavailable):
            raise RobotsUnavailable(str(known))
        return known

    def pause_left(self, url: str) -> float:
        """Seconds until the URL's host may be asked again."""
        return max(0.0, self._due.get(origin(url), 0.0) - time.monotonic())

    def back_off(self, url: str, reply: Reply, tries: int) -> None:
        """Leaves the host alone for as long as it asks for, or for longer with each try."""
        self._due[origin(url)] = time.monotonic() + _retry_after(reply, _FIRST_PAUSE * 2**tries)

    def fetch(self, url: str, conditions: Mapping[str, str] | None = None) -> Reply:
        """One GET without redirects, after the pause that is due; bodies that cannot become text are not read.

        Raises the errors of `hopnode.connectors.http.get`.
        """
        return self._get(
            url,
            max_bytes=self._max_bytes,
            headers=conditions,
            redirects=0,
            wanted=lambda reply: reply.status < 300 and kind_of(reply) is not None,
        )

    def fetch_sitemap(self, url: str) -> Reply:
        """One GET with redirects, after the pause that is due. Raises the errors of `hopnode.connectors.http.get`."""
        return self._get(url, max_bytes=MAX_BYTES, wanted=lambda reply: reply.status < 300)

    def _get(self, url: str, **options: Unpack[GetOptions]) -> Reply:
        time.sleep(self.pause_left(url))
        try:
            return get(self._client, url, seconds=_PAGE_SECONDS, **options)
        finally:
            known = self._robots.get(origin(url))
            asked = known.delay if isinstance(known, Robots) else 0.0
            self._due[origin(url)] = time.monotonic() + max(self._delay, asked)


def _retry_after(reply: Reply, otherwise: float) -> float:
    """Seconds of a Retry-After header (number or date), between 1 and 120."""
    value = reply.headers.get("retry-after", "").strip()
    seconds = otherwise
    if value.isdecimal():
        seconds = float(value[:9])
    elif value:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            seconds = otherwise
    return min(max(seconds, 1.0), _LONGEST_PAUSE)
