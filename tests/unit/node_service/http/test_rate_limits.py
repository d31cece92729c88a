"""How often a key and a workspace may ask: buckets that fill evenly, and what a caller is told."""

from pathlib import Path

import pytest
from support.node.http_node import serve_node

from hopnode.node_service.http.rate_limits import TokenBuckets
from hopnode.worker.errors import TooManyRequests


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_gives_its_minute_at_once_and_then_as_it_fills() -> None:
    clock = Clock()
    buckets = TokenBuckets("key", 60, clock=clock)
    assert [buckets.take("a").remaining for _ in range(60)] == list(range(59, -1, -1))
    with pytest.raises(TooManyRequests) as refused:
        buckets.take("a")
    assert refused.value.details["retry_after"] == 1
    assert buckets.take("b").remaining == 59
    clock.now += 2.5
    assert [buckets.take("a").remaining for _ in range(2)] == [1, 0]
    clock.now += 3600
    allowed = buckets.take("a")
    assert (allowed.remaining, allowed.reset_seconds) == (59, 1)


def test_the_buckets_of_many_callers_take_bounded_room() -> None:
    buckets = TokenBuckets("key", 1, most=100, clock=Clock())
    for number in range(1000):
        buckets.take(str(number))
    assert buckets.take("0").remaining == 0, "the oldest were forgotten"
    with pytest.raises(TooManyRequests):
        buckets.take("999")


def test_a_caller_is_told_its_limits_and_when_to_come_back(tmp_path: Path) -> None:
    limits = {"key_requests_per_minute": 4, "workspace_requests_per_minute": 6}
    with serve_node(tmp_path, service=limits) as node:
        tenant = node.tenant()
        first = tenant.http.get("/v1/whoami")
        assert first.headers["ratelimit-policy"] == '"key";q=4;w=60, "workspace";q=6;w=60'
        assert first.headers["ratelimit"] == '"key";r=3;t=15, "workspace";r=5;t=10'
        assert tenant.http.get("/v1/searches/none").headers["ratelimit"].startswith('"key";r=2')
        assert [tenant.http.get("/v1/whoami").status_code for _ in range(3)] == [200, 200, 429]
        refused = tenant.http.get("/v1/whoami")
        assert refused.json()["code"] == "too-many-requests"
        assert 1 <= int(refused.headers["retry-after"]) <= 15
        other = node.with_scopes(tenant, "search:read")
        assert [other.get("/v1/whoami").status_code for _ in range(3)] == [200, 200, 429], "the workspace is full"
        assert node.tenant().http.get("/v1/whoami").status_code == 200
        assert tenant.http.get("/healthz").status_code == 200


def test_a_node_without_limits_speaks_of_none(tmp_path: Path) -> None:
    with serve_node(tmp_path) as node:
        answer = node.tenant().http.get("/v1/whoami")
        assert not [name for name in answer.headers if name.startswith("ratelimit")]
