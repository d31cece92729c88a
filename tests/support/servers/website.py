"""A website on loopback that can be rearranged while it runs, with every nuisance a crawler meets. Ends with its `with` block."""

import gzip
import hashlib
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HTML = "text/html; charset=utf-8"


@dataclass
class Page:
    """What one path answers with; `validators` are ETag and/or Last-Modified that the site honours with 304."""

    body: bytes = b""
    media_type: str = HTML
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    etag: bool = True
    modified: str | None = None


@dataclass(frozen=True)
class Seen:
    """A request that the site got."""

    path: str
    headers: dict[str, str]
    at: float


Behaviour = Callable[[BaseHTTPRequestHandler], None]


class Site:
    """Paths (with query, where one is given) to pages or behaviours; `requests` is the log of what was asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.host = url.partition("://")[2]
        self.pages: dict[str, Page | Behaviour] = {}
        self.requests: list[Seen] = []

    def put(self, path: str, body: str | bytes = "", media_type: str = HTML, **options: Any) -> None:
        data = body.replace("BASE", self.url).encode() if isinstance(body, str) else body
        self.pages[path] = Page(data, media_type, **options)

    def behave(self, path: str, behaviour: Behaviour) -> None:
        self.pages[path] = behaviour

    def redirect(self, path: str, to: str, status: int = 302) -> None:
        self.pages[path] = Page(status=status, headers={"location": to}, etag=False)

    def fail(self, path: str, status: int, **headers: str) -> None:
        self.pages[path] = Page(
            b"out of order", status=status, etag=False, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )

    def remove(self, path: str) -> None:
        del self.pages[path]

    def asked(self, path: str) -> int:
        return sum(seen.path == path for seen in self.requests)

    def paths(self) -> list[str]:
        return [seen.path for seen in self.requests]

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        page = self.pages.get(handler.path) or self.pages.get(handler.path.partition("?")[0])
        if page is None:
            page = Page(b"<p>no such page</p>", status=404, etag=False)
        if not isinstance(page, Page):
            page(handler)
            return
        headers = {"content-type": page.media_type, "content-length": str(len(page.body)), **page.headers}
        if page.etag:
            headers["etag"] = '"' + hashlib.sha256(page.body).hexdigest()[:16] + '"'
        if page.modified:
            headers["last-modified"] = page.modified
        known = page.etag and handler.headers.get("if-none-match") == headers.get("etag")
        if page.modified and not page.etag:
            known = handler.headers.get("if-modified-since") == page.modified
        send(handler, 304 if known else page.status, headers, b"" if known else page.body)


def send(handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes = b"") -> None:
    """Writes an answer; a client that hung up is no news."""
    if status == 304:
        headers = {key: value for key, value in headers.items() if key != "content-length"}
    try:
        handler.send_response(status)
        for key, value in headers.items():
            handler.send_header(key, value)
        handler.end_headers()
        handler.wfile.write(body)
    except OSError:
        handler.close_connection = True


@contextmanager
def serve_site(tls: ssl.SSLContext | None = None, name: str = "127.0.0.1") -> Iterator[Site]:
    """A running site on a free port of 127.0.0.1; `name` is the host name in its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            site.requests.append(Seen(self.path, {k.lower(): v for k, v in self.headers.items()}, time.monotonic()))
            site.answer(self)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # a client that hangs up is what many of these tests are about

    server = Server(("127.0.0.1", 0), Handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    site = Site(f"{'https' if tls else 'http'}://{name}:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


# --- pages -----------------------------------------------------------------------------------------------------------------


def html(title: str, text: str = "", links: tuple[str, ...] | list[str] = (), head: str = "") -> str:
    """A page with navigation, article and footer, as sites have them."""
    anchors = "".join(f'<li><a href="{link}">link</a></li>' for link in links)
    return (
        f"<!doctype html><html><head><title>{title}</title>{head}</head><body><nav><ul>{anchors}</ul></nav>"
        f"<main><article><h1>{title}</h1><p>{text or article(title)}</p></article></main>"
        "<footer>Imprint and cookies</footer></body></html>"
    )


def article(topic: str) -> str:
    """Some sentences that differ by topic."""
    return (
        f"{topic} keeps its audit records for four hundred days. Operators rotate the keys of {topic} every quarter, "
        f"and the runbook of {topic} says who is called when a rotation fails. Nothing else about {topic} is secret."
    )


def docs_site(site: Site, count: int) -> None:
    """`/` and `count` pages `/docs/<n>` that all link one another with tracking parameters."""
    links = [f"/docs/{n}?utm_source=nav" for n in range(count)]
    site.put("/", html("Start", links=links))
    for n in range(count):
        site.put(f"/docs/{n}", html(f"Document {n}", links=links, head=f'<link rel="canonical" href="/docs/{n}">'))


def hostile_site(site: Site) -> None:
    """Everything at once: `/` links to every nuisance; 30 sound pages are reachable through the sitemap index as well."""
    docs_site(site, 30)
    nuisances = [
        "/latin",
        "/spa",
        "/private/x",
        "/calendar?month=1",
        "/loop",
        "/docs/1#part",
        "/docs/1/",
        "/noindex",
        "/bomb",
    ]
    nuisances += [
        "//evil.test/x",
        "javascript:void(0)",
        "mailto:a@b.test",
        "/to-private",
        "/vanished",
        "/manual.pdf",
        "/list",
    ]
    site.put("/", html("Start", links=["/docs/0", *nuisances]))
    site.put("/robots.txt", "User-agent: *\nDisallow: /private/\nSitemap: BASE/sitemaps.xml\n", "text/plain")
    site.put("/sitemaps.xml", f"<sitemapindex {XMLNS}><sitemap><loc>BASE/map.xml.gz</loc></sitemap></sitemapindex>")
    site.put(
        "/map.xml.gz", gzip.compress(urlset([f"{site.url}/docs/{n}" for n in range(30)]).encode()), "application/gzip"
    )
    latin = "<html><head><meta charset=iso-8859-1><title>Köln</title></head><body><p>Grüße aus Köln, " + "schön " * 20
    site.put("/latin", latin.encode("latin-1"), "text/html")
    site.put("/spa", spa())
    site.put("/private/x", html("Private"))
    site.put("/noindex", html("Hidden", links=["/hidden"], head='<meta name="robots" content="noindex, nofollow">'))
    site.put("/hidden", html("Only reachable through a nofollow page"))
    site.redirect("/loop", "/loop")
    site.redirect("/to-private", "http://10.0.0.7/admin")
    site.redirect("/docs/1/", "/docs/1", 301)
    site.behave("/calendar", calendar)
    site.behave("/bomb", bomb)
    site.put("/manual.pdf", b"%PDF-1.4 not much of a PDF", "application/pdf")
    site.put("/list", "Plain text about the retention of records.", "text/plain; charset=utf-8")


XMLNS = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


def urlset(urls: list[str]) -> str:
    """A sitemap file."""
    return f"<?xml version='1.0'?><urlset {XMLNS}>" + "".join(f"<url><loc>{u}</loc></url>" for u in urls) + "</urlset>"


def spa() -> str:
    """A page that is empty without a script engine."""
    return (
        '<html><head><title>App</title></head><body><div id="root"></div><script src="/app.js"></script>'
        "<noscript>You need to enable JavaScript to run this app.</noscript></body></html>"
    )


def calendar(handler: BaseHTTPRequestHandler) -> None:
    """Every month links to three more, for ever."""
    month = int(handler.path.partition("month=")[2] or 0)
    links = [f"/calendar?month={month + step}" for step in (1, 2, 3)]
    body = html(f"Month {month}", f"Nothing happens in month {month} of this long calendar.", links).encode()
    send(handler, 200, {"content-type": HTML, "content-length": str(len(body))}, body)


def bomb(handler: BaseHTTPRequestHandler, megabytes: int = 200) -> None:
    """A small gzip body that unpacks to hundreds of megabytes of paragraphs."""
    packer = gzip.GzipFile(mode="wb", fileobj=(sink := _Sink()), compresslevel=6)
    for _ in range(megabytes):
        packer.write(b"<p>" + b"a" * (1 << 20))
    packer.close()
    body = bytes(sink.data)
    send(handler, 200, {"content-type": HTML, "content-encoding": "gzip", "content-length": str(len(body))}, body)


class _Sink:
    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, piece: bytes) -> int:
        self.data += piece
        return len(piece)


def drip(seconds: float, before_headers: bool = False) -> Behaviour:
    """Sends one byte every 50 ms for `seconds`, in the body or already in the headers."""

    def behaviour(handler: BaseHTTPRequestHandler) -> None:
        if not before_headers:
            send(handler, 200, {"content-type": HTML, "content-length": "100000"})
        ends = time.monotonic() + seconds
        try:
            if before_headers:
                handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            while time.monotonic() < ends:
                handler.wfile.write(b"a")
                handler.wfile.flush()
                time.sleep(0.05)
        except OSError:
            pass
        handler.close_connection = True

    return behaviour
