from collections.abc import Iterator

import pytest
from support.servers.website import Site, serve_site


@pytest.fixture
def site() -> Iterator[Site]:
    with serve_site() as running:
        yield running
