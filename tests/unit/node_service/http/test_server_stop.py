"""A server that stops ends its waits and streams at once and answers what is under way."""

import threading
import time
from pathlib import Path
from typing import Any

import httpx
from support.node.http_node import HttpNode, serve_node
from support.node.queue import wait_until

STOP_SECONDS = 3


def test_waits_and_streams_end_with_the_server(tmp_path: Path) -> None:
    answers: dict[str, Any] = {}
    with serve_node(tmp_path) as node:
        tenant = node.tenant()
        tenant.collection()
        search = tenant.search()

        def wait() -> None:
            answers["wait"] = _get(node, tenant.token, f"{search['url']}?wait=60")

        def prefer() -> None:
            body = {"query": "q", "collection": "handbook"}
            answers["prefer"] = _post(node, tenant.token, "/v1/searches", body, Prefer="wait=60")

        def listen() -> None:
            answers["events"] = _get(node, tenant.token, search["events_url"])

        threads = [threading.Thread(target=each) for each in (wait, prefer, listen)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(node.server.server_state.tasks) == 3, 5, "all three wait")
        started = time.monotonic()
        node.server.should_exit = True
        node.thread.join(STOP_SECONDS)
        assert not node.thread.is_alive()
        for thread in threads:
            thread.join(STOP_SECONDS)
        print(f"\nstopped in {time.monotonic() - started:.2f} s")
    assert (answers["wait"].status_code, answers["wait"].json()["status"]) == (200, "queued")
    assert answers["prefer"].status_code == 202
    assert answers["events"].status_code == 200
    assert "event: end" not in answers["events"].text


def _get(node: HttpNode, token: str, path: str) -> httpx.Response:
    return httpx.get(node.url + path, headers={"Authorization": f"Bearer {token}"}, timeout=60, trust_env=False)


def _post(node: HttpNode, token: str, path: str, body: Any, **headers: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {token}"} | headers
    return httpx.post(node.url + path, json=body, headers=headers, timeout=60, trust_env=False)
