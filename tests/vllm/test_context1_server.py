"""Weights that know Context-1's part by heart, behind `hopnode model launch` and a real vLLM: searches that end well."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.harness.agent import FILMS, nothing_to_check
from support.harness.context1 import DATE, QUESTION
from support.harness.harmony import VOCABULARY, harmony
from support.harness.space import MemorySpace
from support.node.cli import Cli
from support.vllm.vllm_server import PYTHON, SETTINGS, VllmServer

from hopnode.worker.harness.agent import SearchAgent
from hopnode.worker.harness.budget import Limits
from hopnode.worker.harness.policies.model import ModelPolicy
from hopnode.worker.harness.profiles.context1 import Context1Profile
from hopnode.worker.harness.profiles.context1_chat import Context1ChatProfile
from hopnode.worker.harness.profiles.generic import GenericProfile
from hopnode.worker.harness.profiles.phrasing import shipped
from hopnode.worker.harness.rollouts import run_rollouts
from hopnode.worker.harness.trajectory import Recorder
from hopnode.worker.inference.chat import HttpChat
from hopnode.worker.inference.completions import HttpCompletions
from hopnode.worker.inference.harmony.rendering import STOP_TOKENS
from hopnode.worker.inference.serving.vllm import Launch

pytestmark = pytest.mark.vllm

PROFILES = ("context-1", "context-1-chat", "generic")
ON_A_CPU = ("--dtype", "bfloat16", "--enforce-eager", "--max-num-seqs", "8", "--moe-backend", "auto")
"""The last of an option counts: where there is no nvcc, `launch` asks for a backend that no CPU has."""


class Launched:
    """`hopnode model launch` on a free port, on a data folder of its own."""

    def __init__(self, folder: Path, weights: Path, *extra: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.cli = Cli(folder / "data", folder, chat_url=self.url, chat_model="context-1")
        self.cli.environment |= SETTINGS | {"TIKTOKEN_ENCODINGS_BASE": str(VOCABULARY)}
        self.log = folder / "data" / "vllm.log"
        self._arguments = ("model", "launch", "--json", "--no-gpu-check", "--vllm", str(PYTHON.with_name("vllm")))
        self._arguments += ("--weights", str(weights), "--port", str(self.port), "--", *ON_A_CPU, *extra)

    @contextmanager
    def run(self) -> Generator[subprocess.Popen[str]]:
        """Up when this yields: the command has printed what its own check saw."""
        process = self.cli.start(*self._arguments)
        try:
            assert process.stdout
            lines = iter(process.stdout.readline, "")
            self.told = json.loads("".join(until_closed(lines)) or "null")
            assert self.told, process.communicate()
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


def until_closed(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line
        if line.startswith("}"):
            return


@pytest.fixture(scope="module")
def launched(tiny_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Launched]:
    server = Launched(tmp_path_factory.mktemp("launched"), tiny_models / "tiny-recital")
    with server.run() as process:
        yield server
        children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) > 1
    assert (process.returncode, psutil.wait_procs(children, 30)[1]) == (0, []), "the end of launch is the end of vLLM"


def policy(server: Launched, profile: str) -> Any:
    exact = Context1Profile(harmony(), DATE)
    if profile == "context-1":
        sampler = HttpCompletions(server.url, "context-1", harmony().encode, STOP_TOKENS)
        return ModelPolicy(sampler, exact)
    chat = HttpChat(server.url, "context-1")
    return ModelPolicy(chat, Context1ChatProfile(exact, shipped()) if profile == "context-1-chat" else GenericProfile())


def agent(policy: Any, recorder: Recorder, check: Callable[[], None] = nothing_to_check) -> SearchAgent:
    return SearchAgent(policy, MemorySpace(FILMS), limits=Limits(turns=6), recorder=recorder, check=check)


def states(told: Any) -> dict[str, str]:
    return {one["name"]: one["state"] for one in told["checks"]}


def test_launch_waits_until_vllm_serves_and_tries_a_turn(launched: Launched) -> None:
    assert launched.told["ok"], launched.told
    assert launched.told["profile"] == "context-1"
    assert set(states(launched.told).values()) == {"ok"}
    assert [call["name"] for call in launched.told["turn"]["calls"]] == ["search_corpus", "read_document"]


@pytest.mark.parametrize("profile", PROFILES)
def test_check_finds_the_server_fit_for_every_profile(launched: Launched, profile: str) -> None:
    told = launched.cli.json("model", "check", "--profile", profile)
    assert told["ok"]
    assert told["turn"]["prompt_tokens"] > 500
    shown = launched.cli.run("model", "check", "--profile", profile)
    assert (shown.returncode, "the model calls search_corpus" in shown.stdout) == (0, True)


@pytest.mark.parametrize(("profile", "calls"), [("context-1", 2), ("context-1-chat", 2), ("generic", 1)])
def test_a_search_goes_from_the_first_call_to_the_final_list(launched: Launched, profile: str, calls: int) -> None:
    """Calls side by side travel in `multi_tool_use` where the profile tells of it."""
    recorder = Recorder()
    outcome = agent(policy(launched, profile), recorder).run(QUESTION)
    assert (outcome.stop_reason, outcome.degraded) == ("finished", ())
    assert [one.chunk.id for one in outcome.selections] == ["d2_0"]
    assert outcome.selections[0].justification == "Anna Berg was born in Oslo."
    assert (outcome.usage.turns, outcome.usage.tool_calls) == (2, calls)
    assert outcome.usage.parallel_calls == (calls if calls > 1 else 0)
    asked = [step.data for step in recorder.steps if step.kind == "action"]
    assert all(step["measured"] and not step["redraws"] for step in asked)
    if profile == "context-1-chat":
        exact = Recorder()
        agent(policy(launched, "context-1"), exact).run(QUESTION)
        # The header that the server writes itself is not drawn over chat; nothing is drawn behind the call.
        drawn, alike = (step.data["completion_tokens"] for step in (recorder.steps[1], exact.steps[1]))
        assert drawn == alike - 2


def test_four_rollouts_that_agree_are_fused_with_four_votes(launched: Launched) -> None:
    recorders = {number: Recorder(rollout=number) for number in (1, 2, 3, 4)}

    def make(number: int, check: Callable[[], None]) -> SearchAgent:
        return agent(policy(launched, "context-1"), recorders[number], check)

    outcome = run_rollouts(make, 4, QUESTION, nothing_to_check)
    assert [rollout.stop_reason for rollout in outcome.rollouts] == ["finished"] * 4
    assert [(one.chunk.id, tuple(one.ranks)) for one in outcome.selections] == [("d2_0", (1, 1, 1, 1))]


def test_another_name_and_another_port_are_told_apart(launched: Launched) -> None:
    stranger = launched.cli.json("model", "check", "--name", "stranger", code=1)
    assert states(stranger) | {"model name": "failed"} == states(stranger)
    assert "context-1" in next(one["message"] for one in stranger["checks"] if one["name"] == "model name")
    nobody = launched.cli.json("model", "check", "--url", "http://127.0.0.1:9/v1", code=1)
    assert states(nobody)["endpoint"] == "failed"


def test_vllm_takes_every_flag_that_a_launch_line_can_have(vllm_python: Path) -> None:
    program = (
        "import json, sys\n"
        "from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args\n"
        "from vllm.utils.argparse_utils import FlexibleArgumentParser\n"
        "parser = make_arg_parser(FlexibleArgumentParser())\n"
        "for line in json.loads(sys.argv[1]):\n"
        "    validate_parsed_serve_args(parser.parse_args(line))\n"
    )
    lines = [Launch().arguments(), Launch(gpus=2, kv_cache="fp8", kernels_compiled=False).arguments()]
    command = [vllm_python, "-c", program, json.dumps(lines)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | SETTINGS, timeout=300)
    assert done.returncode == 0, done.stderr


def test_of_a_server_without_flags_check_says_what_to_start_it_with(tiny_models: Path, tmp_path: Path) -> None:
    """The last of this file: the server that the others use is gone by now."""
    model, log = tiny_models / "tiny-recital", tmp_path / "bare.log"
    with VllmServer(model, VOCABULARY, log, "--max-model-len", "4096") as bare:
        cli = Cli(tmp_path / "data", tmp_path, chat_url=bare.url, chat_model="context-1")
        for profile in PROFILES:
            told = cli.json("model", "check", "--profile", profile, code=1)
            mends = {one["name"]: one["mend"] for one in told["checks"] if one["state"] == "failed"}
            assert "--max-model-len 32768" in mends["window"]
            assert ("a turn" in mends) == (profile != "context-1")
            assert "--tool-call-parser openai" in mends.get("a turn", "--tool-call-parser openai")
