"""Server mode: kicks reach Redis from a thread of their own, and no fault of Redis ever reaches the caller."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from support.node.queue import wait_until, worker_settings
from support.servers.redis_server import RedisServer

from hopnode.worker.errors import BrokerUnavailable
from hopnode.worker.queue.dispatch import MOST_PENDING_KICKS, CeleryDispatcher, ping_broker

pytestmark = pytest.mark.slow


def _waiting(server: RedisServer, role: str) -> int:
    client = server.client()
    try:
        return int(client.llen(f"hopnode:{role}"))  # type: ignore[arg-type]
    finally:
        client.close()


def _slowest(call: Callable[[], None], times: int) -> float:
    """The longest of many calls, in seconds."""
    worst = 0.0
    for _ in range(times):
        start = time.perf_counter()
        call()
        worst = max(worst, time.perf_counter() - start)
    return worst


def test_a_kick_is_a_message_without_a_job_in_the_queue_of_its_role(redis_server: RedisServer, tmp_path: Path) -> None:
    dispatcher = CeleryDispatcher(worker_settings(tmp_path, redis_url=redis_server.url))
    dispatcher.start()
    dispatcher.kick("agent")
    took = wait_until(lambda: _waiting(redis_server, "agent") == 1, 5, "the kick arrived")
    dispatcher.kick("sync")
    warm = wait_until(lambda: _waiting(redis_server, "sync") == 1, 5, "the kick arrived")
    print(f"\nkick to Redis: first {took * 1e3:.0f} ms, then {warm * 1e3:.0f} ms")
    client = redis_server.client()
    body = client.lrange("hopnode:agent", 0, -1)
    client.close()
    assert b"hopnode.run_next" in body[0]  # type: ignore[index]
    dispatcher.stop(2)


def test_topping_up_publishes_only_what_is_missing(redis_server: RedisServer, tmp_path: Path) -> None:
    dispatcher = CeleryDispatcher(worker_settings(tmp_path, redis_url=redis_server.url))
    dispatcher.start()
    dispatcher.top_up("agent", 3)
    wait_until(lambda: _waiting(redis_server, "agent") == 3, 5, "three kicks arrived")
    dispatcher.top_up("agent", 2)
    dispatcher.top_up("agent", 5)
    dispatcher.kick("sync")  # published after the others
    wait_until(lambda: _waiting(redis_server, "sync") == 1, 5, "the last kick arrived")
    assert _waiting(redis_server, "agent") == 5
    dispatcher.stop(2)


def test_a_frozen_redis_slows_no_kick_and_gets_them_all_when_it_goes_on(
    redis_server: RedisServer, tmp_path: Path
) -> None:
    dispatcher = CeleryDispatcher(worker_settings(tmp_path, redis_url=redis_server.url))
    dispatcher.start()
    dispatcher.kick("agent")
    wait_until(lambda: _waiting(redis_server, "agent") == 1, 5, "the connection is warm")
    redis_server.freeze()
    until = time.monotonic() + 2
    worst, kicks = 0.0, 0
    while time.monotonic() < until:
        worst = max(worst, _slowest(lambda: dispatcher.kick("agent"), 10))
        kicks += 10
        time.sleep(0.005)  # leaves the publishing thread its share of the interpreter
    redis_server.thaw()
    print(f"\n{kicks} kicks while Redis was frozen: slowest {worst * 1e3:.2f} ms")
    assert worst < 0.05
    wait_until(lambda: _waiting(redis_server, "agent") >= MOST_PENDING_KICKS, 30, "pending kicks arrived")
    assert _waiting(redis_server, "agent") <= MOST_PENDING_KICKS + 2
    dispatcher.stop(2)


def test_kicks_survive_a_redis_that_is_killed_and_comes_back_empty(redis_server: RedisServer, tmp_path: Path) -> None:
    dispatcher = CeleryDispatcher(worker_settings(tmp_path, redis_url=redis_server.url))
    dispatcher.start()
    dispatcher.kick("agent")
    wait_until(lambda: _waiting(redis_server, "agent") == 1, 5, "the connection is warm")
    redis_server.kill()
    with capture_logs() as lines:
        assert _slowest(lambda: dispatcher.kick("sync"), 3) < 0.05
        wait_until(lambda: lines, 20, "the failure was noticed")
    assert {line["event"] for line in lines} == {"kicks_not_sent"}
    redis_server.start()
    wait_until(lambda: _waiting(redis_server, "sync") == 3, 30, "the kicks arrived after all")
    dispatcher.stop(2)


def test_stopping_does_not_wait_for_a_frozen_redis(redis_server: RedisServer, tmp_path: Path) -> None:
    settings = worker_settings(tmp_path, redis_url=redis_server.url)
    dispatcher = CeleryDispatcher(settings)
    dispatcher.start()
    redis_server.freeze()
    dispatcher.kick("agent")
    start = time.monotonic()
    dispatcher.stop(0.5)
    assert time.monotonic() - start < 1
    with pytest.raises(BrokerUnavailable):
        ping_broker(settings, 0.3)
    assert time.monotonic() - start < 2
    redis_server.thaw()
    ping_broker(settings, 5)
