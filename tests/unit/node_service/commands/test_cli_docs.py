"""The page of the command line names every command, every option, every exit code and every reason to leave a file out."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from hopnode.node_service.cli import app
from hopnode.node_service.commands import files
from hopnode.node_service.commands.terminal import exits

PAGE = (Path(__file__).parents[4] / "docs" / "cli.md").read_text(encoding="utf-8")


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, child in getattr(command, "commands", {}).items():
        yield from _commands(child, (*path, name))
    if not hasattr(command, "commands"):
        yield path, command


COMMANDS = dict(_commands(typer.main.get_command(app)))


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_the_page_describes_the_command_with_its_options(path: tuple[str, ...]) -> None:
    section = re.search(rf"^### {path[0]}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section, f"no section for {path[0]}"
    assert path[-1] in section[0]
    for parameter in COMMANDS[path].params:
        for option in parameter.opts:
            if option.startswith("--") and option not in ("--json", "--help"):
                assert option in section[0], f"{' '.join(path)} {option}"


def test_the_page_explains_every_exit_code() -> None:
    for code in exits.ExitCode:
        assert f"| {int(code)} |" in PAGE


def test_the_page_explains_every_reason_to_leave_a_file_out() -> None:
    for reason in files.REASONS:
        assert f"| `{reason}` |" in PAGE, reason
