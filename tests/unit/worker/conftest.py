"""Real Redis for the tests of the queue's broker side."""

from collections.abc import Generator
from pathlib import Path

import pytest
from support.servers.redis_server import RedisServer


@pytest.fixture
def redis_server(tmp_path: Path) -> Generator[RedisServer]:
    """A server of this test's own, running."""
    server = RedisServer(tmp_path)
    server.start()
    yield server
    server.stop()
