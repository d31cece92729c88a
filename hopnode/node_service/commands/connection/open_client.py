"""How a client command gets a node to speak to: HOPNODE_URL, the running node of the data folder, or one of its own."""

import time
from collections.abc import Generator
from contextlib import contextmanager

from hopnode.node_service.commands.connection import node_file
from hopnode.node_service.commands.connection.client import NodeClient, is_on_this_machine
from hopnode.node_service.commands.connection.hosting import HostedNode
from hopnode.node_service.commands.terminal import display
from hopnode.node_service.commands.terminal.exits import CommandError, ExitCode
from hopnode.node_service.commands.terminal.invocation import Invocation, load
from hopnode.node_service.settings import ServiceSettings
from hopnode.worker.errors import DataFolderInUse
from hopnode.worker.settings import WorkerSettings

PATIENCE_SECONDS = 15.0
RETRY_SECONDS = 0.2


@contextmanager
def open_client(invocation: Invocation) -> Generator[NodeClient]:
    """A client of the right node with the right key; a node started for this command ends with it.

    Raises CommandError when none can be reached, DataFolderInUse when the folder's owner does not answer.
    """
    settings, service = invocation.settings, invocation.service
    if service.url:
        with NodeClient(service.url, key_for(service.url, settings, service)) as client:
            yield client
        return
    invocation.quiet_logs()
    with client_of_folder(settings, service.api_key) as client:
        yield client


@contextmanager
def client_of_folder(settings: WorkerSettings, api_key: str | None = None) -> Generator[NodeClient]:
    """A client of the node of a data folder, running or started for it; the folder's own key unless one is given."""
    url, own = _reach(settings)
    try:
        with NodeClient(url, api_key or stored_key(settings)) as client:
            yield client
    finally:
        if own:
            own.stop()


def key_for(url: str, settings: WorkerSettings, service: ServiceSettings) -> str | None:
    """HOPNODE_API_KEY, or the data folder's key; that one is shown to no other machine (CommandError)."""
    if service.api_key or is_on_this_machine(url):
        return service.api_key or stored_key(settings)
    raise CommandError(
        f"HOPNODE_URL names another machine ({url}), and HOPNODE_API_KEY is not set.",
        "Set HOPNODE_API_KEY to a key of that node; the key of this machine's data folder is not sent elsewhere.",
        ExitCode.REFUSED,
    )


def stored_key(settings: WorkerSettings) -> str | None:
    """The key in the data folder, None where there is none."""
    try:
        return settings.key_file.read_text().strip() or None
    except OSError:
        return None


def host_quietly(settings: WorkerSettings) -> HostedNode:
    """A node for one command: loopback only, on a free port."""
    return HostedNode.start(settings, load(ServiceSettings, host="127.0.0.1", port=0))


def _reach(settings: WorkerSettings) -> tuple[str, HostedNode | None]:
    """The URL of the folder's node, and the node itself if it had to be started here.

    Another command may hold the folder for a moment, or `serve` may be coming up: then wait for either.
    """
    deadline, waiting = time.monotonic() + PATIENCE_SECONDS, False
    while True:
        if found := node_file.running(settings):
            return found.url, None
        if settings.redis_url:
            raise CommandError(
                "HOPNODE_REDIS_URL says server mode, and no API of this data folder runs here.",
                "Set HOPNODE_URL (and HOPNODE_API_KEY) to the API, or start it with `hopnode api`.",
                ExitCode.USAGE,
            )
        try:
            node = host_quietly(settings)
        except DataFolderInUse:
            if time.monotonic() > deadline:
                raise
            if not waiting:
                display.notices().print("Another command uses the data folder; waiting for it …", style="dim")
            waiting = True
            time.sleep(RETRY_SECONDS)
        else:
            return node.url, node
