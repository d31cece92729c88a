"""The command `search`: asks, shows the steps as they happen, then the cited passages."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.text import Text

from hopnode.node_service.commands.terminal import display
from hopnode.node_service.commands.terminal.exits import CommandError, ExitCode
from hopnode.node_service.commands.terminal.options import JsonOption
from hopnode.node_service.commands.terminal.step_lines import Step, count, describe

if TYPE_CHECKING:
    from hopnode.node_service.commands.connection.client import NodeClient

COLLECTIONS_MOST = 10


@dataclass(frozen=True)
class Finished:
    """A search that has ended, the steps it took, and the seconds from asking to the end as this side saw them."""

    search: dict[str, Any]
    steps: tuple[Step, ...]
    seconds: float


def search(
    ctx: typer.Context,
    question: Annotated[str, typer.Argument(help="What you want to know.")],
    collection: Annotated[
        list[str] | None, typer.Option(help="Where to look; repeatable. Default: every collection of the workspace.")
    ] = None,
    mode: Annotated[
        Literal["auto", "one_shot", "agent"], typer.Option(help="One hybrid query, the agent, or the node's choice.")
    ] = "auto",
    profile: Annotated[
        Literal["auto", "generic", "context-1", "context-1-chat", "offline"],
        typer.Option(help="Who drives the agent: a kind of model behind the chat endpoint, or none."),
    ] = "auto",
    effort: Annotated[
        Literal["low", "medium", "high"], typer.Option(help="1, 2 or 4 runs of the agent side by side, fused.")
    ] = "low",
    top_k: Annotated[int, typer.Option(min=1, max=50, help="Most passages to return.")] = 10,
    answer: Annotated[
        bool, typer.Option("--answer", help="Have an answer written from the passages, with citations.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Ask a question; returns ranked passages with exact citations."""
    from hopnode.node_service.commands.connection.open_client import open_client

    with open_client(ctx.obj) as client:
        names = collection or collections_of(client)
        body = {"query": question, "collections": names, "mode": mode, "profile": profile}
        body |= {"effort": effort, "top_k": top_k, "answer": answer}
        finished = run(client, body, show_steps=not as_json)
    if as_json:
        display.print_json(finished.search)
    else:
        _report(display.output(), finished)
    raise typer.Exit(ExitCode.OK if finished.search["status"] == "succeeded" else ExitCode.FAILED)


def run(client: "NodeClient", body: dict[str, Any], *, show_steps: bool) -> Finished:
    """Asks, waits for the end and returns what came; leaving early (Ctrl-C) cancels the search on the node."""
    started = time.perf_counter()
    made = client.post("/v1/searches", {**body, "join": False})  # Ctrl-C ends it, so nobody may share it
    try:
        watched = _watch(client, made["id"], show_steps)
    except BaseException:
        _cancel(client, made["id"])
        raise
    seconds = time.perf_counter() - started
    return Finished(client.get(f"/v1/searches/{made['id']}"), watched, seconds)


def collections_of(client: "NodeClient") -> list[str]:
    """The names of all collections. Raises CommandError where there is none, or more than one search may ask."""
    names = [one["name"] for one in client.pages("/v1/collections")]
    if not names:
        raise CommandError("There is no collection to search.", "Fill one with `hopnode add PATH…`.", ExitCode.REFUSED)
    if len(names) > COLLECTIONS_MOST:
        raise CommandError(
            f"The workspace has {len(names)} collections, and one search may ask {COLLECTIONS_MOST}.",
            "Name them with --collection.",
            ExitCode.USAGE,
        )
    return names


def _watch(client: "NodeClient", search_id: str, show_steps: bool) -> tuple[Step, ...]:
    console, watched = display.notices(), list[Step]()
    with console.status("searching …"):
        for event in client.follow(search_id):
            step = Step(event.kind, event.data)
            watched.append(step)
            if show_steps and (line := describe(step)):
                console.print(Text(display.plain(f"  {line}"), "dim"), no_wrap=True, overflow="ellipsis")
    return tuple(watched)


def _cancel(client: "NodeClient", search_id: str) -> None:
    try:
        client.post(f"/v1/searches/{search_id}/cancel")
    except CommandError:
        return  # it ended meanwhile, or the node is gone: either way nothing is left to cancel


def _report(console: Console, finished: Finished) -> None:
    found, result = finished.search, finished.search.get("result")
    if found["status"] != "succeeded" or not result:
        error = found.get("error") or {}
        console.print(Text(f"search {found['id']} {found['status']}: {error.get('message', 'no reason given')}", "red"))
        return
    if written := result.get("answer"):
        display.answer(console, written)
    for passage in result["passages"]:
        display.passage(console, passage)
    if not result["passages"]:
        console.print("Nothing was found.")
    facts = (
        count(len(result["passages"]), "passage"),
        result["stop_reason"],
        display.duration(finished.seconds),
        found["id"],
    )
    console.print(Text(" · ".join(facts), "dim"))
    if result["degraded"]:
        console.print(Text(f"degraded: {', '.join(result['degraded'])}", "yellow"))
