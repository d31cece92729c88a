"""Settings of the working half, read once from `HOPNODE_*` environment variables; refuses to start in a bad state."""

import os
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AliasChoices, Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from hopnode.connectors.egress import WEBHOOK_SETTINGS, EgressPolicy

CommaList = Annotated[list[str], NoDecode]

SUPERVISED = "HOPNODE_SUPERVISED"
"""Set by a supervisor in the environment of its child, never by people: the child's standard input ends with the supervisor."""


def is_supervised() -> bool:
    """Whether a supervisor started this process."""
    return bool(os.environ.get(SUPERVISED))


def visible_gpus() -> str | None:
    """`CUDA_VISIBLE_DEVICES`, which CUDA programs obey: numbers or ids with commas between them. Returns None where all are
    seen."""
    return os.environ.get("CUDA_VISIBLE_DEVICES")


class WorkerSettings(BaseSettings):
    """All that store, corpus, inference, harness and jobs need to know of their surroundings."""

    model_config = SettingsConfigDict(
        env_prefix="HOPNODE_",
        env_file=".env",
        env_ignore_empty=True,
        extra="ignore",
        allow_inf_nan=False,
        populate_by_name=True,
    )

    data_dir: Path = Field(
        default=Path("~/.hopnode"),
        description="Folder for the text stores, the embedded vector index, the default database and the first key.",
    )
    database_url: str | None = Field(
        default=None,
        description="SQLAlchemy URL; `postgresql+psycopg://…` for server mode. Default: SQLite in the data folder.",
    )
    secret_key: SecretStr | None = Field(
        default=None,
        description="Keys that seal the secrets of sources: 32 random bytes in base64 (`openssl rand -base64 32`); several with "
        "commas, newest first. Unset: the file `secret_key` in the data folder, made when first needed.",
    )
    secret_key_file: Path | None = Field(
        default=None, description="File with such keys, one a line, newest first; instead of HOPNODE_SECRET_KEY."
    )
    redis_url: str | None = Field(
        default=None,
        description="`redis://…` or `rediss://…` for Celery wake-ups (server mode). Unset: threads in one process.",
    )
    chroma_url: str | None = Field(
        default=None,
        description="`http://host:port` of a Chroma server. Unset: in-process (embedded) or a supervised child (server mode).",
    )

    embedder: Literal["auto", "minilm", "use", "http"] = Field(
        default="auto",
        description="Embedder of new collections: `minilm` (English, 384), `use` (multilingual, 512), `http`, or "
        "`auto`, which looks at the first documents.",
    )
    embedder_url: str | None = Field(
        default=None, description="Base URL of an OpenAI-compatible embeddings API, ends in /v1."
    )
    embedder_model: str | None = Field(default=None, description="Model name sent to the embeddings API.")
    embedder_api_key: SecretStr | None = Field(default=None, description="Bearer key of the embeddings API.")

    chat_url: str | None = Field(
        default=None, description="Base URL of an OpenAI-compatible chat API (ends in /v1); unset: the offline policy."
    )
    chat_model: str | None = Field(default=None, description="Model name sent to the chat API.")
    chat_api_key: SecretStr | None = Field(default=None, description="Bearer key of the chat API.")
    chat_timeout_seconds: float = Field(default=120, gt=0, description="Limit of one model call, in seconds.")
    profile: Literal["auto", "generic", "context-1", "context-1-chat", "offline"] = Field(
        default="auto",
        description="Profile of searches that ask for `auto`. `auto` here: `generic` with a chat API, `offline` without. With "
        "Context-1 behind the chat API set `context-1`: the model knows no other harness.",
    )
    prompt_file: Path | None = Field(
        default=None,
        description="Wording of the profiles `context-1` and `context-1-chat`: a prompt that holds `{query}` once, or "
        "sections as in hopnode/worker/harness/prompts/context1.md. Unset: our own.",
    )
    usage_limit: Literal["soft", "window"] = Field(
        default="soft",
        description="Number after the slash in the usage line of these profiles: the `soft` threshold (16,384 tokens) "
        "or the whole `window` (32,768).",
    )
    usage_separators: bool = Field(default=False, description="Whether numbers in that line have thousands separators.")
    over_budget_message: bool = Field(
        default=False,
        description="Whether these profiles tell the model in words when it is over the soft threshold.",
    )

    answer_model: str | None = Field(
        default=None, description="Model that writes the answers of searches with `answer: true`; unset: no answers."
    )
    answer_url: str | None = Field(
        default=None,
        description="Base URL of its OpenAI-compatible chat API (ends in /v1). Unset: HOPNODE_CHAT_URL and its key.",
    )
    answer_api_key: SecretStr | None = Field(default=None, description="Bearer key of the API at HOPNODE_ANSWER_URL.")
    answer_timeout_seconds: float = Field(default=120, gt=0, description="Limit of one call for an answer, in seconds.")
    answer_tokens: int = Field(
        default=4096, ge=64, description="Most tokens of an answer, the model's reasoning included."
    )
    answer_passage_tokens: int = Field(
        default=24_000,
        ge=512,
        description="Most tokens of passages that the answer model is given; the last are left out.",
    )

    reranker: Literal["none", "score", "rerank", "tei"] = Field(
        default="none",
        description="What orders search candidates: `none` (the fused order), a `score` or `rerank` endpoint as vLLM "
        "serves them, or `tei` (the /rerank of Text Embeddings Inference).",
    )
    reranker_url: str | None = Field(
        default=None, description="Base URL of the reranker; /score or /rerank is put behind it."
    )
    reranker_model: str | None = Field(default=None, description="Model name sent to the reranker (not to `tei`).")
    reranker_api_key: SecretStr | None = Field(default=None, description="Bearer key of the reranker.")
    reranker_format: Literal["plain", "qwen3"] = Field(
        default="plain",
        description="How query and passage are put: `plain`, or in the form that Qwen3-Reranker was trained on.",
    )

    agent_slots: int = Field(
        default=24,
        ge=1,
        le=256,
        description="Searches and evaluations that run side by side in one process; those that compute take turns on its cores.",
    )
    sync_slots: int = Field(default=2, ge=1, le=64, description="Syncs that run side by side in one process.")
    workspace_job_limit: int = Field(
        default=16, ge=1, description="Running jobs per workspace; the rest waits its turn."
    )
    lease_seconds: float = Field(default=60, gt=0, description="A worker silent for this long loses its job.")
    poll_seconds: float = Field(default=1, gt=0, description="How often an idle process looks for work by itself.")
    shutdown_seconds: float = Field(
        default=20, ge=0, description="How long running jobs may go on after a worker was told to stop, in seconds."
    )
    sync_time_limit_seconds: int = Field(
        default=14_400, ge=1, description="A sync that blocks a Celery worker for longer is killed, in seconds."
    )
    job_retention_days: float = Field(
        default=30, gt=0, description="Ended searches, syncs and evaluations are forgotten after this many days."
    )
    search_deadline_seconds: float = Field(default=300, gt=0, description="Default wall-clock limit of a search.")

    max_document_bytes: int = Field(default=50_000_000, ge=1, description="Largest raw document accepted.")
    max_document_characters: int = Field(default=10_000_000, ge=1, description="Longest extracted text accepted.")
    parse_timeout_seconds: float = Field(default=60, gt=0, description="Wall-clock limit for parsing one document.")
    parse_memory_bytes: int = Field(
        default=2_000_000_000, ge=1, description="Address-space limit of the parsing child."
    )

    egress_allow_hosts: CommaList = Field(
        default_factory=list,
        description="Comma-separated `host:port` names on private networks that sources may reach.",
    )
    egress_allow_cidrs: CommaList = Field(
        default_factory=list, description="Comma-separated private networks that sources may reach."
    )
    webhook_allow_hosts: CommaList = Field(
        default_factory=list,
        description="Comma-separated `host:port` names on private networks that webhooks and callbacks may be sent to, such as "
        "`n8n:5678`.",
    )
    webhook_allow_cidrs: CommaList = Field(
        default_factory=list, description="Comma-separated private networks that they may be sent to."
    )
    otlp_endpoint: str | None = Field(
        default=None,
        validation_alias=AliasChoices("HOPNODE_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"),
        description="Base URL of an OpenTelemetry collector (OTLP over HTTP, often port 4318) that gets traces. Unset: none are "
        "made. `OTEL_EXPORTER_OTLP_ENDPOINT` will do too.",
    )
    otlp_headers: SecretStr | None = Field(
        default=None,
        validation_alias=AliasChoices("HOPNODE_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"),
        description="Headers for the collector, `name=value` with commas between them. `OTEL_EXPORTER_OTLP_HEADERS` will do too.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least level that is logged."
    )
    log_format: Literal["console", "json"] = Field(default="console", description="How a log line looks.")

    @model_validator(mode="before")
    @classmethod
    def _split_lists(cls, values: dict[str, object]) -> dict[str, object]:
        for name in ("egress_allow_hosts", "egress_allow_cidrs", "webhook_allow_hosts", "webhook_allow_cidrs"):
            if isinstance(value := values.get(name), str):
                values[name] = [part.strip() for part in value.split(",") if part.strip()]
        return values

    @field_validator(
        "redis_url", "chroma_url", "embedder_url", "chat_url", "answer_url", "reranker_url", "otlp_endpoint"
    )
    @classmethod
    def _address(cls, value: str | None, info: ValidationInfo) -> str | None:
        schemes = ("redis", "rediss") if info.field_name == "redis_url" else ("http", "https")
        if value and not (value.startswith(tuple(f"{scheme}://" for scheme in schemes)) and urlsplit(value).hostname):
            raise ValueError(f"must look like {schemes[0]}://host:port")
        return value

    @model_validator(mode="after")
    def _whole(self) -> Self:
        EgressPolicy(self.egress_allow_hosts, self.egress_allow_cidrs)  # raises ValueError with the setting's name
        EgressPolicy(self.webhook_allow_hosts, self.webhook_allow_cidrs, WEBHOOK_SETTINGS)
        if self.secret_key and self.secret_key_file:
            raise ValueError("HOPNODE_SECRET_KEY and HOPNODE_SECRET_KEY_FILE are both set: unset one of them")
        if self.embedder == "http" and not (self.embedder_url and self.embedder_model):
            raise ValueError("HOPNODE_EMBEDDER=http needs HOPNODE_EMBEDDER_URL and HOPNODE_EMBEDDER_MODEL")
        if self.chat_url and not self.chat_model:
            raise ValueError("HOPNODE_CHAT_URL is set: set HOPNODE_CHAT_MODEL to the model's name as well")
        if self.profile not in ("auto", "offline") and not self.chat_url:
            raise ValueError(f"HOPNODE_PROFILE={self.profile} needs HOPNODE_CHAT_URL and HOPNODE_CHAT_MODEL")
        if self.answer_url and not self.answer_model:
            raise ValueError("HOPNODE_ANSWER_URL is set: set HOPNODE_ANSWER_MODEL to the model's name as well")
        if self.answer_model and not (self.answer_url or self.chat_url):
            raise ValueError(
                "HOPNODE_ANSWER_MODEL needs HOPNODE_ANSWER_URL, or HOPNODE_CHAT_URL where it is served too"
            )
        if self.reranker != "none" and not self.reranker_url:
            raise ValueError(f"HOPNODE_RERANKER={self.reranker} needs HOPNODE_RERANKER_URL")
        if self.reranker in ("score", "rerank") and not self.reranker_model:
            raise ValueError(f"HOPNODE_RERANKER={self.reranker} needs HOPNODE_RERANKER_MODEL")
        return self

    @cached_property
    def root(self) -> Path:
        """The data folder, absolute."""
        return self.data_dir.expanduser().resolve()

    @property
    def sql_url(self) -> str:
        """SQLAlchemy URL of the node's database."""
        return self.database_url or f"sqlite:///{self.root / 'hopnode.db'}"

    @property
    def answer_endpoint(self) -> tuple[str, SecretStr | None] | None:
        """URL and key of the API that writes answers, None where nothing does. The chat key goes to the chat URL only."""
        if not self.answer_model:
            return None
        if self.answer_url:
            return self.answer_url, self.answer_api_key
        return (self.chat_url, self.answer_api_key or self.chat_api_key) if self.chat_url else None

    @property
    def key_file(self) -> Path:
        """Where the first key of workspace `default` lies (mode 0600); the command line on this machine reads it."""
        return self.root / "api_key"
