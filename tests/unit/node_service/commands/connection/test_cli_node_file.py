"""How commands find the node of a data folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hopnode.node_service.commands.connection import node_file
from hopnode.worker.settings import WorkerSettings


@pytest.fixture
def settings(tmp_path: Path) -> WorkerSettings:
    """A data folder that exists."""
    return WorkerSettings(data_dir=tmp_path)


def _dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_what_a_node_announces_is_read_back(settings: WorkerSettings) -> None:
    node_file.write(settings, "http://127.0.0.1:1")
    assert node_file.read(settings) == node_file.NodeFile("http://127.0.0.1:1", os.getpid())


def test_a_node_that_died_is_not_running(settings: WorkerSettings) -> None:
    content = json.dumps({"url": "http://127.0.0.1:1", "pid": _dead_pid()})
    node_file.node_path(settings).write_text(content)
    assert node_file.running(settings) is None


def test_a_living_process_that_does_not_answer_is_not_a_running_node(settings: WorkerSettings) -> None:
    node_file.write(settings, "http://127.0.0.1:9")
    assert node_file.running(settings) is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"url": "x", "pid": "many"}', '{"url": 1'])
def test_a_file_that_makes_no_sense_is_no_node(settings: WorkerSettings, content: str) -> None:
    node_file.node_path(settings).write_text(content)
    assert node_file.read(settings) is None


def test_a_node_takes_back_its_own_announcement_and_no_other(settings: WorkerSettings) -> None:
    node_file.write(settings, "http://127.0.0.1:1")
    node_file.remove(settings)
    assert not node_file.node_path(settings).exists()
    node_file.node_path(settings).write_text(json.dumps({"url": "http://127.0.0.1:2", "pid": os.getppid()}))
    node_file.remove(settings)
    assert node_file.node_path(settings).exists()
