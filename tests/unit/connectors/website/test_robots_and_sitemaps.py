import gzip
import time
from collections.abc import Iterator

import httpx
import pytest
from support.servers.website import XMLNS, Site, urlset

from hopnode.connectors.egress import EgressPolicy
from hopnode.connectors.errors import BodyTooLarge, BodyUnreadable, EgressBlocked, RobotsUnavailable
from hopnode.connectors.http import open_client
from hopnode.connectors.website.robots import Robots, read_robots
from hopnode.connectors.website.sitemaps import MAX_BYTES, MAX_URLS, read_sitemap

MAP = "http://h.test/sitemap.xml"


@pytest.fixture
def client(site: Site) -> Iterator[httpx.Client]:
    with open_client(EgressPolicy([site.host]), user_agent="test") as opened:
        yield opened


def test_rules_for_our_robot_win_over_those_for_all() -> None:
    text = "User-agent: *\nDisallow: /\n\nUser-agent: Hopnode-Bot\nDisallow: /private/\nAllow: /private/ok\nCrawl-delay: 3\n"
    rules = Robots(text, "http://h.test")
    assert rules.allows("http://h.test/page")
    assert not rules.allows("http://h.test/private/x")
    assert rules.allows("http://h.test/private/ok")
    assert rules.delay == 3


@pytest.mark.parametrize(
    ("line", "delay"), [("Request-rate: 2/10s", 5), ("Crawl-delay: 9999", 60), ("Crawl-delay: x", 0), ("", 0)]
)
def test_the_pause_that_a_site_asks_for_is_kept_up_to_a_minute(line: str, delay: float) -> None:
    assert Robots(f"User-agent: *\n{line}\n", "http://h.test").delay == delay


def test_sitemaps_are_found_wherever_they_stand() -> None:
    rules = Robots("Sitemap: /a.xml\nUser-agent: x\nDisallow: /\nSitemap: https://cdn.test/b.xml\n", "http://h.test")
    assert rules.sitemaps == ["http://h.test/a.xml", "https://cdn.test/b.xml"]


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_site_without_robots_file_allows_everything(site: Site, client: httpx.Client, status: int) -> None:
    site.fail("/robots.txt", status)
    assert read_robots(client, site.url).allows(f"{site.url}/x")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_robots_file_that_fails_forbids_everything(site: Site, client: httpx.Client, status: int) -> None:
    site.fail("/robots.txt", status)
    with pytest.raises(RobotsUnavailable, match=str(status)):
        read_robots(client, site.url)


def test_a_robots_file_may_be_reached_by_redirects(site: Site, client: httpx.Client) -> None:
    site.redirect("/robots.txt", "/real-robots.txt", 301)
    site.put("/real-robots.txt", "User-agent: *\nDisallow: /x\n", "text/plain")
    assert not read_robots(client, site.url).allows(f"{site.url}/x")


def test_a_host_that_does_not_answer_forbids_everything_and_a_private_one_is_blocked() -> None:
    with open_client(EgressPolicy(["127.0.0.1:9"]), user_agent="test") as client:
        with pytest.raises(RobotsUnavailable):
            read_robots(client, "http://127.0.0.1:9")
        with pytest.raises(EgressBlocked):
            read_robots(client, "http://127.0.0.1:10")


def test_a_robots_file_made_to_be_slow_is_not() -> None:
    rules = Robots("User-agent: *\n" + f"Disallow: /{'*a' * 1000}$\n" * 50, "http://h.test")
    started = time.monotonic()
    assert rules.allows("http://h.test/" + "a" * 1900 + "b")
    assert time.monotonic() - started < 1


def test_a_sitemap_and_an_index_are_told_apart() -> None:
    pages = read_sitemap(urlset(["http://h.test/a#x", "http://h.test/a", " http://h.test/b?utm_x=1 "]).encode(), MAP)
    assert (pages.pages, pages.files, pages.whole) == (("http://h.test/a", "http://h.test/b"), (), True)
    index = f"<sitemapindex {XMLNS}><sitemap><loc>/one.xml</loc></sitemap></sitemapindex>"
    assert read_sitemap(index.encode(), MAP).files == ("http://h.test/one.xml",)


def test_a_sitemap_may_be_packed_or_plain_text() -> None:
    packed = gzip.compress(urlset(["http://h.test/a"]).encode())
    assert read_sitemap(packed, MAP).pages == ("http://h.test/a",)
    assert read_sitemap(b"http://h.test/a\r\nhttp://h.test/b\nrubbish\n", MAP).pages == (
        "http://h.test/a",
        "http://h.test/b",
    )


def test_what_images_and_other_extensions_name_is_not_a_page() -> None:
    body = f"<urlset {XMLNS} xmlns:image='i'><url><loc>http://h.test/a</loc><image:image><image:loc>http://h.test/i.png</image:loc></image:image></url></urlset>"
    assert read_sitemap(body.encode(), MAP).pages == ("http://h.test/a",)


@pytest.mark.parametrize(
    "body",
    [
        urlset(["http://h.test/a", "http://h.test/b"])[:-40],
        "<!DOCTYPE x [<!ENTITY a 'b'>]>" + urlset(["http://h.test/a"]).partition("?>")[2],
        "<html><body>Not found",
    ],
)
def test_a_damaged_sitemap_gives_what_can_be_read_and_is_not_whole(body: str) -> None:
    found = read_sitemap(body.encode(), MAP)
    assert not found.whole
    assert set(found.pages) <= {"http://h.test/a", "http://h.test/b"}


@pytest.mark.slow
def test_a_sitemap_with_too_many_urls_is_cut_and_not_whole() -> None:
    found = read_sitemap("\n".join(f"http://h.test/{n}" for n in range(MAX_URLS + 5)).encode(), MAP)
    assert (len(found.pages), found.whole) == (MAX_URLS, False)


def test_a_packed_sitemap_that_is_a_bomb_or_damaged_is_refused() -> None:
    with pytest.raises(BodyTooLarge):
        read_sitemap(gzip.compress(bytes(MAX_BYTES + 1)), MAP)
    with pytest.raises(BodyUnreadable):
        read_sitemap(gzip.compress(b"<urlset>" * 100)[:-9], MAP)
