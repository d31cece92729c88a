"""How commands on one machine find the node of a data folder: the files `node.json` and `api_key` in it.

Knows the two files and whether the process named in one is alive and answers; starts nothing.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from hopnode.worker.settings import WorkerSettings

PROBE_SECONDS = 2.0


@dataclass(frozen=True)
class NodeFile:
    """Where the node of a data folder listens, and which process it is."""

    url: str
    pid: int


def node_path(settings: WorkerSettings) -> Path:
    """The file that a running node leaves for other commands."""
    return settings.root / "node.json"


def write(settings: WorkerSettings, url: str) -> None:
    """Announces this process as the node of the data folder; replaces what a dead node left."""
    target = node_path(settings)
    draft = target.with_suffix(f".{os.getpid()}")
    draft.write_text(json.dumps(asdict(NodeFile(url, os.getpid()))))
    draft.replace(target)


def remove(settings: WorkerSettings) -> None:
    """Takes back the announcement if it is still ours."""
    if (found := read(settings)) and found.pid == os.getpid():
        node_path(settings).unlink(missing_ok=True)


def read(settings: WorkerSettings) -> NodeFile | None:
    """What was announced, alive or not. Returns None where nothing readable is."""
    try:
        fields = json.loads(node_path(settings).read_text())
        return NodeFile(str(fields["url"]), int(fields["pid"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def running(settings: WorkerSettings) -> NodeFile | None:
    """The announced node if its process lives and its `/healthz` answers."""
    found = read(settings)
    return found if found and is_alive(found.pid) and answers(found.url) else None


def is_alive(pid: int) -> bool:
    """Whether a process with this id exists on this machine."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def answers(url: str) -> bool:
    """Whether a node says at `url` that it is up."""
    import httpx

    try:
        return httpx.get(f"{url}/healthz", timeout=PROBE_SECONDS, trust_env=False).is_success
    except httpx.HTTPError:
        return False
