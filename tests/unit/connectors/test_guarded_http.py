import gzip
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpcore
import httpx
import pytest
from support.servers.certificates import Authority
from support.servers.website import Site, bomb, drip, serve_site

from hopnode.connectors.errors import (
    BodyTooLarge,
    EgressBlocked,
    FetchTimeout,
    InvalidAddress,
    SourceUnreachable,
    TooManyRedirects,
)
from hopnode.connectors.http import HTTPCORE_TO_HTTPX, EgressPolicy, get, open_client, resolve


def port_of(site: Site) -> int:
    return int(site.host.rpartition(":")[2])


@pytest.fixture
def client(site: Site) -> Iterator[httpx.Client]:
    with open_client(EgressPolicy([site.host]), user_agent="test-bot/1") as opened:
        yield opened


HOSTILE_URLS = [
    "http://127.0.0.1/", "http://127.1/", "http://2130706433/", "http://0x7f000001/", "http://0x7f.0.0.1/", "http://0/",
    "http://localhost/", "http://LOCALHOST/", "http://[::1]/", "http://[::]/", "http://0.0.0.0/",
    "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[64:ff9b::7f00:1]/", "http://[2002:7f00:1::]/",
    "http://[::127.0.0.1]/", "http://10.0.0.1/", "http://192.168.0.1/", "http://100.64.1.1/", "http://169.254.169.254/latest/",
    "http://[fd00:ec2::254]/", "http://[fe80::1]/", "https://127.0.0.1/", "http://198.18.0.1/", "http://224.0.0.1/",
]  # fmt: skip


@pytest.mark.parametrize("url", HOSTILE_URLS)
def test_a_hostile_url_is_refused_before_anything_is_sent(url: str) -> None:
    with open_client(EgressPolicy(), user_agent="test-bot/1") as client, pytest.raises(EgressBlocked):
        get(client, url, max_bytes=1000)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.test/",
        "file:///etc/passwd",
        "gopher://example.test/",
        "http://user:pw@example.test/",
        "//x",
        "http:///",
    ],
)
def test_only_plain_http_urls_are_fetched(url: str) -> None:
    with open_client(EgressPolicy(), user_agent="test-bot/1") as client, pytest.raises(InvalidAddress):
        get(client, url, max_bytes=1000)


def test_an_allowed_site_answers_and_sees_its_own_host_name_and_our_user_agent(
    site: Site, client: httpx.Client
) -> None:
    site.put("/", "<p>hello</p>")
    reply = get(client, f"{site.url}/", max_bytes=1000)
    assert (reply.status, reply.body, reply.media_type) == (200, b"<p>hello</p>", "text/html")
    assert site.requests[0].headers["host"] == site.host
    assert site.requests[0].headers["user-agent"] == "test-bot/1"


def test_a_name_is_resolved_once_and_the_checked_address_is_dialled(site: Site) -> None:
    answers = [["127.0.0.1"], ["169.254.169.254"]]

    def rebinding(host: str, port: int) -> list[str]:
        return answers.pop(0)

    name = f"rebind.test:{port_of(site)}"
    site.put("/", "checked")
    with open_client(EgressPolicy([name]), user_agent="t", resolver=rebinding) as client:
        assert get(client, f"http://{name}/", max_bytes=100).body == b"checked"
        assert get(client, f"http://{name}/", max_bytes=100).body == b"checked", "the kept connection is used again"
    assert len(answers) == 1
    assert site.requests[0].headers["host"] == name
    with (
        open_client(EgressPolicy([name]), user_agent="t", resolver=rebinding) as client,
        pytest.raises(EgressBlocked, match="never"),
    ):
        get(client, f"http://{name}/", max_bytes=100)


def test_a_name_with_a_public_and_a_private_address_is_refused_as_a_whole(site: Site) -> None:
    with (
        open_client(EgressPolicy(), user_agent="t", resolver=lambda host, port: ["8.8.8.8", "127.0.0.1"]) as client,
        pytest.raises(EgressBlocked),
    ):
        get(client, f"http://mixed.test:{port_of(site)}/", max_bytes=100)
    assert site.requests == []


def test_when_the_first_address_does_not_answer_the_next_checked_one_is_dialled(site: Site) -> None:
    site.put("/", "second")
    name = f"two.test:{port_of(site)}"
    with open_client(
        EgressPolicy([name]), user_agent="t", resolver=lambda host, port: ["127.0.0.99", "127.0.0.1"]
    ) as client:
        assert get(client, f"http://{name}/", max_bytes=100).body == b"second"


