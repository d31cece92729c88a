"""The checks of `hopnode doctor`, one function each: what is configured, whether it answers, and how to mend it.

A check changes nothing that a start of the node would not change; it never makes a database or a data folder.
"""

import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import SecretStr

from hopnode.node_service.commands.connection import node_file
from hopnode.node_service.settings import ServiceSettings
from hopnode.worker.errors import BrokerUnavailable, HopnodeError, StoreUnavailable
from hopnode.worker.settings import WorkerSettings

PROBE_SECONDS = 3.0
LEAST_FREE_BYTES = 200_000_000
SCARCE_FREE_BYTES = 2_000_000_000

State = Literal["ok", "off", "warning", "failed"]


@dataclass(frozen=True)
class Finding:
    """What one check saw. `off` means not configured, which is fine; `mend` is empty where nothing needs mending."""

    state: State
    message: str
    mend: str = ""


@dataclass(frozen=True)
class CheckedSettings:
    """What the checks look at."""

    settings: WorkerSettings
    service: ServiceSettings


def python(_: CheckedSettings) -> Finding:
    """Which Python runs this."""
    return Finding("ok", f"Python {platform.python_version()} at {sys.executable}")


def data_folder(context: CheckedSettings) -> Finding:
    """The data folder exists and can be written, or can be made."""
    root = context.settings.root
    if not root.exists():
        above = next(folder for folder in root.parents if folder.exists())
        if os.access(above, os.W_OK):
            return Finding("ok", f"{root} will be made at the first start")
        return Finding("failed", f"{root} cannot be made: {above} is not writable", "Set HOPNODE_DATA_DIR elsewhere.")
    try:
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as error:
        return Finding(
            "failed",
            f"{root} cannot be written ({error.strerror})",
            f"Give this user the folder (chown/chmod {root}), or set HOPNODE_DATA_DIR to another one.",
        )
    return Finding("ok", f"{root} is writable")


def owner(context: CheckedSettings) -> Finding:
    """Who runs the node of the data folder."""
    found = node_file.read(context.settings)
    if not found:
        return Finding("off", "no node runs on this data folder; `hopnode serve` starts one")
    if not node_file.is_alive(found.pid):
        return Finding("ok", f"a node that was not stopped cleanly (process {found.pid}) left its address; harmless")
    if node_file.answers(found.url):
        return Finding("ok", f"process {found.pid} serves {found.url}")
    return Finding(
        "failed",
        f"process {found.pid} owns the data folder and does not answer at {found.url}",
        f"Look at its log; end it with `kill {found.pid}` and start `hopnode serve` again.",
    )


def key(context: CheckedSettings) -> Finding:
    """A key for the command line, readable by its owner only."""
    if context.service.api_key:
        return Finding("ok", "HOPNODE_API_KEY is set")
    path = context.settings.key_file
    if not path.exists():
        return Finding("off", "no key yet; the first start makes one in the data folder")
    if not os.access(path, os.R_OK):
        return Finding(
            "failed", f"{path} cannot be read by this user", "Run as the node's user or set HOPNODE_API_KEY."
        )
    if path.stat().st_mode & 0o077:
        return Finding("warning", f"{path} can be read by other users", f"chmod 600 {path}")
    return Finding("ok", f"{path} (mode 0600)")


def node(context: CheckedSettings) -> Finding:
    """The node of HOPNODE_URL answers and takes the key."""
    from hopnode.node_service.commands.connection.client import NodeClient
    from hopnode.node_service.commands.connection.open_client import key_for
    from hopnode.node_service.commands.terminal.exits import CommandError

    url = context.service.url
    if not url:
        return Finding("off", "HOPNODE_URL is not set; commands use the node of the data folder")
    try:
        api_key = key_for(url, context.settings, context.service)
        with NodeClient(url, api_key, timeout_seconds=PROBE_SECONDS) as client:
            who = client.get("/v1/whoami")
    except CommandError as error:
        return Finding("failed", str(error), error.mend)
    return Finding("ok", f"{url} answers (version {who['version']}, workspace {who['workspace']['name']})")


def database(context: CheckedSettings) -> Finding:
    """The SQL database answers and has this version's tables."""
    from hopnode.worker.store.database import Database

    settings = context.settings
    if not settings.database_url and not (settings.root / "hopnode.db").exists():
        return Finding("ok", "SQLite in the data folder, made at the first start")
    base = Database(settings.sql_url)
    try:
        base.ping()
        if base.at_head():
            return Finding("ok", f"{base.dialect} answers, tables up to date")
        return Finding("failed", f"{base.dialect} answers, its tables are of another version", "Run `hopnode migrate`.")
    except StoreUnavailable as error:
        return Finding("failed", str(error), "Start the database, or correct HOPNODE_DATABASE_URL.")
    finally:
        base.close()


def redis(context: CheckedSettings) -> Finding:
    """Redis answers, in server mode."""
    from hopnode.worker.queue.dispatch import ping_broker

    if not context.settings.redis_url:
        return Finding("off", "HOPNODE_REDIS_URL is not set: one process, no Redis needed")
    try:
        ping_broker(context.settings, PROBE_SECONDS)
    except BrokerUnavailable as error:
        return Finding("failed", str(error), "Start Redis 6.2 or newer, or correct HOPNODE_REDIS_URL.")
    return Finding("ok", "Redis answers")


