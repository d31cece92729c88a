"""What a user reads when a command fails, and the exit code that scripts see."""

import resource
import subprocess
import sys
from pathlib import Path

import pytest
from support.node.cli import Cli

from hopnode.node_service.commands.terminal.exits import CommandError, ExitCode, report
from hopnode.worker.errors import ConfigurationError, DataFolderInUse, HopnodeError, NotFound, Unauthorized


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CommandError("It broke.", "Mend it.", ExitCode.PARTLY_FAILED), 3),
        (NotFound("Not there."), 4),
        (Unauthorized("Who are you?"), 4),
        (DataFolderInUse("Somebody has it."), 1),
        (ConfigurationError("Set it."), 1),
        (RuntimeError("surprise"), 1),
    ],
)
def test_every_error_is_two_sentences_on_stderr_and_a_stable_exit_code(
    error: Exception, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(error, debug=False) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    first, second = shown.err.splitlines()
    assert first.startswith("error: ") and str(error) in first
    assert second.startswith("  mend: ") and len(second) > 15


def test_every_family_of_errors_says_how_to_mend_it(capsys: pytest.CaptureFixture[str]) -> None:
    families, left = list[type[HopnodeError]](), [HopnodeError]
    while left:
        left += (family := left.pop()).__subclasses__()
        families.append(family)
    plain = [family for family in families if family.__init__ in (HopnodeError.__init__,)]
    for family in plain:
        report(family("Something."), debug=False)
        assert "mend: " in capsys.readouterr().err
    assert len(plain) > 10


def test_a_traceback_is_shown_with_debug_only(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise RuntimeError("surprise")
    except RuntimeError as error:
        report(error, debug=False)
        assert "Traceback" not in capsys.readouterr().err
        report(error, debug=True)
        assert "Traceback" in capsys.readouterr().err


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """The command on an empty data folder."""
    return Cli(tmp_path / "data", tmp_path)


def test_help_lists_every_command_with_less_than_half_a_second_of_work() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "hopnode.node_service", "--help"], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    for name in ["serve", "api", "worker", "migrate", "doctor", "add", "sync", "collections", "search", "demo", "keys"]:
        assert f" {name} " in done.stdout
    assert (after.ru_utime - before.ru_utime) + (after.ru_stime - before.ru_stime) < 0.5


def test_an_unknown_command_is_wrong_usage(cli: Cli) -> None:
    done = cli.run("serach", "x")
    assert done.returncode == 2
    assert "search" in done.stderr


def test_the_version_is_printed(cli: Cli) -> None:
    assert cli.run("--version").stdout.startswith("hopnode 0.")


def test_a_wrong_setting_is_named_without_a_traceback(cli: Cli) -> None:
    done = cli.run("migrate", HOPNODE_PORT="1", HOPNODE_AGENT_SLOTS="many")
    assert done.returncode == 2
    assert "HOPNODE_AGENT_SLOTS" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_setting_that_needs_another_says_which(cli: Cli) -> None:
    done = cli.run("migrate", HOPNODE_CHAT_URL="http://127.0.0.1:1/v1")
    assert done.returncode == 2
    assert "HOPNODE_CHAT_MODEL" in done.stderr


@pytest.mark.parametrize("command", [("api",), ("worker", "--role", "agent")])
def test_server_mode_without_redis_says_what_to_set(cli: Cli, command: tuple[str, ...]) -> None:
    done = cli.run(*command)
    assert done.returncode == 2
    assert "HOPNODE_REDIS_URL" in done.stderr


def test_a_node_that_cannot_be_reached_is_named_with_what_to_do(cli: Cli) -> None:
    done = cli.run("collections", "list", HOPNODE_URL="http://127.0.0.1:9", HOPNODE_API_KEY="hn_x")
    assert done.returncode == 1
    assert "http://127.0.0.1:9" in done.stderr and "hopnode serve" in done.stderr


def test_deleting_needs_a_yes_where_nobody_can_be_asked(cli: Cli) -> None:
    done = cli.run("collections", "delete", "docs")
    assert done.returncode == 2
    assert "--yes" in done.stderr


def test_nothing_to_add_is_a_failure_that_says_what_was_left_out(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "only").mkdir()
    (tmp_path / "only" / "image.png").write_bytes(bytes(100))
    done = cli.run("add", tmp_path / "only")
    assert done.returncode == 1
    assert "1 binary" in done.stderr


def test_sync_without_a_target_is_wrong_usage(cli: Cli) -> None:
    assert cli.run("sync").returncode == 2
    assert cli.run("sync", "http://example.com/", "--list").returncode == 2
