"""The command `sync`: makes or finds the source, starts a sync and shows its counts until it ends."""

import time
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlsplit

import typer

from hopnode.node_service.commands.collections import ensure, path_of
from hopnode.node_service.commands.terminal import display
from hopnode.node_service.commands.terminal.exits import CommandError, ExitCode
from hopnode.node_service.commands.terminal.options import JsonOption

if TYPE_CHECKING:
    from hopnode.node_service.commands.connection.client import NodeClient

POLL_SECONDS = 0.5
COUNTS = ("listed", "added", "changed", "unchanged", "deleted", "skipped", "failed")


def sync(
    ctx: typer.Context,
    url: Annotated[
        str | None, typer.Argument(help="Start page of a website; its source is made when it is new.")
    ] = None,
    collection: Annotated[str, typer.Option(help="Collection of a website; made if it does not exist.")] = "default",
    source: Annotated[str | None, typer.Option(help="Id of a source to sync instead.")] = None,
    max_pages: Annotated[int | None, typer.Option(min=1, help="Most pages of a new website source.")] = None,
    list_sources: Annotated[bool, typer.Option("--list", help="List the sources and stop.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Sync a website into a collection, or any source by its id."""
    from hopnode.node_service.commands.connection.open_client import open_client

    if sum((url is not None, source is not None, list_sources)) != 1:
        raise CommandError(
            "Say what to sync: a URL, or --source ID, or --list.", "Example: hopnode sync https://…", ExitCode.USAGE
        )
    with open_client(ctx.obj) as client:
        if list_sources:
            _show_sources(sources(client), as_json)
            return
        source_id = source or _website(client, collection, url or "", max_pages)
        started = client.post(f"/v1/sources/{quote(source_id, safe='')}/syncs")
        ended = _watch(client, started)
    if as_json:
        display.print_json(ended)
    else:
        _report(ended)
    raise typer.Exit(_exit_code(ended))


def sources(client: "NodeClient") -> list[dict[str, Any]]:
    """All sources of the workspace, collection by collection."""
    return [
        source
        for collection in client.pages("/v1/collections")
        for source in client.pages(f"{path_of(collection['name'])}/sources")
    ]


def _website(client: "NodeClient", collection: str, url: str, max_pages: int | None) -> str:
    """The id of the website source of `url` in `collection`, made when there is none."""
    ensure(client, collection)
    for known in client.pages(f"{path_of(collection)}/sources"):
        if known["kind"] == "website" and known["config"].get("start_url") == url:
            return known["id"]
    config = {"start_url": url} | ({"max_pages": max_pages} if max_pages else {})
    name = f"{collection}: {urlsplit(url).netloc}{urlsplit(url).path}".rstrip("/")[:128]
    body = {"kind": "website", "name": name, "config": config}
    return client.post(f"{path_of(collection)}/sources", body)["id"]


def _watch(client: "NodeClient", sync: dict[str, Any]) -> dict[str, Any]:
    """Asks for the sync's state until it ends, with its counts in one live line on a terminal."""
    from hopnode.node_service.commands.connection.client import TERMINAL

    console = display.notices()
    with console.status("sync queued") as status:
        while sync["status"] not in TERMINAL:
            time.sleep(POLL_SECONDS)
            sync = client.get(f"/v1/syncs/{sync['id']}")
            status.update(f"sync {sync['status']}: {_counts(sync)}")
    return sync


def _counts(sync: dict[str, Any]) -> str:
    counts = sync["counts"]
    return ", ".join(f"{counts[name]} {name}" for name in COUNTS if counts.get(name)) or "nothing yet"


def _report(sync: dict[str, Any]) -> None:
    console = display.output()
    console.print(f"sync {sync['id']} {sync['status']}: {_counts(sync)}", markup=False)
    if sync.get("note"):
        console.print(f"note: {sync['note']}", markup=False)
    if sync.get("error"):
        console.print(
            display.plain(f"error: {sync['error'].get('message') or sync['error']}"), style="red", markup=False
        )


def _exit_code(sync: dict[str, Any]) -> ExitCode:
    if sync["status"] != "succeeded":
        return ExitCode.FAILED
    return ExitCode.PARTLY_FAILED if sync["counts"].get("failed") else ExitCode.OK


def _show_sources(found: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        display.print_json(found)
        return
    rows = [(one["id"], one["kind"], one["collection"], one["name"]) for one in found]
    display.output().print(display.table(("id", "kind", "collection", "name"), rows))
