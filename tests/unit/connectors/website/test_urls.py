import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopnode.connectors.website.urls import Scope, ending, normalize, origin, shape


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("HTTP://WWW.Example.test:80/a/../b/%7euser/ü x?q=1#part", "http://www.example.test/b/~user/%C3%BC%20x?q=1"),
        ("https://münchen.test:443", "https://xn--mnchen-3ya.test/"),
        ("https://example.test.:8443/", "https://example.test:8443/"),
        ("http://[FD00::1]:80/x", "http://[fd00::1]/x"),
        ("http://h.test/%e4%bd?x=%2f", "http://h.test/%E4%BD?x=%2F"),
        ("http://h.test/a?utm_source=x&b=2&UTM_Medium=y&fbclid=1", "http://h.test/a?b=2"),
        ("http://h.test/a?gclid=1", "http://h.test/a"),
        ("http://h.test/a;jsessionid=0A/b?PHPSESSID=1", "http://h.test/a/b"),
        ("http://h.test/a?glance=1&ref=x", "http://h.test/a?glance=1&ref=x"),
        ("http://h.test//double//slash/", "http://h.test//double//slash/"),
        ("  http://h.test/\n a\t ", "http://h.test/%20a"),
    ],
)
def test_a_url_has_one_spelling(link: str, expected: str) -> None:
    assert normalize(link) == expected
    assert normalize(expected) == expected


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("x", "http://h.test/docs/x"),
        ("../x?y#z", "http://h.test/x?y"),
        ("//other.test/x", "http://other.test/x"),
        ("?page=2", "http://h.test/docs/page?page=2"),
        ("#top", "http://h.test/docs/page"),
    ],
)
def test_a_link_is_read_from_its_page(link: str, expected: str) -> None:
    assert normalize(link, "http://h.test/docs/page") == expected


@pytest.mark.parametrize(
    "link",
    [
        "javascript:alert(1)", "mailto:a@b.test", "data:text/html,x", "ftp://h.test/", "http://user:pw@h.test/",
        "http://h\\@evil.test/", "http://[::1", "http://h.test:99999999/", "http://h.test/" + "a" * 3000, "tel:1",
    ],
)  # fmt: skip
def test_what_is_no_plain_http_url_is_none(link: str) -> None:
    assert normalize(link, "http://h.test/") is None


@given(
    st.text(max_size=60), st.sampled_from(["", "http://h.test/", "http://h.test/a?", "//h.test/", "http://h.test/%"])
)
def test_normalizing_never_fails_and_a_second_time_changes_nothing(text: str, start: str) -> None:
    once = normalize(start + text, "http://h.test/base")
    assert once is None or normalize(once) == once


def test_numbers_and_query_values_do_not_change_the_shape() -> None:
    assert shape("http://h.test/cal/2024/05?day=1&view=x") == shape("http://h.test/cal/1999/12?view=y&day=22")
    assert shape("http://h.test/cal/2024/a") != shape("http://h.test/cal/2024/b")
    assert shape("http://h.test/a?b=1") != shape("http://h.test/a?c=1")


def test_endings_and_origins() -> None:
    assert ending("http://h.test/a.b/Manual.PDF?x=y.z") == "pdf"
    assert ending("http://h.test/a.b/c") == ""
    assert origin("https://h.test:8443/a?b") == "https://h.test:8443"


def scope(**lists: list[str]) -> Scope:
    values = {"allowed_hosts": [], "include": [], "exclude": [], **lists}
    return Scope(["http://www.h.test/start"], values["allowed_hosts"], values["include"], values["exclude"])


def test_a_scope_holds_the_hosts_of_its_starts_with_and_without_www() -> None:
    inside = scope(allowed_hosts=["Docs.h.test:8080"])
    assert all(inside.on_site(u) for u in ("http://h.test/", "https://www.h.test/", "http://docs.h.test:8080/x"))
    assert not any(inside.on_site(u) for u in ("http://docs.h.test/", "http://evilh.test/", "http://h.test.evil.test/"))


def test_globs_choose_pages_by_path_and_query_or_by_whole_url() -> None:
    chosen = scope(include=["/docs/*", "*://h.test/blog/*"], exclude=["*print=1*", "/docs/old/*"])
    assert chosen.includes("http://h.test/docs/a/b")
    assert chosen.includes("http://h.test/blog/x")
    assert not chosen.includes("http://www.h.test/blog/x")
    assert not chosen.includes("http://h.test/docs/a?print=1")
    assert not chosen.includes("http://h.test/docs/old/x")
    assert not chosen.includes("http://h.test/docs")
    assert chosen.crawls("http://www.h.test/start")


def test_files_that_cannot_hold_text_are_never_asked_for() -> None:
    assert not scope().crawls("http://h.test/logo.PNG")
    assert not scope().crawls("http://h.test/app.js?v=1")
    assert scope().crawls("http://h.test/manual.pdf")
    assert scope().crawls("http://h.test/node.js/intro")


def test_a_glob_made_to_be_slow_is_not() -> None:
    nasty = scope(include=["/" + "*a" * 200 + "*b"])
    started = time.monotonic()
    assert not nasty.includes("http://h.test/" + "a" * 1900)
    assert time.monotonic() - started < 0.5


@given(st.text("ab*/", min_size=1, max_size=12), st.text("ab/", max_size=12))
def test_globs_match_as_by_the_definition(pattern: str, path: str) -> None:
    def by_definition(glob: str, text: str) -> bool:
        if not glob:
            return not text
        if glob[0] == "*":
            return any(by_definition(glob[1:], text[i:]) for i in range(len(text) + 1))
        return bool(text) and text[0] == glob[0] and by_definition(glob[1:], text[1:])

    assert scope(include=[pattern]).includes(f"http://h.test/{path}") == by_definition(pattern, f"/{path}")
