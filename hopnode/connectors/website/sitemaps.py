"""Reads sitemap files (XML, index, plain text; gzip). It fetches nothing and takes only what has the form of a URL."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree.ElementTree import ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import iterparse

from hopnode.connectors.bodies import unzip
from hopnode.connectors.website.urls import normalize

MAX_BYTES = 50_000_000
MAX_URLS = 50_000


@dataclass(frozen=True)
class Sitemap:
    """Further sitemap files and pages; `whole` is False when the file is damaged or holds more than the standard allows."""

    files: tuple[str, ...]
    pages: tuple[str, ...]
    whole: bool


def read_sitemap(data: bytes, url: str) -> Sitemap:
    """Reads the sitemap that came from `url`. Raises BodyTooLarge and BodyUnreadable for its gzip form."""
    data = unzip(data, MAX_BYTES, url)
    if not data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        lines = data.decode("utf-8-sig", "replace").split()
        return _sitemap([], [line for line in lines if line.startswith(("http://", "https://"))], url, True)
    files: list[str] = []
    pages: list[str] = []
    whole = True
    try:
        for parent, location in _locations(data):
            (files if parent == "sitemap" else pages).append(location)
            if len(files) + len(pages) > MAX_URLS:
                break
    except (ParseError, DefusedXmlException):
        whole = False
    return _sitemap(files, pages, url, whole)


def _sitemap(files: list[str], pages: list[str], url: str, whole: bool) -> Sitemap:
    whole = whole and len(files) + len(pages) <= MAX_URLS

    def plain(links: list[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(page for link in links[:MAX_URLS] if (page := normalize(link, url))))

    return Sitemap(plain(files), plain(pages), whole)


def _locations(data: bytes) -> Iterator[tuple[str, str]]:
    """Pairs of the element that holds a `loc` (`url` or `sitemap`) and its text."""
    path: list[str] = []
    for event, element in iterparse(io.BytesIO(data), events=("start", "end")):
        name = str(element.tag).rpartition("}")[2].lower()
        if event == "start":
            path.append(name)
            continue
        path.pop()
        if name == "loc" and path and path[-1] in ("url", "sitemap") and element.text:
            yield path[-1], element.text
        element.clear()
