"""The checks of `hopnode model check`, from the first byte to a real turn: does this server carry Hopnode's agent.

Each says what is wrong in words that a user can act on. Nothing is changed on the server; one short search turn is drawn.
"""

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import httpx

from hopnode.node_service.commands.doctor.checks import Finding
from hopnode.worker.errors import HopnodeError, ModelRefused, ModelUnavailable
from hopnode.worker.harness.actions import Action
from hopnode.worker.harness.agent import Measuring
from hopnode.worker.harness.budget import Rules
from hopnode.worker.harness.context import Context
from hopnode.worker.harness.profiles.carrier import CARRIER
from hopnode.worker.harness.tools import TOOLS
from hopnode.worker.inference.chat import HttpChat
from hopnode.worker.inference.harmony.rendering import STOP_TOKENS
from hopnode.worker.inference.harmony.reply import looks_like_harmony
from hopnode.worker.inference.serving import vllm
from hopnode.worker.searches.agents import ModelProfile, model_policies
from hopnode.worker.settings import WorkerSettings

PROBE_SECONDS = 10.0
QUESTION = "Which river flows through the birthplace of the director of the film Moonrise?"
HELLO = (200006, 1428, 200008, 13225, 200007)
"""`<|start|>user<|message|>Hello<|end|>` in gpt-oss's vocabulary."""

_FLAGS = "`--enable-auto-tool-choice --tool-call-parser openai --reasoning-parser openai_gptoss`"
_START = "Start the model server (`hopnode model launch`, or the service `vllm` of deploy/compose.gpu.yaml)"
_NO_PARSER = re.compile(r"tool[-_ ](?:call[-_ ]parser|choice)", re.IGNORECASE)
_VOCABULARY = re.compile(r"vocab", re.IGNORECASE)


@dataclass
class Target:
    """Whom to check, and what was learned on the way. `settings` name the endpoint; `profile` is how it is talked to."""

    settings: WorkerSettings
    profile: ModelProfile
    models: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    turn: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def url(self) -> str:
        """The base URL, which ends in /v1."""
        return (self.settings.chat_url or "").rstrip("/")

    @property
    def name(self) -> str:
        """The model's name as it is sent."""
        return self.settings.chat_model or ""

    @property
    def headers(self) -> dict[str, str]:
        """The key, where there is one."""
        key = self.settings.chat_api_key
        return {"Authorization": f"Bearer {key.get_secret_value()}"} if key else {}

    def get(self, url: str) -> httpx.Response:
        """A GET with the key."""
        return httpx.get(url, headers=self.headers, timeout=PROBE_SECONDS, trust_env=False)


def reachable(target: Target) -> Finding:
    """Something answers, and lists models."""
    address = f"{target.url}/models"
    try:
        answer = target.get(address)
        target.models = [dict(one) for one in answer.raise_for_status().json()["data"]]
    except httpx.HTTPStatusError as error:
        return _wrong_status(target, error.response.status_code)
    except httpx.TimeoutException:
        mend = "Look at the server's log; check that no firewall stands between."
        return Finding("failed", f"{target.url} does not answer within {PROBE_SECONDS:.0f} s", mend)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        mend = f"{_START}, wait until it has loaded its weights, or correct HOPNODE_CHAT_URL."
        return Finding("failed", f"nothing answers at {target.url} ({type(error).__name__})", mend)
    except (ValueError, KeyError, TypeError):
        mend = "Set HOPNODE_CHAT_URL to the base address of the model server's API; it ends in /v1."
        return Finding("failed", f"{target.url} answers, and is no OpenAI-compatible model server", mend)
    return Finding("ok", f"{target.url} answers")


def _wrong_status(target: Target, status: int) -> Finding:
    if status in (401, 403):
        mend = "Set HOPNODE_CHAT_API_KEY to the key that the server was started with (vLLM: `--api-key`)."
        return Finding("failed", f"{target.url} does not accept the key ({status})", mend)
    if status == 404:
        mend = "Correct HOPNODE_CHAT_URL: it ends in /v1, as in http://127.0.0.1:8000/v1."
        return Finding("failed", f"{target.url}/models is not there (404)", mend)
    return Finding("failed", f"{target.url} answers with status {status}", "Look at the server's log.")


