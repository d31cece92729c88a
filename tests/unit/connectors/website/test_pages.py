import codecs
import time
from collections.abc import Iterator

import pytest
from support.servers.website import article, html, spa

from hopnode.connectors.errors import PageRejected
from hopnode.connectors.website.page_reader import PageReader
from hopnode.connectors.website.pages import PageFacts, decode, read_page, robots_directives

URL = "http://h.test/docs/1"


def read(body: str, content_type: str = "text/html; charset=utf-8") -> PageFacts:
    return read_page(body.encode(), content_type, URL)


def test_a_page_gives_its_title_its_links_and_its_canonical_address() -> None:
    facts = read(
        html("A title", links=["/a?utm_x=1", "b", "/a", "mailto:x"], head='<link rel="Canonical" href="/docs/1?x=1">')
    )
    assert facts.title == "A title"
    assert facts.links == ("http://h.test/a", "http://h.test/docs/b")
    assert facts.canonical == "http://h.test/docs/1?x=1"


def test_links_are_read_from_the_base_and_those_marked_nofollow_are_not_followed() -> None:
    body = '<base href="/other/"><a href="x">x</a><a rel="ugc nofollow" href="y">y</a><map><area href="z"></map>'
    assert read(body).links == ("http://h.test/other/x", "http://h.test/other/z")


def test_a_meta_refresh_is_a_link() -> None:
    assert read("<meta http-equiv=Refresh content=\"0; URL='/new'\">").links == ("http://h.test/new",)


def test_what_changes_daily_in_markup_and_frames_does_not_change_the_digest() -> None:
    one = html("T", head='<meta name="csrf" content="1">') + "<!-- built monday --><script>var t=1</script>"
    other = (
        html("T", head='<meta name="csrf" content="2">', links=["/new"])
        + "<!-- built tuesday --><script>var t=2</script>"
    )
    assert read(one).digest == read(other).digest
    assert read(one).digest != read(html("T", "Other words.")).digest
    assert read(one).digest != read(html("U", article("T"))).digest


def test_headers_and_footers_count_inside_the_content_and_not_around_it() -> None:
    page = "<body><div><header>{0}</header></div><form><article><header>{1}</header>Text</article></form><footer>{2}</footer>"
    digest = read(page.format("Menu", "By the board", "Imprint")).digest
    assert read(page.format("Other menu", "By the board", "Other imprint")).digest == digest
    assert read(page.format("Menu", "By the council", "Imprint")).digest != digest


@pytest.mark.parametrize(
    ("head", "noindex", "nofollow"),
    [
        ('<meta name="robots" content="noindex, nofollow">', True, True),
        ('<meta name="ROBOTS" content="NONE">', True, True),
        ('<meta name="hopnode-bot" content="noindex">', True, False),
        ('<meta name="googlebot" content="noindex">', False, False),
        ('<meta name="robots" content="nofollow"><meta name="robots" content="noindex">', True, True),
        ('<meta name="description" content="noindex">', False, False),
    ],
)
def test_robots_meta_tags_are_obeyed(head: str, noindex: bool, nofollow: bool) -> None:
    facts = read(html("T", head=head))
    assert (facts.noindex, facts.nofollow) == (noindex, nofollow)


def test_robots_headers_count_for_all_robots_or_for_ours() -> None:
    assert robots_directives(["noindex, nofollow"]) == {"noindex", "nofollow"}
    assert robots_directives(["googlebot: noindex"]) == set()
    assert robots_directives(["hopnode-bot: noindex", "otherbot: nofollow"]) == {"noindex"}
    assert "noindex" in robots_directives(["noindex, unavailable_after: 25 Jun 2030 15:00:00 PST"])


@pytest.mark.parametrize(
    ("body", "needs_js"),
    [
        (spa(), True),
        ('<body><div id="__next"></div><script src=x></script></body>', True),
        (
            "<body><noscript>Please turn on JavaScript</noscript><p>Loading the application, one moment please.</p></body>",
            True,
        ),
        (f'<body><div id="root"><p>{article("A page rendered on the server")}</p></div></body>', False),
        ("<body><p>Short.</p></body>", False),
    ],
)
def test_a_page_that_is_empty_without_scripts_is_told_apart(body: str, needs_js: bool) -> None:
    assert read(body).needs_js is needs_js


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("Grüße".encode("latin-1"), "text/html; charset=ISO-8859-1"),
        ("<meta charset='latin-1'>Grüße".encode("latin-1"), "text/html"),
        ("<meta http-equiv=content-type content='text/html; charset=utf-8'>Grüße".encode(), "text/html"),
        (codecs.BOM_UTF16_LE + "Grüße".encode("utf-16-le"), "text/html; charset=utf-8"),
        (codecs.BOM_UTF8 + "Grüße".encode(), "text/html; charset=latin-1"),
        ("Grüße".encode("cp1252"), "text/html"),
        ("Grüße".encode(), "text/html; charset=no-such-charset"),
        ("Grüße".encode(), "text/html; charset=zip"),
    ],
)
def test_the_charset_is_found(body: bytes, content_type: str) -> None:
    assert decode(body, content_type).endswith("Grüße")


@pytest.fixture
def reader() -> Iterator[PageReader]:
    opened = PageReader(seconds=10)
    yield opened
    opened.close()


def test_the_reader_reads_in_a_child_what_the_function_reads_here(reader: PageReader) -> None:
    body = html("Grüße", links=["/a", "/b"]).encode()
    assert reader.read(body, "text/html", URL) == read_page(body, "text/html", URL)
    assert reader.read(b"", "", URL).characters == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [b"<div>" * 200_000, b"<a " + b" ".join(b"a%d=1" % n for n in range(100_000)) + b">x</a>"],
    ids=["nested", "attributes"],
)
def test_a_page_made_to_stall_the_parser_is_rejected_in_time_and_the_next_one_is_read(body: bytes) -> None:
    reader = PageReader(seconds=2)
    started = time.monotonic()
    with pytest.raises(PageRejected, match="longer than 2 s"):
        reader.read(body, "text/html", URL)
    assert time.monotonic() - started < 4
    assert reader.read(html("Fine").encode(), "text/html", URL).title == "Fine"
    reader.close()
