"""The command `doctor`: runs every check and prints what is configured, reachable, missing, and how to mend it."""

import typer
from rich.text import Text

from node_service.commands import display
from node_service.commands.exits import CommandError, ExitCode
from node_service.commands.invocation import Invocation
from node_service.commands.options import JsonOption

_MARKS = {
    "ok": ("ok", "green"),
    "off": ("off", "dim"),
    "warning": ("warning", "yellow"),
    "failed": ("FAILED", "bold red"),
}


def doctor(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """Check the set-up: what is configured, reachable, missing, and how to mend it. Exit code 1 when a check fails."""
    from node_service.commands import checks

    invocation: Invocation = ctx.obj
    findings: dict[str, checks.Finding] = {}
    try:
        context = checks.Context(invocation.settings, invocation.service)
        invocation.quiet_logs()
        findings["settings"] = checks.Finding("ok", "every HOPNODE_* setting is valid")
        findings |= {name: checks.run(check, context) for name, check in checks.CHECKS.items()}
    except CommandError as error:
        findings["settings"] = checks.Finding("failed", str(error), error.mend)
    failed = [name for name, finding in findings.items() if finding.state == "failed"]
    if as_json:
        display.print_json(
            {
                "ok": not failed,
                "checks": [
                    {"name": name, "state": one.state, "message": one.message, "mend": one.mend}
                    for name, one in findings.items()
                ],
            }
        )
    else:
        for name, one in findings.items():
            _show(name, one.state, one.message, one.mend)
    raise typer.Exit(ExitCode.FAILED if failed else ExitCode.OK)


def _show(name: str, state: str, message: str, mend: str) -> None:
    console = display.output()
    mark, style = _MARKS[state]
    console.print(Text.assemble((f"{mark:<8}", style), (f"{name:<12}", "bold"), message))
    if mend:
        console.print(Text.assemble(" " * 20, ("mend: ", "bold"), mend))
