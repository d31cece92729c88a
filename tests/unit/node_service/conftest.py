"""One served node for all tests of the HTTP face; each test makes workspaces of its own on it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.node.http_node import HttpNode, Tenant


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[HttpNode]":
    """A node whose limits are small enough to reach."""
    from support.node.http_node import serve_node  # late: the command line's tests need none of it

    limits = {"max_document_bytes": 3_000_000}
    with serve_node(tmp_path_factory.mktemp("node"), limits, {"max_wait_seconds": 5}) as served:
        yield served


@pytest.fixture
def tenant(node: "HttpNode") -> "Tenant":
    """A fresh workspace on that node."""
    return node.tenant()
