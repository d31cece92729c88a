"""A real node in a process of its own, with a model that thinks for as long as a test wants, and a wire that can break."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from on_loop import OnLoop
from running_node import RunningNode, Site, ThinkingModel
from unreliable_wire import UnreliableWire

from hopnode_client import AsyncHopnode, Hopnode

ROOT = Path(__file__).parents[3]
FACTS = {
    "harbour.md": "The harbour of Lindholm lies north of the old town.",
    "tower.md": "The company Brightstone built the tower of Lindholm.",
    "company.md": "Brightstone was founded by Mira Lindqvist, who came from the coast.",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--hopnode", default=str(ROOT / ".venv/bin/hopnode"), help="the command of the node to test with")


@pytest.fixture(scope="session")
def model() -> Iterator[ThinkingModel]:
    """A chat endpoint that takes every question and answers none."""
    with ThinkingModel() as thinking:
        yield thinking


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """A website that the node may crawl."""
    with Site() as opened:
        yield opened


@pytest.fixture(scope="session")
def node(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config, model: ThinkingModel, site: Site
) -> Iterator[RunningNode]:
    """The node of all tests: no language model unless a search asks for the profile `generic`, which then thinks for ever."""
    settings = {"chat_url": model.url, "chat_model": "thinker", "profile": "offline", "egress_allow_hosts": site.host}
    with RunningNode(pytestconfig.getoption("hopnode"), ROOT, tmp_path_factory.mktemp("home"), settings) as running:
        with Hopnode(running.url, running.key) as client:
            client.collections.create("facts")
            for key, text in FACTS.items():
                client.documents.put("facts", key, text, metadata={"team": "blue"})
        yield running


@pytest.fixture
def wire(node: RunningNode) -> Iterator[UnreliableWire]:
    """A way to the node that fails as a test says, and notes every request."""
    with UnreliableWire(node.url) as between:
        yield between


@pytest.fixture(params=["threads", "asyncio"])
def client(request: pytest.FixtureRequest, wire: UnreliableWire, node: RunningNode) -> Iterator[Any]:
    """A client on the wire, with the first key of the node; each test runs with both kinds."""
    if request.param == "threads":
        with Hopnode(wire.url, node.key) as opened:
            yield opened
    else:
        with asyncio.Runner() as runner:
            opened = AsyncHopnode(wire.url, node.key)
            yield OnLoop(opened, runner)
            runner.run(opened.aclose())


@pytest.fixture
def name(request: pytest.FixtureRequest, node: RunningNode) -> Iterator[str]:
    """The name of a collection of this test's own, empty and deleted in the end."""
    with Hopnode(node.url, node.key) as opened:
        made = opened.collections.create(f"c{abs(hash(request.node.name)):x}")
        yield made.name
        opened.collections.delete(made.name)
