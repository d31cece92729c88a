import gzip
import json
import time
from collections.abc import Mapping
from itertools import pairwise

import pytest
from pydantic import JsonValue
from support.data.crawling import connector, crawl
from support.servers.website import Site, article, docs_site, html, serve_site, spa, urlset

from hopnode.connectors.base import Content, Failure, Gone, ItemRef, Unchanged
from hopnode.connectors.egress import EgressPolicy
from hopnode.connectors.errors import EgressBlocked
from hopnode.connectors.website.connector import WebsiteConfig, WebsiteConnector

pytestmark = pytest.mark.slow


def json_copy(state: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The state as a database gives it back."""
    return json.loads(json.dumps(state))


# --- what is listed --------------------------------------------------------------------------------------------------------


def test_all_pages_are_listed_once_under_their_canonical_url_with_title_and_text(site: Site) -> None:
    docs_site(site, 12)
    listing = crawl(site)
    assert listing.complete
    assert set(listing.items) == {"/", *(f"/docs/{n}" for n in range(12))}
    content = listing.fetched["/docs/3"]
    assert isinstance(content, Content)
    assert (content.title, content.url, content.media_type) == (
        "Document 3",
        f"{site.url}/docs/3",
        "text/html; charset=utf-8",
    )
    assert b"runbook of Document 3" in content.data
    assert content.version == listing.items["/docs/3"].version
    assert all(site.asked(path) == 1 for path in listing.items), (
        "a page is fetched once, although it is listed and fetched"
    )


def test_a_page_that_names_another_canonical_address_is_visited_there(site: Site) -> None:
    site.put("/", html("Start", links=["/a?view=print", "/b"]))
    site.put("/a", html("A", head='<link rel=canonical href="/a">'))
    site.put("/a?view=print", html("A, printed", head='<link rel=canonical href="/a">'))
    site.put("/b", html("B", head='<link rel=canonical href="https://elsewhere.test/b">'))
    listing = crawl(site)
    assert set(listing.items) == {"/", "/a", "/b"}
    assert listing.skips == {"/a?view=print": "moved"}


def test_two_pages_that_name_one_another_do_not_both_vanish(site: Site) -> None:
    site.put("/", html("Start", links=["/a", "/b"]))
    site.put("/a", html("A", head='<link rel=canonical href="/b">'))
    site.put("/b", html("B", head='<link rel=canonical href="/a">'))
    listing = crawl(site)
    assert set(listing.items) == {"/", "/b"}


def test_a_template_that_calls_every_page_the_home_page_is_not_believed(site: Site) -> None:
    site.put("/", html("Start", links=["/a"], head='<link rel=canonical href="/">'))
    site.put("/a", html("A", head='<link rel=canonical href="/">'))
    assert set(crawl(site).items) == {"/", "/a"}


def test_a_redirect_leads_to_the_page_and_a_loop_or_another_site_leads_nowhere(site: Site) -> None:
    site.put("/", html("Start", links=["/old", "/loop", "/ping", "/away", "/private"]))
    site.redirect("/old", "/new", 301)
    site.put("/new", html("New"))
    site.redirect("/loop", "/loop")
    site.redirect("/ping", "/pong")
    site.redirect("/pong", "/ping")
    site.redirect("/away", "https://elsewhere.test/")
    site.redirect("/private", "http://169.254.169.254/latest/meta-data/")
    listing = crawl(site)
    assert listing.complete
    assert set(listing.items) == {"/", "/new"}
    assert listing.skips["/loop"] == "redirect-loop"
    assert listing.skips["/away"] == listing.skips["/private"] == "redirect-leaves-site"
    assert site.asked("/ping") == site.asked("/pong") == 1


def test_a_chain_of_redirects_ends_after_five_hops(site: Site) -> None:
    for n in range(9):
        site.redirect(f"/{n}", f"/{n + 1}")
    site.put("/9", html("Far away"))
    site.put("/", html("Start", links=["/0"]))
    listing = crawl(site)
    assert set(listing.items) == {"/"}
    assert listing.skips["/5"] == "redirect-loop"


def test_a_start_page_may_redirect_to_where_the_site_begins(site: Site) -> None:
    site.redirect("/", "/en/")
    site.put("/en/", html("Start", links=["/en/docs/a"]))
    site.put("/en/docs/a", html("A"))
    listing = crawl(site, include=["/en/docs/*"])
    assert set(listing.items) == {"/en/docs/a"}
    assert listing.complete


def test_pages_under_two_spellings_of_a_slash_are_one(site: Site) -> None:
    site.put("/", html("Start", links=["/a", "/a/"]))
    site.put("/a", html("A"))
    site.put("/a/", html("A"))
    listing = crawl(site)
    assert (set(listing.items), listing.skips) == ({"/", "/a"}, {"/a/": "duplicate"})


def test_documents_are_items_and_pictures_are_not(site: Site) -> None:
    site.put(
        "/",
        html("Start", links=["/m.pdf", "/notes.md", "/table.csv", "/data.docx", "/feed", "/x.png", "/pic", "/plain"]),
    )
    site.put("/m.pdf", b"%PDF-1.7 ...", "application/pdf")
    site.put("/notes.md", "# Notes", "application/octet-stream")
    site.put("/table.csv", "a,b", "text/csv")
    site.put("/data.docx", b"PK..", "application/vnd.openxmlformats-officedocument.wordprocessingml.document")
    site.put("/plain", "Plain text", "text/plain; charset=utf-8", headers={"x-robots-tag": "noindex"})
    site.put("/feed", "<rss/>", "application/rss+xml")
    site.put("/pic", b"\x89PNG", "image/png")
    listing = crawl(site)
    assert set(listing.items) == {"/", "/m.pdf", "/notes.md", "/table.csv", "/data.docx"}
    content = listing.fetched["/m.pdf"]
    assert isinstance(content, Content)
    assert (content.filename, content.media_type, content.data) == ("m.pdf", "application/pdf", b"%PDF-1.7 ...")
    assert listing.skips == {"/feed": "unsupported-type", "/pic": "unsupported-type", "/plain": "noindex"}
    assert site.asked("/x.png") == 0


def test_noindex_nofollow_and_empty_pages_are_left_out_with_their_reason(site: Site) -> None:
    site.put("/", html("Start", links=["/noindex", "/nofollow", "/spa", "/empty"]))
    site.put("/noindex", html("N", links=["/behind"], head='<meta name=robots content="noindex,nofollow">'))
    site.put("/nofollow", html("F", links=["/hidden"], head='<meta name=robots content="nofollow">'))
    site.put("/spa", spa())
    site.put("/empty", "<html><body></body></html>")
    listing = crawl(site)
    assert set(listing.items) == {"/", "/nofollow"}
    assert listing.skips == {"/noindex": "noindex", "/spa": "needs-js", "/empty": "empty"}
    assert site.asked("/behind") == site.asked("/hidden") == 0


def test_robots_rules_are_obeyed_unless_the_source_says_otherwise(site: Site) -> None:
    site.put("/robots.txt", "User-agent: hopnode-bot\nDisallow: /private/\n", "text/plain")
    site.put("/", html("Start", links=["/private/x", "/a"]))
    site.put("/private/x", html("Private"))
    site.put("/a", html("A"))
    listing = crawl(site)
    assert (set(listing.items), listing.skips) == ({"/", "/a"}, {"/private/x": "robots"})
    assert site.asked("/private/x") == 0
    assert set(crawl(site, respect_robots=False).items) == {"/", "/a", "/private/x"}


def test_globs_choose_what_is_stored_and_the_start_page_is_still_followed(site: Site) -> None:
    docs_site(site, 5)
    site.put("/blog/1", html("Blog"))
    listing = crawl(site, include=["/docs/*"], exclude=["/docs/4"])
    assert set(listing.items) == {f"/docs/{n}" for n in range(4)}
    assert listing.skips == {"/": "not-included"}
    assert site.asked("/docs/4") == 0


def test_another_host_is_crawled_only_when_it_is_allowed(site: Site) -> None:
    with serve_site() as other:
        other.put("/x", html("Other"))
        site.put("/", html("Start", links=[f"{other.url}/x"]))
        assert set(crawl(site).items) == {"/"}
        assert other.requests == []
        config = WebsiteConfig(start_urls=[site.url], allowed_hosts=[other.host], crawl_delay=0)
        with WebsiteConnector(config, EgressPolicy([site.host])) as crawler:
            refs = [one for one in crawler.list({}, None) if isinstance(one, ItemRef)]
            blocked = crawler.fetch(refs[1], None)
        assert isinstance(blocked, Failure)
        assert blocked.reason == "robots-unavailable" or "HOPNODE_EGRESS_ALLOW_HOSTS" in blocked.message


def test_pages_that_only_a_sitemap_names_are_found_through_index_and_gzip(site: Site) -> None:
    docs_site(site, 0)
    site.put("/robots.txt", "Sitemap: BASE/index.xml\n", "text/plain")
    site.put("/index.xml", "<sitemapindex><sitemap><loc>BASE/map.xml.gz</loc></sitemap></sitemapindex>", "text/xml")
    site.put(
        "/map.xml.gz",
        gzip.compress(urlset([f"{site.url}/island", "https://elsewhere.test/x"]).encode()),
        "application/gzip",
    )
    site.put("/island", html("Island"))
    assert set(crawl(site).items) == {"/", "/island"}
    assert set(crawl(site, use_sitemaps=False).items) == {"/"}


def test_the_usual_sitemap_is_tried_when_none_is_named(site: Site) -> None:
    docs_site(site, 0)
    site.put("/sitemap.xml", urlset([f"{site.url}/island"]), "application/xml")
    site.put("/island", html("Island"))
    assert set(crawl(site).items) == {"/", "/island"}


# --- traps and limits ------------------------------------------------------------------------------------------------------


def test_an_endless_calendar_gets_its_share_and_no_more(site: Site) -> None:
    def month(n: int) -> str:
        return html(f"Month {n}", links=[f"/calendar?month={n + step}" for step in (1, 2, 3)])

    site.put("/", html("Start", links=["/calendar?month=0", "/a"]))
    site.put("/a", html("A"))
    for n in range(400):
        site.put(f"/calendar?month={n}", month(n))
    listing = crawl(site, max_depth=100, max_similar_urls=20)
    assert sum(path.startswith("/calendar") for path in listing.items) == 20
    assert "trap" in listing.skips.values()
    assert listing.complete
    again = crawl(site, listing.state, max_depth=100, max_similar_urls=20)
    assert set(again.items) == set(listing.items), "what was let in once stays in"


def test_depth_is_counted_in_links_from_the_start(site: Site) -> None:
    site.put("/", html("0", links=["/1"]))
    for n in range(1, 6):
        site.put(f"/{n}", html(str(n), links=[f"/{n + 1}"]))
    assert set(crawl(site, max_depth=3).items) == {"/", "/1", "/2", "/3"}
    assert set(crawl(site, max_depth=0).items) == {"/"}


def test_a_page_budget_ends_the_crawl_and_says_so(site: Site) -> None:
    docs_site(site, 20)
    listing = crawl(site, max_pages=5)
    assert (len(listing.items), listing.complete, listing.reason) == (5, False, "page-budget")
    assert crawl(site, max_pages=21).complete


def test_a_time_budget_ends_the_crawl_and_says_so(site: Site) -> None:
    docs_site(site, 20)
    listing = crawl(site, max_minutes=0.001, crawl_delay=0.03)
    assert (listing.complete, listing.reason) == (False, "time-budget")


def test_a_large_page_is_skipped(site: Site) -> None:
    site.put("/", html("Start", links=["/big"]))
    site.put("/big", html("Big", "x" * 5000))
    assert crawl(site, max_bytes_per_page=3000).skips == {"/big": "too-large"}


def test_requests_keep_their_distance_and_every_wait_is_announced(site: Site) -> None:
    docs_site(site, 3)
    listing = crawl(site, crawl_delay=0.08, use_sitemaps=False)
    times = [seen.at for seen in site.requests if seen.path != "/robots.txt"]
    assert min(b - a for a, b in pairwise(times)) > 0.075
    assert len(listing.waits) >= 4
    assert max(listing.waits) > 0.05


def test_robots_can_ask_for_a_longer_distance(site: Site) -> None:
    docs_site(site, 2)
    site.put("/robots.txt", "User-agent: *\nCrawl-delay: 0.2\n", "text/plain")
    crawl(site, use_sitemaps=False)
    times = [seen.at for seen in site.requests if seen.path != "/robots.txt"]
    assert min(b - a for a, b in pairwise(times)) > 0.19


# --- failures --------------------------------------------------------------------------------------------------------------


def test_a_robots_file_that_fails_stops_the_crawl_without_completing_it(site: Site) -> None:
    docs_site(site, 3)
    site.fail("/robots.txt", 503)
    listing = crawl(site, start_urls=[f"{site.url}/", f"{site.url}/docs/1", f"{site.url}/docs/2"])
    assert (listing.items, listing.complete, listing.reason) == ({}, False, "robots-unavailable")
    assert site.paths() == ["/robots.txt"], "it is asked for once"


def test_a_start_url_on_a_private_network_is_refused_with_the_setting_to_change(site: Site) -> None:
    with WebsiteConnector(WebsiteConfig(start_urls=[site.url]), EgressPolicy()) as crawler:
        with pytest.raises(EgressBlocked, match="HOPNODE_EGRESS_ALLOW_HOSTS"):
            list(crawler.list({}, None))
        result = crawler.check()
    assert not result.ok
    assert "HOPNODE_EGRESS_ALLOW_HOSTS" in result.message


@pytest.mark.parametrize("status", [404, 410])
def test_a_page_that_is_not_there_is_gone(site: Site, status: int) -> None:
    site.put("/", html("Start", links=["/a"]))
    site.fail("/a", status)
    assert crawl(site).fetched["/a"] == Gone("not-found")


def test_a_page_that_fails_is_a_failure_that_can_be_tried_again(site: Site) -> None:
    site.put("/", html("Start", links=["/a"]))
    site.fail("/a", 500)
    failure = crawl(site).fetched["/a"]
    assert isinstance(failure, Failure)
    assert (failure.reason, failure.retryable) == ("http-500", True)


def test_a_start_page_that_fails_makes_the_listing_incomplete(site: Site) -> None:
    site.fail("/", 500)
    assert crawl(site).reason == "start-unreachable"
    site.fail("/", 404)
    assert crawl(site).reason == "start-not-found"
    site.put("/", spa())
    assert crawl(site).reason == "start-needs-js"
    site.redirect("/", "https://elsewhere.test/")
    assert crawl(site).reason == "start-redirect-leaves-site"


@pytest.mark.slow
def test_a_busy_site_is_left_alone_for_as_long_as_it_asks(site: Site) -> None:
    site.put("/", html("Start", links=["/a"]))
    site.fail("/a", 429, retry_after="1")
    listing = crawl(site)
    times = [seen.at for seen in site.requests if seen.path == "/a"]
    assert len(times) == 3
    assert times[1] - times[0] > 0.99
    assert isinstance(listing.fetched["/a"], Failure)
    assert max(listing.waits) > 0.9


def test_a_site_that_breaks_down_is_not_hammered(site: Site) -> None:
    docs_site(site, 40)
    first = crawl(site)
    for n in range(40):
        site.fail(f"/docs/{n}", 500)
    site.requests.clear()
    listing = crawl(site, first.state)
    assert listing.reason == "site-unreachable"
    assert len(site.requests) < 15
    assert len(json_copy(listing.state)["pages"]) == 41, "what was known is not forgotten"  # type: ignore[arg-type]


def test_pages_behind_a_login_are_left_out_and_pages_that_were_open_before_are_kept(site: Site) -> None:
    site.put("/", html("Start", links=["/a", *(f"/members/{n}" for n in range(15))]))
    site.put("/a", html("A"))
    for n in range(15):
        site.fail(f"/members/{n}", 403)
    first = crawl(site)
    assert first.complete
    assert first.skips["/members/3"] == "forbidden"
    site.fail("/a", 401)
    assert isinstance(crawl(site, first.state).fetched["/a"], Failure)


# --- the next crawl --------------------------------------------------------------------------------------------------------


def test_the_next_crawl_asks_conditionally_and_follows_the_stored_links(site: Site) -> None:
    docs_site(site, 10)
    first = crawl(site)
    site.requests.clear()
    second = crawl(site, json_copy(first.state))
    conditional = [seen for seen in site.requests if "if-none-match" in seen.headers]
    assert len(conditional) == 11
    assert {path: ref.version for path, ref in second.items.items()} == {p: r.version for p, r in first.items.items()}
    assert second.complete


def test_last_modified_serves_where_there_is_no_etag(site: Site) -> None:
    site.put("/", html("Start"), etag=False, modified="Wed, 21 Oct 2026 07:28:00 GMT")
    first = crawl(site)
    second = crawl(site, json_copy(first.state))
    assert [seen.headers["if-modified-since"] for seen in site.requests if "if-modified-since" in seen.headers] == [
        "Wed, 21 Oct 2026 07:28:00 GMT"
    ]
    assert second.items["/"].version == first.items["/"].version


def test_changes_are_found_and_changes_of_the_markup_alone_are_not(site: Site) -> None:
    docs_site(site, 4)
    first = crawl(site)
    site.put("/docs/1", html("Document 1", "Something else entirely is written here now."))
    site.put("/docs/2", html("Document 2", head='<meta name="generated" content="today">', links=["/docs/3"]))
    second = crawl(site, json_copy(first.state))
    changed = {path for path, ref in second.items.items() if ref.version != first.items[path].version}
    assert changed == {"/docs/1"}


def test_an_unchanged_page_can_still_be_fetched_in_full(site: Site) -> None:
    site.put("/", html("Start"))
    first = crawl(site)
    with connector(site) as crawler:
        ref = next(one for one in crawler.list(json_copy(first.state), None) if isinstance(one, ItemRef))
        assert crawler.fetch(ref, ref.version) == Unchanged()
        content = crawler.fetch(ref, None)
    assert isinstance(content, Content)
    assert content.version == ref.version
    assert content.title == "Start"


def test_a_page_taken_back_by_its_owner_is_gone_at_once(site: Site) -> None:
    site.put("/", html("Start", links=["/hidden", "/moved", "/same", "/temporary"]))
    for name in ("hidden", "moved", "same", "temporary", "new"):
        site.put(f"/{name}", html(name))
    first = crawl(site)
    site.put("/hidden", html("hidden", head='<meta name=robots content="noindex">'))
    site.redirect("/moved", "/new", 301)
    site.put("/same", html("same", head='<link rel=canonical href="/new">'))
    site.redirect("/temporary", "/new", 302)
    second = crawl(site, json_copy(first.state))
    assert second.fetched["/hidden"] == Gone("noindex")
    assert second.fetched["/moved"] == second.fetched["/same"] == Gone("moved")
    assert second.skips["/temporary"] == "redirect"
    assert "/new" in second.items


def test_pages_behind_a_page_that_fails_are_still_listed(site: Site) -> None:
    site.put("/", html("Start", links=["/hub"]))
    site.put("/hub", html("Hub", links=["/a", "/b"]))
    site.put("/a", html("A"))
    site.put("/b", html("B"))
    first = crawl(site)
    site.fail("/hub", 502)
    second = crawl(site, json_copy(first.state))
    assert second.complete
    assert set(second.items) == {"/", "/hub", "/a", "/b"}
    assert isinstance(second.fetched["/hub"], Failure)
    third = crawl(site, json_copy(second.state))
    assert set(third.items) == {"/", "/hub", "/a", "/b"}


def test_a_sitemap_that_was_there_and_fails_makes_the_listing_incomplete(site: Site) -> None:
    docs_site(site, 0)
    site.put("/sitemap.xml", urlset([f"{site.url}/island"]), "text/xml")
    site.put("/island", html("Island"))
    first = crawl(site)
    assert first.complete
    site.fail("/sitemap.xml", 500)
    assert crawl(site, json_copy(first.state)).reason == "sitemap-unavailable"
    assert crawl(site).complete, "a sitemap that was never there is not missed"


def test_the_memory_of_pages_that_a_budget_left_unvisited_is_kept(site: Site) -> None:
    docs_site(site, 10)
    first = crawl(site)
    partial = crawl(site, json_copy(first.state), max_pages=3)
    assert partial.reason == "page-budget"
    site.requests.clear()
    crawl(site, json_copy(partial.state))
    assert sum("if-none-match" in seen.headers for seen in site.requests) == 11


@pytest.mark.slow
def test_a_state_of_another_form_is_ignored(site: Site) -> None:
    docs_site(site, 2)
    broken = {"format": 1, "scope": "", "urls": [], "pages": [[7, None, None, None, None, []]], "sitemaps": []}
    for state in ({"format": 2}, broken):
        assert len(crawl(site, state).items) == 3
        assert len(crawl(site, {}, state).items) == 3


def test_the_memory_of_another_scope_is_not_used_since_its_links_are_too_few(site: Site) -> None:
    docs_site(site, 4)
    site.put("/docs/0", html("Document 0", links=["/blog/1"]))
    site.put("/blog/1", html("Blog"))
    narrow = crawl(site, include=["/docs/*"])
    wide = crawl(site, json_copy(narrow.state))
    assert "/blog/1" in wide.items


# --- going on after a crash ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_crawl_goes_on_from_a_token_without_listing_pages_again(site: Site) -> None:
    docs_site(site, 150)
    whole = crawl(site)
    assert len(whole.tokens) >= 2
    site.requests.clear()
    broken = crawl(site, stop_after=120)
    rest = crawl(site, resume=json_copy(broken.tokens[-1]))
    assert rest.complete
    assert set(broken.items) | set(rest.items) == set(whole.items)
    assert len(set(broken.items) & set(rest.items)) <= 30, "only what came after the token is repeated"
    assert json_copy(rest.state).keys() == json_copy(whole.state).keys()
    site.requests.clear()
    crawl(site, json_copy(rest.state))
    assert sum("if-none-match" in seen.headers for seen in site.requests) == 151


# --- the other verbs -------------------------------------------------------------------------------------------------------


def test_a_check_says_what_is_wrong_in_words(site: Site) -> None:
    def checked() -> tuple[bool, str]:
        with connector(site) as crawler:
            result = crawler.check()
        return result.ok, result.message

    site.put("/", html("Start"))
    assert checked()[0]
    site.fail("/", 404)
    assert checked() == (False, f"{site.url}/ answers 404.")
    site.redirect("/", "https://elsewhere.test/x")
    assert "https://elsewhere.test/x on another host" in checked()[1]
    site.put("/", b"\x89PNG", "image/png")
    assert "image/png" in checked()[1]
    site.put("/robots.txt", "User-agent: *\nDisallow: /\n", "text/plain")
    assert "does not let hopnode-bot" in checked()[1]
    site.fail("/robots.txt", 500)
    assert "500" in checked()[1]


def test_the_crawler_introduces_itself_with_a_contact(site: Site) -> None:
    docs_site(site, 0)
    crawl(site, contact="https://example.test/bot")
    assert {seen.headers["user-agent"] for seen in site.requests} == {"hopnode-bot/1 (+https://example.test/bot)"}


def test_a_page_that_vanishes_between_listing_and_fetching_is_gone(site: Site) -> None:
    site.put("/", html("Start", article("Start") * 50))
    first = crawl(site)
    with connector(site) as crawler:
        ref = next(one for one in crawler.list(json_copy(first.state), None) if isinstance(one, ItemRef))
        site.remove("/")
        assert crawler.fetch(ref, None) == Gone("not-found")
        site.fail("/", 500)
        assert isinstance(crawler.fetch(ref, None), Failure)


def test_abandoning_a_listing_is_quick(site: Site) -> None:
    docs_site(site, 5)
    started = time.monotonic()
    crawl(site, stop_after=1, crawl_delay=30, use_sitemaps=False)
    assert time.monotonic() - started < 3
