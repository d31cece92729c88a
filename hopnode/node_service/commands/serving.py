"""The commands that run a node: `serve`, `api`, `worker` and `migrate`. Each ends cleanly on Ctrl-C and on SIGTERM."""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.text import Text

from hopnode.node_service.commands.terminal import display
from hopnode.node_service.commands.terminal.exits import CommandError, ExitCode
from hopnode.node_service.commands.terminal.invocation import Invocation, load

WATCH_SECONDS = 0.5

HostOption = Annotated[str | None, typer.Option(help="Address to listen on; HOPNODE_HOST otherwise.")]
PortOption = Annotated[int | None, typer.Option(help="Port to listen on, 0 for a free one; HOPNODE_PORT otherwise.")]


def serve(ctx: typer.Context, host: HostOption = None, port: PortOption = None) -> None:
    """Run the whole node in this process: API, job threads and maintenance. Needs no Redis and no other service."""
    _host(ctx.obj, host, port, "embedded")


def api(ctx: typer.Context, host: HostOption = None, port: PortOption = None) -> None:
    """Run the HTTP API of a server-mode node; jobs run in `hopnode worker` processes woken through Redis."""
    invocation: Invocation = ctx.obj
    _need_redis(invocation)
    _host(invocation, host, port, "server")


def worker(
    ctx: typer.Context,
    role: Annotated[Literal["agent", "sync"], typer.Option(help="Which jobs: `agent` (searches) or `sync` (sources).")],
) -> None:
    """Run a supervised Celery worker of a server-mode node."""
    invocation: Invocation = ctx.obj
    _need_redis(invocation)

    from hopnode.worker import logs
    from hopnode.worker.queue.supervised_worker import run_supervised_worker

    logs.configure(invocation.settings.log_level, invocation.settings.log_format)
    code = run_supervised_worker(invocation.settings, role)
    raise typer.Exit(ExitCode.OK if code == 0 else ExitCode.FAILED)


def migrate(ctx: typer.Context) -> None:
    """Bring the database to this version's tables; safe to run twice and while another process does the same."""
    from hopnode.worker.store.database import Database

    invocation: Invocation = ctx.obj
    invocation.quiet_logs()
    database = Database(invocation.settings.sql_url)
    try:
        database.ping()
        already = database.at_head()
        database.migrate()
    finally:
        database.close()
    typer.echo("The database was up to date." if already else "The database is up to date now.")


def _host(invocation: Invocation, host: str | None, port: int | None, mode: Literal["embedded", "server"]) -> None:
    from hopnode.node_service.commands.connection import hosting, node_file
    from hopnode.node_service.settings import ServiceSettings
    from hopnode.worker import garbage_collection, logs

    settings = invocation.settings
    logs.configure("debug" if invocation.debug else settings.log_level, settings.log_format)
    given = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    service = load(ServiceSettings, **given)
    with stop_signals() as stop:
        node = hosting.HostedNode.start(settings, service, mode)
        try:
            garbage_collection.settle()
            node_file.write(settings, node.url)
            _banner(display.output(), node.url, str(settings.key_file), mode)
            while node.alive and not stop.wait(WATCH_SECONDS):
                pass
            crashed = not node.alive
        finally:
            node_file.remove(settings)
            node.stop()
    if crashed:
        raise CommandError("The HTTP server ended by itself.", "Read the log above; `hopnode --debug serve` says more.")
    typer.echo("Stopped.")


def _banner(console: Console, url: str, key_file: str, mode: str) -> None:
    where = (
        "one process, no other service" if mode == "embedded" else "server mode: start `hopnode worker --role …` too"
    )
    console.print(
        Text.assemble(("Hopnode answers at ", ""), (url, "bold cyan"), (f"  ({where})", "dim")), soft_wrap=True
    )
    for name, value in (
        ("API docs", f"{url}/docs"),
        ("key", f"{key_file} (other commands on this machine find it by themselves)"),
        ("add", f"{display.program()} add README.md docs/"),
        ("search", f'{display.program()} search "…"'),
        ("stop", "Ctrl-C"),
    ):
        console.print(Text.assemble((f"  {name:<9}", "bold"), value), soft_wrap=True)


@contextmanager
def stop_signals() -> Generator[threading.Event]:
    """An event that SIGINT and SIGTERM set; a second one ends the process at once."""
    stop = threading.Event()

    def note(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _need_redis(invocation: Invocation) -> None:
    if not invocation.settings.redis_url:
        raise CommandError(
            "Server mode needs Redis for its wake-ups, and HOPNODE_REDIS_URL is not set.",
            "Set it (redis://host:6379/0), or run everything in one process with `hopnode serve`.",
            ExitCode.USAGE,
        )
