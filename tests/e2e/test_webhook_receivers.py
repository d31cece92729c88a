"""The receivers of docs/webhooks.md, run as they stand there: they take what the node signs, once, and refuse the rest."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from support.node.queue import wait_until
from support.servers.postgres import free_port

from hopnode.worker.webhooks.signing import new_secret, signature

PAGE = (Path(__file__).parents[2] / "docs" / "webhooks.md").read_text(encoding="utf-8")
BODY = b'{"type":"search.succeeded","data":{"id":"s1"}}'


@contextmanager
def _receiver(language: str, folder: Path, secret: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    program, name = {"python": (sys.executable, "r.py"), "js": (shutil.which("node") or "node", "r.mjs")}[language]
    [example] = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (folder / name).write_text(example, encoding="utf-8")
    port = free_port()
    surroundings = {"PATH": os.environ["PATH"], "WEBHOOK_SECRET": secret, "PORT": str(port)}
    process = subprocess.Popen(
        [program, name], cwd=folder, env=surroundings, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    url = f"http://127.0.0.1:{port}/"
    try:
        wait_until(lambda: _listens(url), 20, "the receiver listens")
        yield url, process
    finally:
        process.kill()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()


def _listens(url: str) -> bool:
    try:
        return (
            httpx.post(url, content=b"{}", headers=_headers(new_secret(), "probe"), trust_env=False).status_code == 401
        )
    except httpx.TransportError:
        return False


def _headers(secret: str, message_id: str, seconds_ago: int = 0) -> dict[str, str]:
    now = int(time.time()) - seconds_ago
    signatures = signature([new_secret(), secret], message_id, now, BODY)
    return {"webhook-id": message_id, "webhook-timestamp": str(now), "webhook-signature": signatures}


@pytest.mark.parametrize("language", ["python", "js"])
def test_a_receiver_of_the_page_takes_a_signed_event_once_and_refuses_all_others(language: str, tmp_path: Path) -> None:
    secret = new_secret()
    with _receiver(language, tmp_path, secret) as (url, process), httpx.Client(trust_env=False) as client:

        def send(headers: dict[str, str], body: bytes = BODY) -> int:
            return client.post(url, content=body, headers=headers).status_code

        assert send(_headers(secret, "d1")) == 204
        assert send(_headers(secret, "d1")) == 204
        assert send(_headers(new_secret(), "d2")) == 401
        assert send(_headers(secret, "d3", seconds_ago=3600)) == 401
        assert send(_headers(secret, "d4"), BODY.replace(b"s1", b"s2")) == 401
        assert send({}) == 401
        assert send(_headers(secret, "d5")) == 204
        process.kill()
        assert process.stdout is not None
        assert process.stdout.read().splitlines() == ["search.succeeded s1"] * 2
