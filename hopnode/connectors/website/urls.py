"""URLs of a crawl: one spelling for one page, what belongs to a source, and the shape by which traps are told. No network here."""

import re
from collections.abc import Iterable
from functools import lru_cache
from string import ascii_letters, digits
from urllib.parse import unquote_to_bytes, urljoin, urlsplit

import httpx

LONGEST_URL = 2000
_DEFAULT_PORTS = {"http": 80, "https": 443}

_TRACKING = re.compile(
    r"(utm_\w*|gclid|dclid|gbraid|wbraid|fbclid|msclkid|yclid|igshid|mc_[ce]id|_g[al]|_hs(enc|mi)|mkt_tok|"
    r"phpsessid|jsessionid|aspsessionid\w*|sessionid)(=|$)",
    re.IGNORECASE,
)
_SESSION_IN_PATH = re.compile(r";jsessionid=[^/?]*", re.IGNORECASE)
_ESCAPE = re.compile(r"%([0-9a-fA-F]{2})")
_UNRESERVED = frozenset((ascii_letters + digits + "-._~").encode())
_CONTROL = re.compile(r"[\t\n\r]")

_NOT_DOCUMENTS = re.compile(
    r"\.(7z|apk|avi|avif|bin|bmp|bz2|css|deb|dmg|eot|exe|flac|gif|gz|ico|iso|jar|jpe?g|js|m4[av]|map|mjs|mkv|mov|mp[34]|mpe?g|"
    r"msi|og[gv]|otf|png|rar|rpm|svg|tar|tgz|tiff?|ttf|wasm|wav|web[mp]|webmanifest|wmv|woff2?|xz|zip)$",
    re.IGNORECASE,
)


def normalize(link: str, base: str = "") -> str | None:
    """`link` as found on page `base`, in the one spelling that names the page. Returns None when it is no plain http(s) URL.

    Lower-case host in ASCII, no default port, no dot segments, no fragment, no tracking or session parameters, escapes only
    where needed. Case and slashes of the path, and the order of the query, are the site's business and stay.
    """
    try:
        absolute = urljoin(base, _CONTROL.sub("", link.strip()))
    except ValueError:
        return None
    return _plain(absolute.partition("#")[0])


@lru_cache(maxsize=50_000)
def _plain(absolute: str) -> str | None:
    if len(absolute) > LONGEST_URL * 2:
        return None
    try:
        url = httpx.URL(absolute)
    except (httpx.InvalidURL, ValueError):
        return None
    if url.scheme not in ("http", "https") or not url.host or url.userinfo:
        return None
    if url.port and url.port > 65535:
        return None
    host = url.raw_host.decode("ascii").rstrip(".").lower()
    host = f"[{host}]" if ":" in host else host
    port = "" if url.port in (None, _DEFAULT_PORTS[url.scheme]) else f":{url.port}"
    path, _, query = url.raw_path.decode("ascii").partition("?")
    path = _SESSION_IN_PATH.sub("", _ESCAPE.sub(_escape, path))
    query = "&".join(part for part in _ESCAPE.sub(_escape, query).split("&") if not _TRACKING.match(part))
    plain = f"{url.scheme}://{host}{port}{path or '/'}" + (f"?{query}" if query else "")
    return plain if len(plain) <= LONGEST_URL else None


def _escape(found: re.Match[str]) -> str:
    byte = unquote_to_bytes(found[0])
    return byte.decode() if byte[0] in _UNRESERVED else found[0].upper()


def origin(url: str) -> str:
    """Scheme and host of a URL, with its port when it is not the scheme's."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def shape(url: str) -> str:
    """What remains of a URL when numbers and query values are taken out: endless calendars and filters have few shapes."""
    parts = urlsplit(url)
    names = sorted(part.partition("=")[0] for part in parts.query.split("&") if part)
    return f"{parts.netloc}{re.sub('[0-9]+', '0', parts.path)}" + (f"?{'&'.join(names)}" if names else "")


def ending(url: str) -> str:
    """The file name ending of a URL's path, in lower case and without the dot; empty when there is none."""
    name = urlsplit(url).path.rpartition("/")[2]
    return name.rpartition(".")[2].lower() if "." in name else ""


def _site(netloc: str) -> str:
    return netloc.removeprefix("www.")


def _glob(pattern: str) -> re.Pattern[str]:
    """`*` stands for any run of characters, slashes included, `?` for itself. Atomic groups: no pattern can make it slow."""
    first, *rest = (re.escape(part) for part in pattern.split("*"))
    if not rest:
        return re.compile(first, re.DOTALL)
    *middle, last = rest
    return re.compile(first + "".join(f"(?>.*?{part})" for part in middle if part) + f".*{last}", re.DOTALL)


class Scope:
    """Which URLs belong to a source: the hosts of its start URLs (with or without `www.`) and the allowed ones, minus globs.

    A glob is held against path and query, or against the whole URL when it contains `://`.
    """

    def __init__(
        self, start_urls: Iterable[str], allowed_hosts: Iterable[str], include: Iterable[str], exclude: Iterable[str]
    ) -> None:
        self.starts = frozenset(start_urls)
        self._sites = {_site(urlsplit(url).netloc) for url in self.starts} | {_site(h.lower()) for h in allowed_hosts}
        self._include = [("://" in glob, _glob(glob)) for glob in include]
        self._exclude = [("://" in glob, _glob(glob)) for glob in exclude]

    def on_site(self, url: str) -> bool:
        """Whether the host is one of the source's."""
        return _site(urlsplit(url).netloc) in self._sites

    def includes(self, url: str) -> bool:
        """Whether the page may become an item."""
        parts = urlsplit(url)
        local = parts.path + (f"?{parts.query}" if parts.query else "")

        def matches(globs: list[tuple[bool, re.Pattern[str]]]) -> bool:
            return any(glob.fullmatch(url if whole else local) for whole, glob in globs)

        return self.on_site(url) and (not self._include or matches(self._include)) and not matches(self._exclude)

    def crawls(self, url: str) -> bool:
        """Whether the page may be asked for: start pages always, files that cannot hold text never."""
        return url in self.starts or (self.includes(url) and not _NOT_DOCUMENTS.search(urlsplit(url).path))
