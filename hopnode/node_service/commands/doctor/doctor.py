"""The command `doctor`: runs every check and prints what is configured, reachable, missing, and how to mend it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer
from rich.table import Table
from rich.text import Text

from hopnode.node_service.commands.terminal import display
from hopnode.node_service.commands.terminal.exits import CommandError, ExitCode
from hopnode.node_service.commands.terminal.invocation import Invocation
from hopnode.node_service.commands.terminal.options import JsonOption

if TYPE_CHECKING:
    from hopnode.node_service.commands.doctor.checks import Finding

_MARKS = {
    "ok": ("ok", "green"),
    "off": ("off", "dim"),
    "warning": ("warning", "yellow"),
    "failed": ("FAILED", "bold red"),
}


def doctor(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """Check the set-up: what is configured, reachable, missing, and how to mend it. Exit code 1 when a check fails."""
    from hopnode.node_service.commands.doctor import checks

    invocation: Invocation = ctx.obj
    findings: dict[str, checks.Finding] = {}
    try:
        context = checks.CheckedSettings(invocation.settings, invocation.service)
        invocation.quiet_logs()
        findings["settings"] = checks.Finding("ok", "every HOPNODE_* setting is valid")
        findings |= {name: checks.run(check, context) for name, check in checks.CHECKS.items()}
    except CommandError as error:
        findings["settings"] = checks.Finding("failed", str(error), error.mend)
    failed = [name for name, finding in findings.items() if finding.state == "failed"]
    if as_json:
        display.print_json(as_record(findings))
    else:
        display.output().print(as_table(findings))
    raise typer.Exit(ExitCode.FAILED if failed else ExitCode.OK)


def as_record(findings: "Mapping[str, Finding]") -> dict[str, object]:
    """Findings for scripts."""
    checked = [
        {"name": name, "state": one.state, "message": one.message, "mend": one.mend} for name, one in findings.items()
    ]
    return {"ok": all(one.state != "failed" for one in findings.values()), "checks": checked}


def as_table(findings: "Mapping[str, Finding]") -> Table:
    """Findings for people."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    for name, finding in findings.items():
        mark, style = _MARKS[finding.state]
        message = Text(finding.message)
        if finding.mend:
            message.append("\nmend: ", "bold").append(finding.mend, "")
        grid.add_row(Text(mark, style), Text(name, "bold"), message)
    return grid