def chroma(context: CheckedSettings) -> Finding:
    """The Chroma server answers, where one is configured."""
    import httpx

    url = context.settings.chroma_url
    if not url:
        where = "`hopnode api` runs one for this machine" if context.settings.redis_url else "it runs inside the node"
        return Finding("off", f"HOPNODE_CHROMA_URL is not set: {where}")
    mend = "Start it (`chroma run --path … --port 8000`), or correct HOPNODE_CHROMA_URL."
    try:
        answer = httpx.get(f"{url.rstrip('/')}/api/v2/heartbeat", timeout=PROBE_SECONDS, trust_env=False)
        answer.raise_for_status()
    except httpx.HTTPError as error:
        return Finding("failed", f"Chroma does not answer at {url} ({type(error).__name__})", mend)
    return Finding("ok", f"Chroma answers at {url}")


def embedder(context: CheckedSettings) -> Finding:
    """The embedder of new collections loads and gives vectors."""
    from hopnode.worker.inference.embedding.embedder import Embedders

    settings = context.settings
    embedders = Embedders(
        settings.embedder,
        url=settings.embedder_url,
        model=settings.embedder_model,
        api_key=settings.embedder_api_key,
    )
    names = ("minilm", "use") if settings.embedder == "auto" else (embedders.choose([]),)
    started = time.perf_counter()
    try:
        widths = [f"{name} ({embedders.get(name).embed_query('Is this thing on?').shape[0]})" for name in names]
    finally:
        embedders.close()
    seconds = time.perf_counter() - started
    return Finding("ok", f"{settings.embedder}: {', '.join(widths)} loaded and tried in {seconds:.1f} s")


def chat(context: CheckedSettings) -> Finding:
    """The chat endpoint answers and offers the model, where one is configured."""
    settings = context.settings
    if not settings.chat_url:
        return Finding("off", "HOPNODE_CHAT_URL is not set: the agent uses the built-in offline policy")
    return _offer(settings.chat_url, settings.chat_api_key, settings.chat_model or "", "HOPNODE_CHAT")


def answers(context: CheckedSettings) -> Finding:
    """The endpoint that writes answers answers and offers its model, where one is configured."""
    endpoint = context.settings.answer_endpoint
    if endpoint is None:
        return Finding("off", "HOPNODE_ANSWER_MODEL is not set: searches return passages, and no answers are written")
    return _offer(*endpoint, context.settings.answer_model or "", "HOPNODE_ANSWER")


def _offer(url: str, key: SecretStr | None, model: str, names: str) -> Finding:
    """What a model server says that it serves; `names` is the prefix of its settings."""
    import httpx

    headers = {"Authorization": f"Bearer {key.get_secret_value()}"} if key else {}
    try:
        answer = httpx.get(f"{url.rstrip('/')}/models", headers=headers, timeout=PROBE_SECONDS, trust_env=False)
        answer.raise_for_status()
        offered = [str(one["id"]) for one in answer.json()["data"]]
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        mend = f"Check {names}_API_KEY." if status in (401, 403) else f"Check {names}_URL (it ends in /v1)."
        return Finding("failed", f"{url} answers with status {status}", mend)
    except httpx.HTTPError as error:
        mend = f"Start the model server, correct {names}_URL, or unset it with {names}_MODEL to do without."
        return Finding("failed", f"nothing answers at {url} ({type(error).__name__})", mend)
    except (ValueError, KeyError, TypeError):
        return Finding("warning", f"{url} answers, and does not list its models")
    if model in offered:
        return Finding("ok", f"{url} offers {model}")
    return Finding(
        "warning",
        f"{url} answers, and does not list {model}",
        f"Set {names}_MODEL to one of: {', '.join(offered[:5]) or 'nothing is listed'}.",
    )


def git(_: CheckedSettings) -> Finding:
    """git, which repository sources need."""
    if path := shutil.which("git"):
        return Finding("ok", f"git at {path}")
    return Finding("warning", "git is not installed", "Install it (apt install git) before you add GitHub sources.")


def disk(context: CheckedSettings) -> Finding:
    """Room on the disk of the data folder."""
    folder = next(place for place in (context.settings.root, *context.settings.root.parents) if Path(place).exists())
    free = shutil.disk_usage(folder).free
    message = f"{free / 1e9:.1f} GB free at {folder}"
    mend = "Make room, or move the data folder with HOPNODE_DATA_DIR."
    if free < LEAST_FREE_BYTES:
        return Finding("failed", message, mend)
    return Finding("warning", message, mend) if free < SCARCE_FREE_BYTES else Finding("ok", message)


CHECKS: Mapping[str, Callable[[CheckedSettings], Finding]] = {
    "python": python,
    "data folder": data_folder,
    "owner": owner,
    "key": key,
    "node": node,
    "database": database,
    "redis": redis,
    "chroma": chroma,
    "embedder": embedder,
    "chat model": chat,
    "answer model": answers,
    "git": git,
    "disk": disk,
}
"""Every check by the name it is printed under, in that order."""


def run(check: Callable[[CheckedSettings], Finding], context: CheckedSettings) -> Finding:
    """One check; whatever it raises becomes a failed finding."""
    from hopnode.node_service.commands.terminal.exits import mend_for

    try:
        return check(context)
    except HopnodeError as error:
        return Finding("failed", str(error), mend_for(error))
    except Exception as error:  # noqa: BLE001 - the boundary of one check: the others must still run
        mend = "Install Hopnode again in a new virtual environment; if that does not help, report this line."
        return Finding("failed", f"{type(error).__name__}: {error}", mend)