def named(target: Target) -> Finding:
    """The model is served under the configured name."""
    offered = [str(one.get("id")) for one in target.models]
    if target.name in offered:
        return Finding("ok", f"{target.name} is served")
    listed = ", ".join(offered[:5]) or "none"
    mend = f"Set HOPNODE_CHAT_MODEL to one of these names, or start vLLM with `--served-model-name {target.name}`."
    return Finding("failed", f"{target.name} is not served; what is: {listed}", mend)


def version(target: Target) -> Finding:
    """A vLLM that is new enough; other servers are not told."""
    try:
        told = str(target.get(f"{target.url.removesuffix('/v1')}/version").raise_for_status().json()["version"])
        number = tuple(int(part) for part in re.findall(r"\d+", told)[:2])
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return Finding("off", "the server does not tell a version of vLLM; its behaviour is all that counts")
    least = ".".join(map(str, vllm.LEAST_VERSION))
    if number < vllm.LEAST_VERSION:
        return Finding(
            "warning", f"vLLM {told}", f"Update vLLM to {least} or newer; Hopnode is tested with {vllm.VERSION}."
        )
    return Finding("ok", f"vLLM {told}")


def window(target: Target) -> Finding:
    """The window holds what the harness may fill."""
    wanted = Rules().window
    told = next((one.get("max_model_len") for one in target.models if one.get("id") == target.name), None)
    if not isinstance(told, int):
        return Finding(
            "warning", "the server does not tell its window", f"Make sure that it is {wanted:,} tokens or more."
        )
    if told < wanted:
        return Finding(
            "failed",
            f"the window is {told:,} tokens, and a search may fill {wanted:,}",
            f"Start vLLM with `--max-model-len {wanted}`. If its memory does not suffice for that: `--kv-cache-dtype fp8`, weights "
            "in MXFP4, or a larger GPU (docs/gpu.md).",
        )
    return Finding("ok", f"{told:,} tokens")


def token_ids(target: Target) -> Finding:
    """Prompts and answers go as token ids, which the exact profile lives by."""
    if target.profile != "context-1":
        return Finding("off", f"the profile `{target.profile}` sends text")
    body = {
        "model": target.name,
        "prompt": HELLO,
        "max_tokens": 1,
        "stop_token_ids": STOP_TOKENS,
        "return_token_ids": True,
    }
    chat = "use the profile `context-1-chat` (HOPNODE_PROFILE)"
    try:
        answer = httpx.post(
            f"{target.url}/completions", json=body, headers=target.headers, timeout=120, trust_env=False
        )
        content = cast(Mapping[str, Any], answer.json())
    except (httpx.HTTPError, ValueError) as error:
        return Finding(
            "failed", f"/v1/completions fails ({type(error).__name__})", f"Look at the server's log, or {chat}."
        )
    if answer.status_code != 200:
        return _no_tokens(answer.status_code, json.dumps(content), chat)
    choice = (content.get("choices") or [{}])[0]
    if not choice.get("token_ids"):
        return Finding(
            "failed",
            "the server sends no token ids back (it does not know `return_token_ids`)",
            f"Update vLLM to {'.'.join(map(str, vllm.LEAST_VERSION))} or newer, or {chat}.",
        )
    if (count := (content.get("usage") or {}).get("prompt_tokens")) != len(HELLO):
        return Finding(
            "failed", f"a prompt of {len(HELLO)} ids counted as {count}", f"Serve the model with vLLM, or {chat}."
        )
    return Finding("ok", "prompts and answers go as token ids")


def _no_tokens(status: int, said: str, chat: str) -> Finding:
    if _VOCABULARY.search(said):
        return Finding(
            "failed",
            "the model does not know the vocabulary of gpt-oss, so it is no Context-1",
            f"Serve {vllm.WEIGHTS} (`hopnode model launch`), or set HOPNODE_PROFILE to `generic` for another model.",
        )
    message = f"/v1/completions does not take token ids (status {status}: {' '.join(said.split())[:160]})"
    return Finding("failed", message, f"Serve the model with vLLM, or {chat}.")


