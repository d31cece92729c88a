"""`python -m hopnode.node_service.reference.settings_pages` writes the two pages of settings: docs/configuration.md, .env.example.

Reads the classes only: no environment variable and no value of this machine gets into the files.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import SecretStr
from pydantic.fields import FieldInfo

from hopnode.node_service.settings import ServiceSettings
from hopnode.worker.settings import WorkerSettings

PREFIX = "HOPNODE_"
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Where the node keeps what it knows": ("data_dir", "database_url", "redis_url", "chroma_url"),
    "Secrets of sources": ("secret_key", "secret_key_file"),
    "HTTP": ("host", "port", "max_body_bytes", "max_wait_seconds"),
    "Limits of one workspace": ("key_requests_per_minute", "workspace_requests_per_minute", "workspace_queue_limit"),
    "Command line": ("url", "api_key"),
    "Chat model": ("chat_url", "chat_model", "chat_api_key", "chat_timeout_seconds"),
    "Answers": (
        *("answer_model", "answer_url", "answer_api_key", "answer_timeout_seconds"),
        *("answer_tokens", "answer_passage_tokens"),
    ),
    "Context-1": ("profile", "prompt_file", "usage_limit", "usage_separators", "over_budget_message"),
    "Reranker": ("reranker", "reranker_url", "reranker_model", "reranker_api_key", "reranker_format"),
    "Embedder": ("embedder", "embedder_url", "embedder_model", "embedder_api_key"),
    "Searches, syncs and workers": (
        "agent_slots",
        "sync_slots",
        "workspace_job_limit",
        "search_deadline_seconds",
        "sync_time_limit_seconds",
        "lease_seconds",
        "poll_seconds",
        "shutdown_seconds",
        "job_retention_days",
    ),
    "Documents": (
        "max_document_bytes",
        "max_document_characters",
        "parse_timeout_seconds",
        "parse_memory_bytes",
    ),
    "Where the node may connect": (
        *("egress_allow_hosts", "egress_allow_cidrs"),
        *("webhook_allow_hosts", "webhook_allow_cidrs"),
    ),
    "Logs and traces": ("log_level", "log_format", "otlp_endpoint", "otlp_headers"),
}
"""Every setting under the heading where people look for it; both files are written in this order."""

_OPENING = """\
# Settings

<!-- Written by `make settings` from hopnode/worker/settings.py and hopnode/node_service/settings.py: change those. -->

Every setting is an environment variable, or a line of a file `.env` in the folder that the command is started in. The
environment goes before the file, and an empty text is as good as none. `.env.example` lists them all. All processes of a
node need the same ones. A wrong value stops a command at its start, with exit code 2 and a message that names the setting.
`hopnode doctor` shows what is configured and whether it answers.

- `HOPNODE_EMBEDDER=http` needs `HOPNODE_EMBEDDER_URL` and `HOPNODE_EMBEDDER_MODEL`.
- `HOPNODE_CHAT_URL` needs `HOPNODE_CHAT_MODEL`.
- `HOPNODE_ANSWER_MODEL` needs `HOPNODE_ANSWER_URL`, or `HOPNODE_CHAT_URL` where that model is served too.
- `HOPNODE_RERANKER` needs `HOPNODE_RERANKER_URL`, and `HOPNODE_RERANKER_MODEL` unless it is `tei`.
"""
_ENV_OPENING = """\
# Settings of Hopnode with their defaults; copy this file to `.env` and take the `#` from what you change.
# Written by `make settings`; docs/configuration.md is the same as a page.
"""
_BOUNDS = (("gt", ">"), ("ge", "≥"), ("lt", "<"), ("le", "≤"))
_KINDS: Mapping[Any, str] = {
    int: "whole number",
    bool: "`true`, `false`",
    float: "number",
    Path: "path",
    SecretStr: "secret text",
}


def fields() -> dict[str, FieldInfo]:
    """Every setting of the node by its name in the code."""
    return {**WorkerSettings.model_fields, **ServiceSettings.model_fields}


def page() -> str:
    """The page `docs/configuration.md`."""
    known, parts = fields(), [_OPENING]
    for heading, names in SECTIONS.items():
        rows = (_row(name, known[name]) for name in names)
        parts.append(
            "\n".join((f"## {heading}", "", "| setting | default | values | meaning |", "|---|---|---|---|", *rows, ""))
        )
    return "\n".join(parts)


def example() -> str:
    """The file `.env.example`: every setting as a comment with its default."""
    known = fields()
    return "\n".join((_ENV_OPENING, *(line for names in SECTIONS.values() for line in _example(names, known))))


def _example(names: tuple[str, ...], known: Mapping[str, FieldInfo]) -> Iterator[str]:
    for name in names:
        yield f"# {known[name].description} ({values(known[name])})"
        yield f"# {PREFIX}{name.upper()}={default(known[name])}"
    yield ""


def _row(name: str, field: FieldInfo) -> str:
    shown = f"`{default(field)}`" if default(field) else ""
    return f"| `{PREFIX}{name.upper()}` | {shown} | {values(field)} | {field.description} |"


def default(field: FieldInfo) -> str:
    """The default as it is written into the environment; empty for an unset one."""
    value = field.get_default(call_default_factory=True, validated_data={})
    text = "" if value is None or value == [] else str(value)
    return text.lower() if isinstance(value, bool) else text


def values(field: FieldInfo) -> str:
    """What a setting may hold, in words: its kind and bounds, or the words to choose from."""
    kinds = [kind for kind in get_args(field.annotation) if kind is not type(None)] or [field.annotation]
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{word}`" for word in get_args(field.annotation))
    if get_origin(field.annotation) is list:
        return "list, with commas"
    bounds = [f"{sign} {bound:,}" for name, sign in _BOUNDS if (bound := _bound(field, name)) is not None]
    return " ".join((_KINDS.get(kinds[0], "text"), *bounds[:1], *(f"and {bound}" for bound in bounds[1:])))


def _bound(field: FieldInfo, name: str) -> Any:
    return next((found for rule in field.metadata if (found := getattr(rule, name, None)) is not None), None)


FILES: Mapping[str, Callable[[], str]] = {"docs/configuration.md": page, ".env.example": example}
"""What is written where, seen from the root of the repository."""


if __name__ == "__main__":
    for place, content in FILES.items():
        Path(sys.argv[1] if len(sys.argv) > 1 else ".", place).write_text(content(), encoding="utf-8")
