"""What a crawler reads from one HTML page: where it leads, what it says of itself, and a digest of its text.
It runs in the reader's child process, since no fast HTML parser is safe from pages made to keep it busy."""

import codecs
import hashlib
import re
from collections.abc import Iterator

from pydantic import BaseModel, ConfigDict
from selectolax.lexbor import LexborHTMLParser, LexborNode

from hopnode.connectors.website.urls import normalize

ROBOT = "hopnode-bot"
MOST_LINKS = 2000

_NOT_TEXT = "script, style, noscript, template, svg, iframe, select, nav, aside"
_FRAMES = "header, footer"
_CONTENT = frozenset({"main", "article", "section"})
_APP_ROOTS = "#root, #app, #__next, #__nuxt, #___gatsby, app-root, [data-reactroot], [ng-app], [data-server-rendered]"
_META_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([a-zA-Z0-9_:.-]{1,40})", re.IGNORECASE)
_REFRESH = re.compile(r"^\s*[\d.]+\s*[;,]\s*(?:url\s*=\s*)?[\"']?([^\"']+)", re.IGNORECASE)
_AS_BROWSERS_DO: dict[str, str] = dict.fromkeys(("iso-8859-1", "latin-1", "latin1", "us-ascii", "ascii"), "cp1252")
_SHORT = 40
_THIN = 200


class PageFacts(BaseModel):
    """Facts of one page; `links` in the order of the page and without repeats, `characters` counts the text without navigation."""

    model_config = ConfigDict(frozen=True)

    title: str
    digest: str
    characters: int
    links: tuple[str, ...]
    canonical: str | None
    noindex: bool
    nofollow: bool
    needs_js: bool

    @property
    def version(self) -> str:
        """Changes when title or text do, and when we read pages in another way."""
        return f"t1:{self.digest}"


def read_page(body: bytes, content_type: str, url: str) -> PageFacts:
    """Reads a page that came from `url` with this Content-Type header."""
    tree = LexborHTMLParser(decode(body, content_type))
    base = url
    if (found := tree.css_first("base[href]")) is not None:
        base = normalize(found.attributes.get("href") or "", url) or url
    directives = robots_directives(_metas(tree, "name", "robots", ROBOT))
    links = tuple(dict.fromkeys(_links(tree, base)))[:MOST_LINKS]
    canonical = _canonical(tree, base)
    title = _title(tree)
    asks = any("javascript" in node.text().lower() for node in tree.css("noscript"))
    empty_app = asks or tree.css_first(_APP_ROOTS) is not None
    text = _text(tree)
    return PageFacts(
        title=title,
        digest=hashlib.sha256(f"{title}\n{text}".encode()).hexdigest()[:40],
        characters=len(text),
        links=links,
        canonical=canonical,
        noindex="noindex" in directives,
        nofollow="nofollow" in directives,
        needs_js=empty_app and len(text) < (_THIN if asks else _SHORT),
    )


def robots_directives(values: Iterator[str] | list[str]) -> frozenset[str]:
    """The directives of robots meta tags or X-Robots-Tag headers that concern us; `none` is both of its halves."""
    found: set[str] = set()
    for value in values:
        robot, colon, rest = value.partition(":")
        named = bool(colon) and "," not in robot and robot.strip().lower() != "unavailable_after"
        if not named or robot.strip().lower() == ROBOT:
            found |= {part.strip().lower() for part in (rest if named else value).split(",")}
    return frozenset(found | {"noindex", "nofollow"} if "none" in found else found)


def decode(body: bytes, content_type: str) -> str:
    """Text of a page: by byte order mark, header, meta tag, then UTF-8, then Windows-1252, which takes any byte."""
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if body.startswith(mark):
            return body[len(mark) :].decode(name, "replace")
    declared = re.search(r"charset\s*=\s*[\"']?([\w:.-]{1,40})", content_type, re.IGNORECASE)
    meta = _META_CHARSET.search(body[:4096])
    for name in filter(None, (declared and declared[1], meta and meta[1].decode())):
        try:
            return body.decode(_AS_BROWSERS_DO.get(name.lower(), name), "replace")
        except LookupError:
            continue  # no such charset, or a codec that is none, like `zip`
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return body.decode("cp1252", "replace")


def _metas(tree: LexborHTMLParser, attribute: str, *names: str) -> list[str]:
    return [
        node.attributes.get("content") or ""
        for node in tree.css(f"meta[{attribute}]")
        if (node.attributes.get(attribute) or "").strip().lower() in names
    ]


def _links(tree: LexborHTMLParser, base: str) -> Iterator[str]:
    for refresh in _metas(tree, "http-equiv", "refresh"):
        if (target := _REFRESH.match(refresh)) and (link := normalize(target[1], base)):
            yield link
    for node in tree.css("a[href], area[href]"):
        if "nofollow" not in _words(node, "rel") and (link := normalize(node.attributes.get("href") or "", base)):
            yield link


def _words(node: LexborNode, attribute: str) -> list[str]:
    return (node.attributes.get(attribute) or "").lower().split()


def _canonical(tree: LexborHTMLParser, base: str) -> str | None:
    for node in tree.css("link[rel][href]"):
        if "canonical" in _words(node, "rel"):
            return normalize(node.attributes.get("href") or "", base)
    return None


def _title(tree: LexborHTMLParser) -> str:
    for selector in ("head > title", "h1"):
        if (node := tree.css_first(selector)) is not None and (title := " ".join(node.text().split())):
            return title[:500]
    return ""


def _text(tree: LexborHTMLParser) -> str:
    """Visible text without navigation and the frame of the site; takes those parts out of the tree."""
    for node in tree.css(_NOT_TEXT):
        node.decompose()
    for node in tree.css(_FRAMES):
        if not _in_content(node):
            node.decompose()
    return " ".join(tree.body.text(separator=" ").split()) if tree.body else ""


def _in_content(node: LexborNode) -> bool:
    parent = node.parent
    while parent is not None and parent.tag not in _CONTENT:
        parent = parent.parent
    return parent is not None
