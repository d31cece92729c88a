"""The checks of `hopnode doctor`, each against the real thing or its absence."""

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hopnode.node_service.commands.connection import node_file
from hopnode.node_service.commands.doctor import checks
from hopnode.node_service.commands.doctor.checks import CheckedSettings, Finding
from hopnode.node_service.settings import ServiceSettings
from hopnode.worker.settings import WorkerSettings
from hopnode.worker.store.database import Database

CLOSED = "http://127.0.0.1:9"


def _context(tmp_path: Path, **settings: Any) -> CheckedSettings:
    service = {name: settings.pop(name) for name in ("url", "api_key") if name in settings}
    return CheckedSettings(WorkerSettings(data_dir=tmp_path / "data", **settings), ServiceSettings(**service))


@contextmanager
def _server(status: int, body: Any) -> Generator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_an_empty_set_up_is_sound_and_no_check_makes_the_data_folder(tmp_path: Path) -> None:
    context = _context(tmp_path)
    states = {name: checks.run(check, context).state for name, check in checks.CHECKS.items() if name != "embedder"}
    assert "failed" not in states.values()
    assert not (tmp_path / "data").exists()


def test_a_data_folder_that_is_a_file_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("in the way")
    finding = checks.data_folder(_context(tmp_path))
    assert finding.state == "failed"
    assert "HOPNODE_DATA_DIR" in finding.mend


def test_a_key_that_others_can_read_is_pointed_out(tmp_path: Path) -> None:
    context = _context(tmp_path)
    (tmp_path / "data").mkdir()
    context.settings.key_file.write_text("hn_x")
    context.settings.key_file.chmod(0o644)
    assert checks.key(context).state == "warning"
    context.settings.key_file.chmod(0o600)
    assert checks.key(context).state == "ok"


def test_an_owner_that_does_not_answer_is_a_failure(tmp_path: Path) -> None:
    context = _context(tmp_path)
    (tmp_path / "data").mkdir()
    assert checks.owner(context).state == "off"
    node_file.write(context.settings, CLOSED)
    assert checks.owner(context).state == "failed"


def test_a_database_with_other_tables_asks_for_migrate(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'hopnode.db'}"
    finding = checks.database(_context(tmp_path, database_url=url))
    assert (finding.state, finding.mend) == ("failed", "Run `hopnode migrate`.")
    database = Database(url)
    database.migrate()
    database.close()
    assert checks.database(_context(tmp_path, database_url=url)).state == "ok"


@pytest.mark.parametrize(
    ("check", "settings", "word"),
    [
        (checks.redis, {"redis_url": "redis://127.0.0.1:9/0"}, "Redis"),
        (checks.chroma, {"chroma_url": CLOSED}, "HOPNODE_CHROMA_URL"),
        (checks.chat, {"chat_url": f"{CLOSED}/v1", "chat_model": "m"}, "HOPNODE_CHAT_URL"),
        (checks.answers, {"answer_url": f"{CLOSED}/v1", "answer_model": "m"}, "HOPNODE_ANSWER_URL"),
        (checks.node, {"url": CLOSED, "api_key": "hn_x"}, "hopnode serve"),
        (checks.database, {"database_url": "postgresql+psycopg://u:secret@127.0.0.1:9/x"}, "HOPNODE_DATABASE_URL"),
    ],
)
def test_a_service_that_is_configured_and_away_is_a_failure_with_its_mending(
    tmp_path: Path, check: Callable[[CheckedSettings], Finding], settings: dict[str, str], word: str
) -> None:
    finding = checks.run(check, _context(tmp_path, **settings))
    assert finding.state == "failed"
    assert word in finding.mend
    assert "secret" not in finding.message


@pytest.mark.parametrize(
    ("status", "body", "state"),
    [
        (200, {"data": [{"id": "gpt"}]}, "ok"),
        (200, {"data": [{"id": "other"}]}, "warning"),
        (200, ["unexpected"], "warning"),
        (401, {}, "failed"),
        (500, {}, "failed"),
    ],
)
def test_a_chat_endpoint_is_asked_for_its_models(tmp_path: Path, status: int, body: Any, state: str) -> None:
    with _server(status, body) as url:
        assert checks.chat(_context(tmp_path, chat_url=f"{url}/v1", chat_model="gpt")).state == state


def test_the_answer_model_may_be_one_that_the_chat_endpoint_serves_too(tmp_path: Path) -> None:
    with _server(200, {"data": [{"id": "gpt"}, {"id": "writer"}]}) as url:
        settings = {"chat_url": f"{url}/v1", "chat_model": "gpt"}
        assert checks.answers(_context(tmp_path, **settings)).state == "off"
        assert checks.answers(_context(tmp_path, answer_model="writer", **settings)).state == "ok"
        assert "HOPNODE_ANSWER_MODEL" in checks.answers(_context(tmp_path, answer_model="typo", **settings)).mend


def test_a_chroma_server_that_answers_is_found(tmp_path: Path) -> None:
    with _server(200, {"nanosecond heartbeat": 1}) as url:
        assert checks.chroma(_context(tmp_path, chroma_url=url)).state == "ok"


def test_a_check_that_breaks_becomes_a_finding(tmp_path: Path) -> None:
    def broken(_: CheckedSettings) -> Finding:
        raise RuntimeError("no such luck")

    finding = checks.run(broken, _context(tmp_path))
    assert finding.state == "failed" and "no such luck" in finding.message


@pytest.mark.slow
def test_the_shipped_embedders_load_and_give_vectors(tmp_path: Path) -> None:
    finding = checks.embedder(_context(tmp_path))
    assert finding.state == "ok"
    assert "minilm (384)" in finding.message and "use (512)" in finding.message
