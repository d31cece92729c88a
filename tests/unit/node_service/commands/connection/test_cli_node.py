"""Which key goes to which node, and long work on a few threads."""

import threading
from pathlib import Path

import pytest

from hopnode.node_service.commands.connection.hosting import bind
from hopnode.node_service.commands.connection.open_client import key_for, stored_key
from hopnode.node_service.commands.terminal.exits import CommandError, ExitCode
from hopnode.node_service.commands.terminal.progress import AT_ONCE, in_parallel
from hopnode.node_service.settings import ServiceSettings
from hopnode.worker.settings import WorkerSettings

ELSEWHERE = "https://hopnode.example.com"


@pytest.fixture
def settings(tmp_path: Path) -> WorkerSettings:
    """A data folder with a key in it."""
    found = WorkerSettings(data_dir=tmp_path)
    found.key_file.write_text("hn_local\n")
    return found


@pytest.mark.parametrize("url", ["http://127.0.0.1:8700", "http://localhost:8700", "http://[::1]:8700"])
def test_the_key_of_the_data_folder_opens_nodes_of_this_machine(settings: WorkerSettings, url: str) -> None:
    assert key_for(url, settings, ServiceSettings()) == "hn_local"


def test_the_key_of_the_data_folder_is_sent_to_no_other_machine(settings: WorkerSettings) -> None:
    with pytest.raises(CommandError, match="HOPNODE_API_KEY") as caught:
        key_for(ELSEWHERE, settings, ServiceSettings())
    assert caught.value.exit_code == ExitCode.REFUSED


def test_a_key_that_was_given_goes_before_the_one_in_the_data_folder(settings: WorkerSettings) -> None:
    service = ServiceSettings(api_key="hn_given")
    assert {key_for(url, settings, service) for url in (ELSEWHERE, "http://127.0.0.1:1")} == {"hn_given"}


def test_a_data_folder_without_a_key_has_none(tmp_path: Path) -> None:
    assert stored_key(WorkerSettings(data_dir=tmp_path)) is None


def test_results_come_in_the_order_of_the_items_whatever_ends_first() -> None:
    gate = threading.Barrier(AT_ONCE)

    def work(item: int) -> int:
        gate.wait(10)  # passes only when as many threads as promised work at once
        return item * item

    assert in_parallel(work, list(range(AT_ONCE * 3)), "Squaring") == [number * number for number in range(AT_ONCE * 3)]


def test_the_first_error_ends_the_work() -> None:
    begun = list[int]()

    def work(item: int) -> int:
        begun.append(item)
        raise ValueError(f"no {item}")

    with pytest.raises(ValueError, match="no "):
        in_parallel(work, list(range(100)), "Failing")
    assert len(begun) <= AT_ONCE


def test_nothing_to_do_is_done_at_once() -> None:
    assert in_parallel(str, [], "Nothing") == []


def test_a_taken_port_is_an_error_that_names_the_way_out() -> None:
    with bind("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CommandError, match=str(port)) as caught:
            bind("127.0.0.1", port)
    assert "--port" in caught.value.mend


@pytest.mark.parametrize("host", ["203.0.113.7", "no.such.host.invalid"])
def test_an_address_that_is_not_of_this_machine_is_an_error_that_names_the_way_out(host: str) -> None:
    with pytest.raises(CommandError, match=host) as caught:
        bind(host, 0)
    assert "--host" in caught.value.mend
