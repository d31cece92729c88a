"""Who drives the agents of a search: turns the name of a profile and the node's settings into policies and a reranker.

Knows models and profiles by name; what a search is and what becomes of it is `run.py`'s.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from pydantic import SecretStr

from hopnode.worker.corpus.records import Chunk
from hopnode.worker.errors import ConfigurationError
from hopnode.worker.harness.agent import Policy
from hopnode.worker.harness.budget import Rules
from hopnode.worker.harness.policies.model import ModelPolicy
from hopnode.worker.harness.profiles.context1 import CONTEXT_1_RULES, Context1Profile
from hopnode.worker.harness.profiles.context1_chat import Context1ChatProfile
from hopnode.worker.harness.profiles.generic import GenericProfile
from hopnode.worker.harness.profiles.phrasing import load_phrasing
from hopnode.worker.harness.tools import Reranker
from hopnode.worker.inference.chat import ChatModel
from hopnode.worker.inference.completions import HttpCompletions
from hopnode.worker.inference.harmony.rendering import STOP_TOKENS, Harmony
from hopnode.worker.inference.reranker import HttpReranker
from hopnode.worker.settings import WorkerSettings

ModelProfile: TypeAlias = Literal["generic", "context-1", "context-1-chat"]
ProfileName: TypeAlias = Literal["generic", "context-1", "context-1-chat", "offline"]


def profile_named(asked: str, chat: ChatModel | None, configured: str = "auto") -> ProfileName:
    """The profile that a request means, where `configured` is the operator's choice for those that leave it open.
    Raises ConfigurationError when the node is not set up for it."""
    asked = configured if asked == "auto" else asked
    if asked == "auto":
        return "generic" if chat else "offline"
    name = next(name for name in get_args(ProfileName) if name == asked)
    if name != "offline" and chat is None:
        raise ConfigurationError(
            f"The profile `{name}` needs a chat endpoint: set HOPNODE_CHAT_URL and HOPNODE_CHAT_MODEL, or use `offline`."
        )
    return name


def model_policies(settings: WorkerSettings, chat: ChatModel, name: ModelProfile) -> Callable[[], Policy]:
    """Makes a policy for each rollout of one search. What they share is fixed now, so that their prompts begin alike."""
    if name == "generic":
        return lambda: ModelPolicy(chat, GenericProfile())
    phrasing, harmony = load_phrasing(settings.prompt_file), Harmony(settings.root / "cache")
    date, rules = datetime.now(UTC).strftime("%Y-%m-%d"), context_1_rules(settings)

    def exact() -> Context1Profile:
        return Context1Profile(harmony, date, phrasing=phrasing, rules=rules)

    if name == "context-1-chat":
        return lambda: ModelPolicy(chat, Context1ChatProfile(exact(), phrasing))
    sampler = _sampler(
        settings.chat_url or "",
        settings.chat_model or "",
        settings.chat_api_key,
        settings.chat_timeout_seconds,
        settings.root / "cache",
    )
    return lambda: ModelPolicy(sampler, exact())


def context_1_rules(settings: WorkerSettings) -> Rules:
    """The rules of Context-1 with what the sources disagree about as the operator has it."""
    return replace(
        CONTEXT_1_RULES,
        usage_shown=settings.usage_limit,
        thousands=settings.usage_separators,
        soft_message=settings.over_budget_message,
    )


def reranker_of(settings: WorkerSettings) -> tuple[str | None, Reranker | None]:
    """Name and function of the configured reranker; None for both where there is none."""
    if settings.reranker == "none" or settings.reranker_url is None:
        return None, None
    client = _reranker(
        settings.reranker,
        settings.reranker_url,
        settings.reranker_model,
        settings.reranker_api_key,
        settings.reranker_format,
    )

    def rerank(query: str, chunks: Sequence[Chunk]) -> Sequence[float]:
        return client.score(query, [chunk.text for chunk in chunks])

    return client.id, rerank


# Clients are kept over searches: they remember which fields their endpoint does not take.


@cache
def _sampler(url: str, model: str, key: SecretStr | None, timeout_seconds: float, folder: Path) -> HttpCompletions:
    return HttpCompletions(url, model, Harmony(folder).encode, STOP_TOKENS, _plain(key), timeout_seconds)


@cache
def _reranker(
    kind: Literal["score", "rerank", "tei"],
    url: str,
    model: str | None,
    key: SecretStr | None,
    form: Literal["plain", "qwen3"],
) -> HttpReranker:
    return HttpReranker(kind, url, model, _plain(key), form=form)


def _plain(key: SecretStr | None) -> str | None:
    return key.get_secret_value() if key else None
