"""The commands `model launch | check`: serves Context-1 on this machine's GPU, and tells whether a model server will do."""

import shlex
import shutil
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text

from hopnode.node_service.commands.terminal import display
from hopnode.node_service.commands.terminal.exits import CommandError, ExitCode
from hopnode.node_service.commands.terminal.invocation import Invocation
from hopnode.node_service.commands.terminal.options import JsonOption

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hopnode.node_service.commands.doctor.checks import Finding
    from hopnode.node_service.commands.model_server.checks import Target
    from hopnode.worker.inference.serving.gpus import Gpu
    from hopnode.worker.inference.serving.vllm import Launch
    from hopnode.worker.searches.agents import ModelProfile

app = typer.Typer(no_args_is_help=True, help="Serve Context-1 on a GPU, and check a model server.")
ProfileOption = Annotated[
    Literal["auto", "context-1", "context-1-chat", "generic"],
    typer.Option(help="How to talk to it; `auto`: the one that searches use (HOPNODE_PROFILE)."),
]


@app.command()
def launch(
    ctx: typer.Context,
    weights: Annotated[
        str, typer.Option(help="Name on Hugging Face, or a folder.", metavar="NAME")
    ] = "chromadb/context-1",
    name: Annotated[str, typer.Option(help="Name under which it is served.")] = "context-1",
    host: Annotated[str, typer.Option(help="Address to listen on; vLLM asks for no key there.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65_535, help="Port to listen on.")] = 8000,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs over which the weights are split.")] = 1,
    gpu_memory: Annotated[float, typer.Option(min=0.1, max=0.98, help="Share of each GPU's memory to take.")] = 0.9,
    kv_cache: Annotated[
        Literal["auto", "fp8"], typer.Option(help="`fp8`: half the memory for what searches hold.")
    ] = "auto",
    vllm: Annotated[str | None, typer.Option(help="vLLM's program; `vllm` on the PATH otherwise.")] = None,
    wait: Annotated[float, typer.Option(min=1, help="Seconds for loading, the download included.")] = 3600,
    gpu_check: Annotated[bool, typer.Option(help="Look at the GPUs first.")] = True,
    only_print: Annotated[bool, typer.Option("--print", help="Print the line and start nothing.")] = False,
    as_json: JsonOption = False,
    extra: Annotated[list[str] | None, typer.Argument(help="After `--`: more arguments for vLLM, as they are.")] = None,
) -> None:
    """Serve Context-1 with vLLM in the foreground: look whether it fits, start it, wait, try one turn. Ctrl-C ends it."""
    from hopnode.worker.inference.serving.gpus import list_gpus
    from hopnode.worker.inference.serving.vllm import Launch
    from hopnode.worker.settings import visible_gpus

    line = Launch(
        weights,
        name,
        host,
        port,
        gpus,
        gpu_memory,
        kv_cache,
        kernels_compiled=only_print or shutil.which("nvcc") is not None,
        extra=tuple(extra or ()),
    )
    found = list_gpus(visible_gpus()) if gpu_check else []
    if only_print:
        _print_line(line, found, as_json)
        return
    from hopnode.node_service.commands.model_server import vllm_process

    program = vllm_process.find_program(vllm)
    if gpu_check:
        vllm_process.need_gpus(found, line)
    vllm_process.need_port(line)
    _run(ctx.obj, line, program, wait, as_json)


