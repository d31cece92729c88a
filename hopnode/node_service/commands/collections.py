"""The commands `collections list | create | show | delete`, and the collection that other commands need to exist."""

import sys
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from hopnode.node_service.commands.terminal import display
from hopnode.node_service.commands.terminal.exits import CommandError, ExitCode
from hopnode.node_service.commands.terminal.options import JsonOption

if TYPE_CHECKING:
    from hopnode.node_service.commands.connection.client import NodeClient

app = typer.Typer(no_args_is_help=True, help="List, make, look at and delete collections.")
NameArgument = Annotated[str, typer.Argument(help="Name of the collection.")]


@app.command("list")
def list_all(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List the collections of the workspace."""
    from hopnode.node_service.commands.connection.open_client import open_client

    with open_client(ctx.obj) as client:
        found = list(client.pages("/v1/collections"))
    if as_json:
        display.print_json(found)
        return
    rows = [(one["name"], one.get("embedder") or "not chosen yet", one["description"]) for one in found]
    display.output().print(display.table(("collection", "embedder", "description"), rows))


@app.command()
def create(
    ctx: typer.Context,
    name: NameArgument,
    description: Annotated[str, typer.Option(help="What it holds, for people.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Make a collection. Names are lower-case letters, digits, `.`, `_` and `-`."""
    from hopnode.node_service.commands.connection.open_client import open_client

    with open_client(ctx.obj) as client:
        made = client.post("/v1/collections", {"name": name, "description": description})
    if as_json:
        display.print_json(made)
    else:
        typer.echo(f"Made the collection {name}.")


@app.command()
def show(ctx: typer.Context, name: NameArgument, as_json: JsonOption = False) -> None:
    """Show what a collection holds and how it is indexed."""
    from hopnode.node_service.commands.connection.open_client import open_client

    with open_client(ctx.obj) as client:
        found = client.get(path_of(name))
    if as_json:
        display.print_json(found)
    else:
        display.output().print(display.table(("", ""), _facts(found)))


@app.command()
def delete(
    ctx: typer.Context,
    name: NameArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a collection with its documents and sources."""
    from hopnode.node_service.commands.connection.open_client import open_client

    if not yes:
        if not sys.stdin.isatty():
            raise CommandError(
                f"Deleting {name} cannot be undone, and nobody is there to ask.", "Say --yes.", ExitCode.USAGE
            )
        typer.confirm(f"Delete the collection {name} with its documents and sources?", abort=True)
    with open_client(ctx.obj) as client:
        client.delete(path_of(name))
    typer.echo(f"Deleted the collection {name}.")


def path_of(name: str) -> str:
    """The address of a collection below the node's URL."""
    return f"/v1/collections/{quote(name, safe='')}"


def ensure(client: "NodeClient", name: str) -> None:
    """Makes the collection unless it exists."""
    from hopnode.node_service.commands.connection.client import NodeRefused

    try:
        client.get(path_of(name))
    except NodeRefused as refused:
        if refused.http_status != 404:
            raise
        client.post("/v1/collections", {"name": name})


def _facts(found: dict[str, Any]) -> list[tuple[str, object]]:
    simple = {name: value for name, value in found.items() if not isinstance(value, dict | list)}
    stats = found.get("stats") or {}
    return [(name.replace("_", " "), value) for name, value in (simple | stats).items() if value not in (None, "", [])]