def test_a_proxy_of_the_environment_is_not_used(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    site.put("/", "direct")
    with open_client(EgressPolicy([site.host]), user_agent="t") as client:
        assert get(client, f"{site.url}/", max_bytes=100).body == b"direct"


def test_redirects_are_followed_by_hand_and_every_hop_is_checked(site: Site, client: httpx.Client) -> None:
    site.redirect("/a", "/b")
    site.redirect("/b", f"{site.url}/c", 301)
    site.put("/c", "arrived")
    reply = get(client, f"{site.url}/a", max_bytes=100)
    assert (reply.url, reply.body) == (f"{site.url}/c", b"arrived")
    site.redirect("/c", "http://192.168.7.7/admin")
    with pytest.raises(EgressBlocked, match=r"192\.168\.7\.7:80"):
        get(client, f"{site.url}/a", max_bytes=100)
    site.redirect("/c", "file:///etc/passwd")
    with pytest.raises(InvalidAddress):
        get(client, f"{site.url}/a", max_bytes=100)


def test_five_redirects_pass_and_the_sixth_is_too_many(site: Site, client: httpx.Client) -> None:
    for n in range(6):
        site.redirect(f"/{n}", f"/{n + 1}")
    site.put("/6", "end")
    assert get(client, f"{site.url}/1", max_bytes=100).body == b"end"
    with pytest.raises(TooManyRedirects):
        get(client, f"{site.url}/0", max_bytes=100)


def test_a_redirect_is_handed_over_when_none_may_be_followed(site: Site, client: httpx.Client) -> None:
    site.redirect("/a", "/b", 308)
    reply = get(client, f"{site.url}/a", max_bytes=100, redirects=0)
    assert (reply.status, reply.redirect) == (308, f"{site.url}/b")


def test_cookies_are_not_kept(site: Site, client: httpx.Client) -> None:
    site.put("/", "x", headers={"set-cookie": "visitor=1"})
    get(client, f"{site.url}/", max_bytes=100)
    get(client, f"{site.url}/", max_bytes=100)
    assert "cookie" not in site.requests[1].headers


def test_a_gzip_bomb_is_cut_at_the_decoded_cap(site: Site, client: httpx.Client) -> None:
    site.behave("/bomb", lambda handler: bomb(handler, 20))
    with pytest.raises(BodyTooLarge):
        get(client, f"{site.url}/bomb", max_bytes=1_000_000)


def test_a_packed_page_is_unpacked(site: Site, client: httpx.Client) -> None:
    site.put("/", gzip.compress(b"<p>packed</p>"), headers={"content-encoding": "gzip"})
    assert get(client, f"{site.url}/", max_bytes=1000).body == b"<p>packed</p>"


def test_a_body_that_is_not_wanted_is_not_read(site: Site, client: httpx.Client) -> None:
    site.behave("/big", drip(30))
    started = time.monotonic()
    reply = get(client, f"{site.url}/big", max_bytes=1000, wanted=lambda head: head.media_type != "text/html")
    assert reply.body == b""
    assert time.monotonic() - started < 2


@pytest.mark.parametrize("before_headers", [False, True])
def test_a_slow_drip_is_cut_at_the_total_limit(site: Site, client: httpx.Client, before_headers: bool) -> None:
    site.behave("/drip", drip(20, before_headers))
    started = time.monotonic()
    with pytest.raises(FetchTimeout):
        get(client, f"{site.url}/drip", max_bytes=1_000_000, seconds=0.4)
    assert 0.35 < time.monotonic() - started < 2


def test_a_resolver_that_hangs_is_cut_at_the_total_limit() -> None:
    release = threading.Event()

    def hanging(host: str, port: int) -> list[str]:
        release.wait(20)
        return ["8.8.8.8"]

    with open_client(EgressPolicy(), user_agent="t", resolver=hanging) as client, pytest.raises(FetchTimeout):
        get(client, "http://slow.test/", max_bytes=100, seconds=0.3)
    release.set()


def test_a_name_that_does_not_exist_and_a_closed_port_are_unreachable() -> None:
    def nowhere(host: str, port: int) -> list[str]:
        raise socket.gaierror("no such name")

    with open_client(EgressPolicy(), user_agent="t", resolver=nowhere) as client, pytest.raises(SourceUnreachable):
        get(client, "http://nowhere.test/", max_bytes=100)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        closed = f"127.0.0.1:{bound.getsockname()[1]}"
        with open_client(EgressPolicy([closed]), user_agent="t") as client, pytest.raises(SourceUnreachable):
            get(client, f"http://{closed}/", max_bytes=100)


def test_a_broken_answer_is_unreachable_and_not_a_crash(site: Site, client: httpx.Client) -> None:
    site.behave("/", lambda handler: handler.wfile.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n") and None)
    with pytest.raises(SourceUnreachable):
        get(client, f"{site.url}/", max_bytes=100)


def test_certificates_are_checked_by_host_name_although_an_address_is_dialled(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    with serve_site(authority.server_context("good.test"), "good.test") as site:
        site.put("/", "secure")
        names = [f"good.test:{port_of(site)}", f"bad.test:{port_of(site)}"]
        with open_client(
            EgressPolicy(names),
            user_agent="t",
            resolver=lambda host, port: ["127.0.0.1"],
            verify=authority.client_context(),
        ) as client:
            assert get(client, f"https://{names[0]}/", max_bytes=100).body == b"secure"
            with pytest.raises(SourceUnreachable, match="certificate"):
                get(client, f"https://{names[1]}/", max_bytes=100)
        with (
            open_client(EgressPolicy(names), user_agent="t", resolver=lambda host, port: ["127.0.0.1"]) as client,
            pytest.raises(SourceUnreachable, match="certificate"),
        ):
            get(client, f"https://{names[0]}/", max_bytes=100)


def test_every_error_that_httpcore_can_raise_has_a_translation() -> None:
    raised = {
        error
        for name in dir(httpcore)
        if isinstance(error := getattr(httpcore, name), type) and issubclass(error, Exception)
    }
    # ConnectionNotAvailable stays inside the pool, which tries again with another connection.
    assert raised - {httpcore.ConnectionNotAvailable} == set(HTTPCORE_TO_HTTPX)
    seen: list[type[Exception]] = []
    for error, translated in HTTPCORE_TO_HTTPX.items():
        assert error.__name__ == translated.__name__
        assert not any(issubclass(error, earlier) for earlier in seen), f"{error.__name__} comes too late in the table"
        seen.append(error)


def test_the_default_resolver_gives_addresses_without_repeats() -> None:
    assert resolve("127.0.0.1", 80) == ["127.0.0.1"]
