"""The command `hopnode`: names every command, and turns each error into two sentences and an exit code."""

import os
import sys
from contextlib import suppress
from io import TextIOWrapper
from typing import Annotated, NoReturn, cast

import typer

from hopnode.node_service.commands import adding, collections, keys, searching, secrets, serving, syncing
from hopnode.node_service.commands.demo import demo
from hopnode.node_service.commands.doctor import doctor
from hopnode.node_service.commands.evaluation import evaluating
from hopnode.node_service.commands.model_server import launch_and_check
from hopnode.node_service.commands.terminal.exits import ExitCode, report
from hopnode.node_service.commands.terminal.invocation import Invocation

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Hopnode: a self-hosted retrieval node. A search agent in place of one-shot retrieval.",
    epilog="Exit codes: 0 done · 1 failed · 2 wrong usage · 3 partly failed · 4 not found or not allowed. See docs/cli.md.",
)
_NODE, _CONTENT, _SEARCH = "Run a node", "Fill it", "Use it"

app.command(rich_help_panel=_NODE)(serving.serve)
app.command(rich_help_panel=_NODE)(serving.api)
app.command(rich_help_panel=_NODE)(serving.worker)
app.command(rich_help_panel=_NODE)(serving.migrate)
app.add_typer(secrets.app, name="secrets", rich_help_panel=_NODE)
app.command(rich_help_panel=_NODE)(doctor.doctor)
app.add_typer(launch_and_check.app, name="model", rich_help_panel=_NODE)
app.add_typer(collections.app, name="collections", rich_help_panel=_CONTENT)
app.command(rich_help_panel=_CONTENT)(adding.add)
app.command(rich_help_panel=_CONTENT)(syncing.sync)
app.command(rich_help_panel=_SEARCH)(searching.search)
app.command(rich_help_panel=_SEARCH)(demo.demo)
app.command("eval", rich_help_panel=_SEARCH)(evaluating.evaluate)
app.add_typer(keys.app, name="keys", rich_help_panel=_SEARCH)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"hopnode {version('hopnode')}")
        raise typer.Exit


@app.callback()
def start(
    ctx: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and every log line.")] = False,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Hopnode: a self-hosted retrieval node. A search agent in place of one-shot retrieval."""
    ctx.obj.debug = debug


def main() -> NoReturn:
    """Entry of the `hopnode` command; exits with an `ExitCode`."""
    for stream in (sys.stdout, sys.stderr):
        cast(TextIOWrapper, stream).reconfigure(errors="replace")
    code = _run()
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError):  # whoever read our output has seen enough
            stream.flush()
    # Threads of a stopped node may still be inside native code (an embedding under way). Taking the interpreter down
    # under them aborts the process; everything that had to be closed is closed by now.
    os._exit(code)


def _run() -> int:
    invocation = Invocation()
    try:
        app(obj=invocation)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ExitCode.OK if end.code is None else ExitCode.FAILED
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the boundary of the command line: a person reads what comes out
        return report(error, debug=invocation.debug)
    return ExitCode.OK