@app.command()
def check(
    ctx: typer.Context,
    url: Annotated[str | None, typer.Option(help="Base address, ends in /v1; HOPNODE_CHAT_URL otherwise.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the model; HOPNODE_CHAT_MODEL otherwise.")] = None,
    profile: ProfileOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Check a model server up to one real turn of a search, and say what is wrong. Exit code 1 when a check fails."""
    invocation: Invocation = ctx.obj
    invocation.quiet_logs()
    from hopnode.node_service.commands.model_server.checks import examine

    target = _target(invocation, {"chat_url": url, "chat_model": name}, profile)
    findings = examine(target)
    _show(target, findings, as_json)
    failed = any(finding.state == "failed" for finding in findings.values())
    raise typer.Exit(ExitCode.FAILED if failed else ExitCode.OK)


def _target(invocation: Invocation, given: "Mapping[str, str | None]", profile: str) -> "Target":
    """The endpoint of the settings, or the one that was named instead."""
    from hopnode.node_service.commands.model_server.checks import Target
    from hopnode.node_service.commands.terminal.invocation import load
    from hopnode.worker.settings import WorkerSettings

    settings = load(WorkerSettings, **{name: value for name, value in given.items() if value})
    if not settings.chat_url:
        raise CommandError(
            "No model server is named: HOPNODE_CHAT_URL is not set.",
            "Set it and HOPNODE_CHAT_MODEL, or use `--url` and `--name`. `hopnode model launch` starts a server.",
            ExitCode.USAGE,
        )
    chosen = invocation.settings.profile if profile == "auto" else profile
    names: Mapping[str, ModelProfile] = {"context-1": "context-1", "context-1-chat": "context-1-chat"}
    return Target(settings, names.get(chosen, "generic"))


def _show(target: "Target", findings: "Mapping[str, Finding]", as_json: bool) -> None:
    from hopnode.node_service.commands.doctor import doctor

    if as_json:
        about = {"url": target.url, "model": target.name, "profile": target.profile}
        display.print_json({**about, **doctor.as_record(findings), "turn": target.turn or None})
        return
    display.output().print(f"{target.name} at {target.url}, profile {target.profile}", style="bold", soft_wrap=True)
    display.output().print(doctor.as_table(findings))


def _print_line(line: "Launch", gpus: "Sequence[Gpu]", as_json: bool) -> None:
    command = ["vllm", "serve", *line.arguments()]
    if as_json:
        display.print_json(
            {
                "command": command,
                "environment": line.environment(),
                "settings": line.settings(),
                "gpus": [_fitting(line, gpu) for gpu in gpus],
            }
        )
        return
    typer.echo(shlex.join([*(f"{name}={value}" for name, value in line.environment().items()), *command]))
    for gpu in gpus:
        typer.echo(f"{gpu.name}: {_memory(_fitting(line, gpu))}", err=True)
    typer.echo("Settings of the node that uses it:", err=True)
    for name, value in line.settings().items():
        typer.echo(f"  {name}={value}", err=True)


def _fitting(line: "Launch", gpu: "Gpu") -> dict[str, Any]:
    from hopnode.worker.inference.serving.vllm import fit, weights_gib

    weights = weights_gib(line.weights)
    fits = fit(gpu.total_gib, weights, line) if weights is not None and gpu.total_gib else None
    return {
        "name": gpu.name,
        "total_gib": round(gpu.total_gib, 1),
        "free_gib": round(gpu.free_gib, 1),
        "weights_gib": round(fits.weights_gib, 1) if fits else None,
        "searches": fits.searches if fits else None,
    }


def _memory(fitting: "Mapping[str, Any]") -> str:
    size = f"{fitting['total_gib']} GiB"
    if fitting["searches"] is None:
        return f"{size}; how much these weights take is not known"
    if not fitting["searches"]:
        return f"{size} do not suffice for {fitting['weights_gib']} GiB of weights and one search"
    return f"{size}: {fitting['weights_gib']} GiB of weights, and room for about {fitting['searches']} full windows"


def _run(invocation: Invocation, line: "Launch", program: "Sequence[str]", wait: float, as_json: bool) -> None:
    from hopnode.node_service.commands.model_server import vllm_process
    from hopnode.node_service.commands.model_server.checks import examine
    from hopnode.node_service.commands.serving import stop_signals

    invocation.quiet_logs()
    log = invocation.settings.root / "vllm.log"
    notices = display.notices()
    notices.print(f"vLLM starts; its log is {log}", soft_wrap=True)
    with stop_signals() as stop, vllm_process.ModelServer(program, line, log) as server:
        with notices.status("loading …") as status:

            def told(last: str) -> None:
                status.update(Text(display.plain(last)[:120], "dim"))

            if not server.wait_ready(wait, told, stop.wait):
                return
        settings = line.settings()
        given = {"chat_url": settings["HOPNODE_CHAT_URL"], "chat_model": line.served_name}
        chosen = invocation.settings.profile
        target = _target(invocation, given, chosen if chosen.startswith("context-1") else "context-1")
        _show(target, examine(target), as_json)
        if not as_json:
            _banner(settings)
        while server.alive and not stop.wait(vllm_process.POLL_SECONDS):
            pass
        if not server.alive:
            raise server.failure("vLLM ended by itself")
    typer.echo("Stopped.", err=True)


def _banner(settings: "Mapping[str, str]") -> None:
    console = display.output()
    console.print("Settings of the node that uses it:")
    for name, value in settings.items():
        console.print(f"  {name}={value}", soft_wrap=True)
    console.print("Stop it with Ctrl-C.")