def turn(target: Target) -> Finding:
    """One real turn: the first of a search, asked and read through the profile. The calls are not carried out."""
    key = target.settings.chat_api_key
    chat = HttpChat(
        target.url, target.name, key.get_secret_value() if key else None, target.settings.chat_timeout_seconds
    )
    policy = model_policies(target.settings, chat, target.profile)()
    measure = policy.measure if isinstance(policy, Measuring) else None
    context = Context(QUESTION, policy.opening_tokens(QUESTION), policy.rules, measure)
    started = time.monotonic()
    try:
        action = policy.next_action(context.view())
    except (ModelRefused, ModelUnavailable) as error:
        return _no_turn(error)
    seconds = time.monotonic() - started
    target.turn = {
        "seconds": round(seconds, 3),
        "prompt_tokens": action.prompt_tokens,
        "completion_tokens": action.completion_tokens,
        "calls": [{"name": call.name, "arguments": call.arguments} for call in action.calls],
        "reasoning": action.reasoning,
        "text": action.text,
    }
    return _read_turn(action, seconds)


def _no_turn(error: HopnodeError) -> Finding:
    said = str(error)
    if _NO_PARSER.search(said):
        return Finding("failed", f"the server was started without a tool parser: {said}", f"Start vLLM with {_FLAGS}.")
    mend = "Look at the server's log."
    if error.details.get("reason") == "timeout":
        mend = "Raise HOPNODE_CHAT_TIMEOUT_SECONDS, or see why the server is slow (`hopnode model launch` uses a GPU)."
    return Finding("failed", said, mend)


def _read_turn(action: Action, seconds: float) -> Finding:
    known = [call for call in action.calls if call.name in TOOLS or call.name == CARRIER]
    if known:
        speed = (
            f", {action.completion_tokens / seconds:.0f} tokens/s" if seconds > 0 and action.completion_tokens else ""
        )
        shown = f"{known[0].name}({known[0].arguments[:80]})"
        more = f" and {len(known) - 1} more" if len(known) > 1 else ""
        return Finding("ok", f"the model calls {shown}{more}; {seconds:.1f} s{speed}")
    written = " ".join((action.text or action.reasoning).split())[:80]
    if looks_like_harmony(action.text + action.reasoning):
        return Finding(
            "failed", f"the server leaves the model's format in the text: {written}", f"Start vLLM with {_FLAGS}."
        )
    if not written and not action.calls and action.completion_tokens > 1:
        # vLLM without a parser throws away what went to a tool.
        message = f"the model wrote {action.completion_tokens} tokens, and the server handed on neither text nor a call"
        return Finding("failed", message, f"Start vLLM with {_FLAGS}.")
    if action.calls:
        message = f"the model calls a tool that there is not: {action.calls[0].name[:60]}"
    else:
        message = f"the model made no tool call; it wrote: {written}" if written else "the model made no tool call"
    mend = "Serve weights that were trained for this profile: Context-1 for `context-1` and `context-1-chat`, a model with tool "
    return Finding("failed", message, f"{mend}calls for `generic`. One stray reply happens: run the check again.")


CHECKS: Mapping[str, Callable[[Target], Finding]] = {
    "endpoint": reachable,
    "model name": named,
    "vLLM": version,
    "window": window,
    "token ids": token_ids,
    "a turn": turn,
}
"""By the name under which each is printed, in order. After a failure those that follow are not made, but for the window."""


def examine(target: Target) -> dict[str, Finding]:
    """All checks in order; what a failure makes pointless is `off`."""
    findings: dict[str, Finding] = {}
    broken = ""
    for name, check in CHECKS.items():
        findings[name] = Finding("off", f"not tried, since `{broken}` failed") if broken else check(target)
        if findings[name].state == "failed" and name != "window":
            broken = broken or name
    return findings
