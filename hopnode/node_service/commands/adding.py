"""The command `add`: files and folders of this machine into a collection, with a bar, and a reason for each failure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hopnode.node_service.commands.collections import ensure
from hopnode.node_service.commands.files import FilesToAdd, FoundFile, select
from hopnode.node_service.commands.terminal import display
from hopnode.node_service.commands.terminal.exits import CommandError, ExitCode
from hopnode.node_service.commands.terminal.options import JsonOption
from hopnode.node_service.commands.terminal.progress import in_parallel

if TYPE_CHECKING:
    from hopnode.node_service.commands.connection.client import NodeClient

SHOWN_FAILURES = 20


@dataclass(frozen=True)
class Added:
    """What became of one file: `stored`, `unchanged` or `failed`; then `reason` is a slug and `message` a sentence."""

    file: FoundFile
    status: str
    reason: str = ""
    message: str = ""


def add(
    ctx: typer.Context,
    paths: Annotated[list[Path], typer.Argument(help="Files and folders; folders are read with all that is in them.")],
    collection: Annotated[str, typer.Option(help="Collection to add to; made if it does not exist.")] = "default",
    exclude: Annotated[
        list[str] | None, typer.Option(help="Leave out files like this, e.g. `*.log`; repeatable.")
    ] = None,
    prefix: Annotated[str, typer.Option(help="Put this in front of every key, e.g. `handbook/`.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Add files and folders. A key is the path within the given folder; adding a key again replaces its document."""
    from hopnode.node_service.commands.connection.open_client import open_client

    selection = select(paths, exclude=exclude or (), prefix=prefix)
    if not selection.files:
        raise CommandError(
            f"There is nothing to add: {len(selection.skipped)} files were left out ({_reasons(selection)}).",
            "Name a file by itself to add it whatever it is; docs/cli.md says what is left out of folders.",
        )
    with open_client(ctx.obj) as client:
        ensure(client, collection)
        outcomes = upload_all(client, collection, selection.files)
    if as_json:
        display.print_json(_as_json(collection, selection, outcomes))
    else:
        _report(collection, selection, outcomes)
    raise typer.Exit(_exit_code(outcomes))


def upload_all(client: "NodeClient", collection: str, files: Sequence[FoundFile]) -> list[Added]:
    """Uploads every file, some at a time; the outcomes in the order of `files`. A failed file is data."""
    return in_parallel(lambda file: _upload(client, collection, file), files, f"Adding to {collection}")


def _upload(client: "NodeClient", collection: str, file: FoundFile) -> Added:
    from hopnode.node_service.commands.connection.client import NodeRefused, NodeUnreachable

    try:
        with file.path.open("rb") as content:
            answer = client.upload(collection, file.key, content, file.media_type)
    except OSError as error:
        return Added(file, "failed", "unreadable", error.strerror or str(error))
    except NodeRefused as refused:
        if refused.exit_code == ExitCode.REFUSED:
            raise
        return Added(file, "failed", refused.reason, str(refused))
    except NodeUnreachable:
        client.get("/healthz")  # a node that is gone ends the command; one that hung up on this file does not
        return Added(file, "failed", "connection-lost", "The connection broke off while the file was sent.")
    return Added(file, str(answer["status"]))


def _exit_code(outcomes: Sequence[Added]) -> ExitCode:
    failed = sum(outcome.status == "failed" for outcome in outcomes)
    if not failed:
        return ExitCode.OK
    return ExitCode.FAILED if failed == len(outcomes) else ExitCode.PARTLY_FAILED


def _report(collection: str, selection: FilesToAdd, outcomes: Sequence[Added]) -> None:
    console = display.output()
    counts = Counter(outcome.status for outcome in outcomes)
    console.print(
        f"{collection}: {counts['stored']} stored, {counts['unchanged']} unchanged, {counts['failed']} failed"
    )
    if selection.skipped:
        console.print(f"left out: {len(selection.skipped)} files ({_reasons(selection)})", style="dim")
    failures = [outcome for outcome in outcomes if outcome.status == "failed"]
    for failure in failures[:SHOWN_FAILURES]:
        line = display.plain(f"  {failure.file.path}: {failure.message} ({failure.reason})")
        console.print(line, style="red", markup=False)
    if len(failures) > SHOWN_FAILURES:
        console.print(f"  … and {len(failures) - SHOWN_FAILURES} more; --json lists all")


def _reasons(selection: FilesToAdd) -> str:
    counts = Counter(skipped.reason for skipped in selection.skipped)
    return ", ".join(f"{count} {reason}" for reason, count in counts.most_common()) or "none below the given paths"


def _as_json(collection: str, selection: FilesToAdd, outcomes: Sequence[Added]) -> dict[str, Any]:
    return {
        "collection": collection,
        "documents": [
            {"key": outcome.file.key, "path": str(outcome.file.path), "status": outcome.status}
            | ({"reason": outcome.reason, "message": outcome.message} if outcome.status == "failed" else {})
            for outcome in outcomes
        ],
        "skipped": [{"path": str(skipped.path), "reason": skipped.reason} for skipped in selection.skipped],
    }
