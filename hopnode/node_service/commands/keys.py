"""The commands `keys list | create | rotate | revoke`, for the workspace of the key in use."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from urllib.parse import quote

import typer

from hopnode.node_service.commands.terminal import display
from hopnode.node_service.commands.terminal.options import JsonOption

app = typer.Typer(no_args_is_help=True, help="List, make, rotate and revoke keys of the workspace.")


@app.command("list")
def list_all(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List the keys; their secrets are not kept and cannot be shown."""
    from hopnode.node_service.commands.connection.open_client import open_client

    with open_client(ctx.obj) as client:
        found = list(client.pages("/v1/keys"))
    if as_json:
        display.print_json(found)
        return
    rows = [
        (key["id"], key["name"], " ".join(key["scopes"]), _state(key.get("revoked_at"), key.get("expires_at")))
        for key in found
    ]
    display.output().print(display.table(("id", "name", "scopes", "state"), rows))


@app.command()
def create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(help="What the key is for, e.g. `n8n`.")],
    scope: Annotated[
        list[str] | None, typer.Option(help="What it may do; repeatable. Default: search and read collections.")
    ] = None,
    days: Annotated[int | None, typer.Option(min=1, help="Ends after so many days; for ever otherwise.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key and print it; it is shown this one time."""
    from hopnode.node_service.commands.connection.open_client import open_client

    body = {"name": name, "scopes": scope or ["search:read", "search:write", "collections:read"]}
    if days:
        body["expires_at"] = (datetime.now(UTC) + timedelta(days=days)).isoformat()
    with open_client(ctx.obj) as client:
        made = client.post("/v1/keys", body)
    _show(made, f"Revoke it with `hopnode keys revoke {made['id']}`.", as_json)


@app.command()
def rotate(
    ctx: typer.Context,
    key_id: Annotated[str, typer.Argument(help="Id of the key (`keys list`).")],
    grace_hours: Annotated[float, typer.Option(min=0, max=8760, help="How long the old key stays valid.")] = 24,
    as_json: JsonOption = False,
) -> None:
    """Make a key with the same name, scopes and end, and print it; the old one ends after the grace."""
    from hopnode.node_service.commands.connection.open_client import open_client

    with open_client(ctx.obj) as client:
        made = client.post(f"/v1/keys/{quote(key_id, safe='')}/rotate", {"grace_seconds": grace_hours * 3600})
    _show(made, f"The key {key_id} ends in {grace_hours:g} hours.", as_json)


@app.command()
def revoke(
    ctx: typer.Context,
    key_id: Annotated[str, typer.Argument(help="Id of the key (`keys list`).")],
    force: Annotated[
        bool, typer.Option("--force", help="Also where it is the last key with the scope `admin`.")
    ] = False,
) -> None:
    """Revoke a key; requests with it are refused from now on."""
    from hopnode.node_service.commands.connection.open_client import open_client

    with open_client(ctx.obj) as client:
        client.delete(f"/v1/keys/{quote(key_id, safe='')}{'?force=true' if force else ''}")
    typer.echo(f"Revoked the key {key_id}.")


def _show(made: dict[str, Any], more: str, as_json: bool) -> None:
    if as_json:
        display.print_json(made)
    else:
        typer.echo(made["token"])
        typer.echo(f"Keep it now: it is not stored. {more}", err=True)


def _state(revoked_at: object, expires_at: object) -> str:
    if revoked_at:
        return "revoked"
    return f"until {expires_at}" if expires_at else "valid"
