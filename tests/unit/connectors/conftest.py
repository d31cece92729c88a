from collections.abc import Iterator

import pytest
from support.website import Site, serve_site


@pytest.fixture
def site() -> Iterator[Site]:
    with serve_site() as running:
        yield running
