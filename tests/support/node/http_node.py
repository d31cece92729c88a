"""A node behind a real HTTP server on a free port: SQLite, embedded Chroma, the real routes, and nobody who runs the jobs
unless a test does it itself."""

import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from hopnode.node_service.app import create_app
from hopnode.node_service.http.server import NodeServer
from hopnode.node_service.settings import ServiceSettings
from hopnode.worker.queue.dispatch import ThreadDispatcher
from hopnode.worker.queue.job_context import JobContext
from hopnode.worker.queue.runner import QueueRunner
from hopnode.worker.runtime import Runtime, open_runtime
from hopnode.worker.store.collections import Collection, get_collection
from hopnode.worker.store.jobs import jobs
from hopnode.worker.store.jobs.jobs import Job, JobStatus
from hopnode.worker.store.workspaces import SCOPES, Workspace, create_key, create_workspace, ensure_default
from support.node.queue import wait_until, worker_settings

Handler = Callable[[Runtime, JobContext], Any]
TENANT_SCOPES = tuple(scope for scope in SCOPES if scope != "node:admin")


class Tenant:
    """One workspace and a client that speaks with a key of it."""

    def __init__(self, node: "HttpNode", workspace: Workspace, key_id: str, token: str) -> None:
        self.node = node
        self.workspace = workspace
        self.key_id = key_id
        self.token = token
        self.http = node.client(token)

    def collection(self, name: str = "handbook") -> str:
        """Makes a collection and returns its name."""
        made = self.http.post("/v1/collections", json={"name": name})
        assert made.status_code == 201, made.text
        return name

    def put(self, key: str, text: str, collection: str = "handbook", **fields: Any) -> httpx.Response:
        """Puts a text."""
        return self.http.put(f"/v1/collections/{collection}/documents/{key}", json={"text": text} | fields)

    def search(self, query: str = "Where is the harbour?", **fields: Any) -> dict[str, Any]:
        """Starts a search in `handbook` and returns it as the node told it."""
        made = self.http.post("/v1/searches", json={"query": query, "collection": "handbook"} | fields)
        assert made.status_code == 202, made.text
        return made.json()


class HttpNode:
    """A served node. Its job threads run with `handlers`; without any they are not started, and a test is the only worker."""

    def __init__(
        self,
        folder: Path,
        settings: dict[str, Any],
        service: dict[str, Any],
        handlers: Mapping[str, Handler],
        agent_slots: int = 1,
    ) -> None:
        self.settings = worker_settings(folder, **settings)
        self.runtime = open_runtime(self.settings, embedded=True)
        self.db = self.runtime.db
        self.dispatcher = ThreadDispatcher(QueueRunner(self.runtime, handlers), {"agent": agent_slots, "sync": 1}, 60)
        if handlers:
            self.dispatcher.start()
        self._has_workers = bool(handlers)
        self.default_token = ensure_default(self.db, self.settings.key_file)
        self.app = create_app(self.runtime, ServiceSettings(_env_file=None, **service), self.dispatcher)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.server = NodeServer(self.app, log_config=None, access_log=False, ws="none")
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self._listener]}, daemon=True)
        self._clients: list[httpx.Client] = []
        self.thread.start()
        wait_until(lambda: self.server.started or not self.thread.is_alive(), 20, "the server listens")

    def client(self, token: str | None) -> httpx.Client:
        """A client with this key; closed with the node."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        client = httpx.Client(base_url=self.url, headers=headers, timeout=30, trust_env=False)
        self._clients.append(client)
        return client

    def tenant(self, scopes: tuple[str, ...] = TENANT_SCOPES) -> Tenant:
        """A fresh workspace with one key."""
        workspace = create_workspace(self.db, f"w{secrets.token_hex(6)}")
        key, token = create_key(self.db, workspace.id, "test", scopes)
        return Tenant(self, workspace, key.id, token)

    def with_scopes(self, tenant: Tenant, *scopes: str) -> httpx.Client:
        """Another key of the same workspace."""
        return self.client(create_key(self.db, tenant.workspace.id, "narrow", scopes)[1])

    def db_collection(self, tenant: Tenant, name: str) -> Collection:
        """The stored record of a collection."""
        return get_collection(self.db, tenant.workspace.id, name)

    def claim(self, search_id: str, role: str = "agent") -> Job:
        """Takes a job as a worker does; the jobs of other tests are taken too, and let go."""
        while job := jobs.claim_next(self.db, role=role, lease_seconds=600, workspace_limit=1000):
            if job.id == search_id:
                return job
            jobs.finish(self.db, job, JobStatus.FAILED, error={"code": "internal-error", "message": "Not wanted."})
        raise AssertionError(f"{search_id} cannot be claimed")

    def stop(self) -> None:
        """Ends the server and closes everything."""
        self.server.should_exit = True
        self.thread.join(20)
        assert not self.thread.is_alive()
        for client in self._clients:
            client.close()
        self._listener.close()
        if self._has_workers:
            self.dispatcher.stop(5)
        self.runtime.close()


@contextmanager
def serve_node(
    folder: Path,
    settings: dict[str, Any] | None = None,
    service: dict[str, Any] | None = None,
    handlers: Mapping[str, Handler] | None = None,
    agent_slots: int = 1,
) -> Iterator[HttpNode]:
    """A node on a free port, ended with the block."""
    node = HttpNode(folder, settings or {}, service or {}, handlers or {}, agent_slots)
    try:
        yield node
    finally:
        node.stop()


def passage(**changes: Any) -> dict[str, Any]:
    """A passage as a finished search holds it."""
    found = {
        "rank": 1,
        "score": 0.9,
        "document_id": "d1",
        "chunk_id": "d1_1",
        "key": "quay.md",
        "title": "Quay",
        "heading": "",
        "url": None,
        "text": "The harbour lies north.",
        "start": 0,
        "end": 23,
        "page": None,
        "metadata": {},
        "neighbours": [],
        "justification": "Says where.",
        "found_by": ["Where is the harbour?"],
        "votes": 1,
        "ranks": [1],
    }
    return found | changes


def result(*passages: dict[str, Any]) -> dict[str, Any]:
    """The result of a search."""
    return {
        "mode": "agent",
        "mode_reason": "",
        "profile": "offline",
        "passages": list(passages),
        "answer": None,
        "stop_reason": "finished",
        "degraded": [],
        "usage": {"turns": 2, "tool_calls": 1},
        "index": {"version": 1, "vector_lag": 0},
    }
