"""The README, as somebody follows it who pastes one block after the other."""

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from running_node import RunningNode, ThinkingModel

PROJECT = Path(__file__).parents[1]
ROOT = PROJECT.parents[1]
README = (PROJECT / "README.md").read_text(encoding="utf-8")
NODE_URL = "http://127.0.0.1:8700"

AT_LAST = """
import json
from datetime import UTC, datetime
from standardwebhooks import Webhook

body = json.dumps({"type": "search.succeeded", "timestamp": "2026-12-01T00:00:00Z", "data": {"id": search.id}})
now = datetime.now(UTC)
signature = Webhook("whsec_b2xkIHNlY3JldCBvZiB0aGUgbm9kZSBoZXJl").sign("msg_1", now, body)
headers = {"webhook-id": "msg_1", "webhook-timestamp": str(int(now.timestamp())), "webhook-signature": signature}
assert receive(headers, body.encode()) == 204
assert receive(headers, b"something else") == 400
node.close()
"""
"""What a node does to the receiver of the README."""


def blocks(language: str) -> list[str]:
    """The code blocks of a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_every_block_runs_as_it_is_printed(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config, model: ThinkingModel
) -> None:
    home = tmp_path_factory.mktemp("visitor")
    with RunningNode(pytestconfig.getoption("hopnode"), ROOT, home) as node:
        program = "\n".join([*blocks("python"), AT_LAST]).replace(NODE_URL, node.url)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            cwd=tmp_path,
            env=os.environ | {"HOME": str(home)},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    assert "company.md[0:42]  Brightstone was founded by Mira Lindqvist." in done.stdout
    assert "['tower.md', 'company.md']" in done.stdout
    assert "['stored', 'stored', 'stored']" in done.stdout
    assert re.search("^not-found .*cookbook", done.stdout, re.MULTILINE) and "\ncorrupt\n" in done.stdout


def test_the_printed_installation_works_where_the_dependencies_are(tmp_path: Path) -> None:
    [command] = blocks("console")
    venv.create(tmp_path / "venv", with_pip=False)
    lent = next(path for path in sys.path if path.endswith("site-packages"))
    own = next((tmp_path / "venv" / "lib").glob("python*")) / "site-packages"
    (own / "lent.pth").write_text(lent)
    pip = tmp_path / "venv" / "bin" / "pip"
    pip.write_text(f'#!/bin/sh\nexec {tmp_path}/venv/bin/python -m pip "$@"\n')
    pip.chmod(0o755)
    paths = {"PATH": f"{pip.parent}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    flags = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "false", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    copy = tmp_path / "plugins" / "python"
    copy.mkdir(parents=True)
    names = ["pyproject.toml", "README.md", "LICENSE", "hopnode_client"]
    subprocess.run(["cp", "-r", *(str(PROJECT / name) for name in names), str(copy)], check=True)
    subprocess.run(["sh", "-c", command.removeprefix("$ ")], cwd=tmp_path, env=paths | flags, check=True, timeout=120)
    assert (own / "hopnode_client" / "py.typed").is_file()


def test_every_page_that_the_readme_names_is_there() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", README)
    assert links and not [link for link in links if not (PROJECT / link).exists()]
