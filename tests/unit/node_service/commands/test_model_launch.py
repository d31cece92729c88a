"""`hopnode model launch` with programs that stand for `nvidia-smi` and `vllm`; the real vLLM is in `tests/vllm`."""

import json
import os
import signal
import socket
import stat
import sys
from pathlib import Path
from threading import Event

import psutil
import pytest
from support.node.cli import Cli

from hopnode.node_service.commands.model_server.vllm_process import ModelServer, find_program, need_gpus, need_port
from hopnode.node_service.commands.terminal.exits import CommandError
from hopnode.worker.inference.serving.gpus import Gpu
from hopnode.worker.inference.serving.vllm import MXFP4_WEIGHTS, Launch

TESTS = Path(__file__).parents[3]
L4, H100 = Gpu("NVIDIA L4", 22.5, 22.3, "580"), Gpu("NVIDIA H100", 79.6, 79.1, "580")
SERVING = f"""
import signal, subprocess, sys
sys.path.append({str(TESTS)!r})
from support.harness.context1 import sampled
from support.harness.harmony import call
from support.servers.model_server import ModelDouble
from hopnode.worker.inference.messages import Sampled

def answer(path, body):
    said = sampled(call("search_corpus", {{"query": "Moonrise"}}))
    return Sampled(said.tokens, "stop", len(body["prompt"]), len(said.tokens))

assert sys.argv[1:3] == ["serve", "chromadb/context-1"], sys.argv
print("loading weights", flush=True)
engine = subprocess.Popen(["sleep", "1000"])
with ModelDouble(answer, port=int(sys.argv[sys.argv.index("--port") + 1])):
    print("Application startup complete", engine.pid, flush=True)
    signal.pause()
"""


def program(folder: Path, text: str, name: str = "vllm", interpreter: str = sys.executable) -> Path:
    """An executable file."""
    path = folder / name
    path.write_text(f"#!{interpreter}\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def failed(folder: Path, said: str, seconds: float = 30) -> CommandError:
    """How it is told that vLLM said this and ended."""
    vllm = program(folder, f"cat <<'END'\n{said}\nEND\nexit 1", interpreter="/bin/sh")
    with ModelServer([str(vllm)], Launch(port=free_port()), folder / "vllm.log") as server:
        with pytest.raises(CommandError) as caught:
            server.wait_ready(seconds, lambda line: None, Event().wait)
        return caught.value


# --- what is looked at before -------------------------------------------------------------------------------------


def test_where_there_is_no_vllm_three_ways_to_one_are_named(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "data", tmp_path)
    done = cli.run("model", "launch", "--no-gpu-check", PATH="/nowhere")
    assert done.returncode == 1
    assert "vLLM is not installed here." in done.stderr
    assert all(word in done.stderr for word in ("pip install vllm", "deploy/compose.gpu.yaml", "--print"))


def test_a_program_that_was_named_and_is_not_there_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no program") as caught:
        find_program(str(tmp_path / "vllm"))
    assert caught.value.exit_code == 2
    named = program(tmp_path, "")
    assert find_program(str(named)) == [str(named)]


def test_a_machine_without_a_gpu_is_told_what_works_without_one() -> None:
    with pytest.raises(CommandError, match="No NVIDIA GPU was found") as caught:
        need_gpus([], Launch())
    assert "`offline`" in caught.value.mend


@pytest.mark.parametrize(
    ("gpus", "line", "words", "mend"),
    [
        ([L4], Launch(), "NVIDIA L4 has 22.5 GiB, of which vLLM may take 20.2. The weights take 39.0", MXFP4_WEIGHTS),
        ([L4, L4], Launch(gpus=2), "19.5 on each of 2 GPUs", "more `--gpus`"),
        ([H100], Launch(gpus=2), "2 GPUs are asked for, and there are 1", "`--gpus`"),
        ([Gpu("T4", 15, 15, "580")], Launch(MXFP4_WEIGHTS), "The weights take 13.0", "16 GB do not"),
        ([Gpu("H100", 80, 40, "580")], Launch(), "has 40.0 of 80.0 GiB free, and vLLM is to take 72.0", "nvidia-smi"),
    ],
)
def test_too_little_memory_is_told_in_figures(gpus: list[Gpu], line: Launch, words: str, mend: str) -> None:
    with pytest.raises(CommandError) as caught:
        need_gpus(gpus, line)
    assert words in str(caught.value)
    assert mend in caught.value.mend


def test_what_fits_passes_and_what_is_not_known_is_not_guessed() -> None:
    """Each case beside the nearest one that is refused."""
    need_gpus([H100], Launch())
    need_gpus([H100, H100, L4], Launch(gpus=2))
    with pytest.raises(CommandError, match="NVIDIA L4 has"):
        need_gpus([H100, L4, H100], Launch(gpus=2))
    need_gpus([L4], Launch(MXFP4_WEIGHTS))
    need_gpus([L4], Launch("somebody/else"))
    need_gpus([Gpu("GB10", 0.0, 0.0, "580")], Launch())
    with pytest.raises(CommandError, match="NVIDIA L4 has"):
        need_gpus([L4], Launch())


def test_a_port_that_is_taken_is_noticed_before_anything_is_loaded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(CommandError, match="cannot be listened on") as caught:
            need_port(Launch(port=taken.getsockname()[1]))
        assert "--port" in caught.value.mend
    need_port(Launch(port=free_port()))


# --- why it did not start ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "words", "mend"),
    [
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
            "memory does not suffice",
            MXFP4_WEIGHTS,
        ),
        (
            "ValueError: To serve at least one request with the models's max seq len (32768), (0.75 GiB KV cache is needed, "
            "which is larger than the available KV cache memory (0.3 GiB).",
            "no whole window of 32,768 tokens",
            "--kv-cache fp8",
        ),
        (
            "ValueError: Free memory on device cuda:0 (10.1/79.6 GiB) on startup is less than desired GPU memory utilization",
            "another program holds memory",
            "nvidia-smi",
        ),
        ("OSError: We couldn't connect to 'https://huggingface.co'", "cannot be fetched", "--weights FOLDER"),
        ("huggingface_hub.errors.RepositoryNotFoundError: 401 Client Error.", "no weights of that name", "HF_TOKEN"),
        ("OSError: [Errno 28] No space left on device", "the disk is full", "HF_HOME"),
        ("OSError: [Errno 98] Address already in use", "listens on that port", "--port"),
        ("RuntimeError: Could not find nvcc and default cuda_home", "kernel could not be compiled", "CUDA toolkit"),
        (
            "The NVIDIA driver on your system is too old (found version 12040)",
            "are too old",
            "Update the NVIDIA driver",
        ),
        ("vllm: error: unrecognized arguments: --async-scheduling", "does not know a flag", "--print"),
    ],
)
def test_a_known_cause_in_the_log_is_told_with_its_mending(tmp_path: Path, said: str, words: str, mend: str) -> None:
    error = failed(tmp_path, f"INFO starting\n{said}\nINFO bye")
    assert words in str(error)
    assert mend in error.mend
    assert str(tmp_path / "vllm.log") in error.mend


def test_an_unknown_cause_shows_the_end_of_the_log(tmp_path: Path) -> None:
    error = failed(tmp_path, "\n".join(f"line {number}" for number in range(100)))
    assert "exit code 1" in str(error)
    assert "line 99" in str(error)
    assert "line 50" not in str(error)


def test_a_server_that_never_gets_ready_is_given_up_and_ended(tmp_path: Path) -> None:
    vllm = program(tmp_path, "echo still loading\nexec sleep 1000", interpreter="/bin/sh")
    told: list[str] = []
    with ModelServer([str(vllm)], Launch(port=free_port()), tmp_path / "vllm.log") as server:
        with pytest.raises(CommandError, match="was not ready within 1 s"):
            server.wait_ready(1, told.append, Event().wait)
        assert "still loading" in told
    assert not server.alive


# --- a whole launch ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGINT])
def test_a_launch_serves_checks_and_ends_with_all_that_vllm_started(tmp_path: Path, ending: signal.Signals) -> None:
    vllm, port = program(tmp_path, SERVING), free_port()
    program(tmp_path, "echo 'NVIDIA H100, 81559, 81000, 580.65.06'", "nvidia-smi", "/bin/sh")
    cli = Cli(tmp_path / "data", tmp_path)
    cli.environment["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    process = cli.start("model", "launch", "--vllm", str(vllm), "--port", str(port), "--wait", "60")
    try:
        assert process.stdout
        shown = list(iter(process.stdout.readline, "Stop it with Ctrl-C.\n"))
        assert f"  HOPNODE_CHAT_URL=http://127.0.0.1:{port}/v1\n" in shown
        assert any("the model calls search_corpus" in line for line in shown)
        children = psutil.Process(process.pid).children(recursive=True)
        assert "sleep" in {child.name() for child in children}
        process.send_signal(ending)
        assert process.wait(30) == 0
        assert psutil.wait_procs(children, 10)[1] == []
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_vllm_that_ends_by_itself_ends_the_launch_with_its_cause(tmp_path: Path) -> None:
    text = SERVING.replace("signal.pause()", "print('torch.OutOfMemoryError: CUDA out of memory', flush=True)")
    cli = Cli(tmp_path / "data", tmp_path)
    vllm = str(program(tmp_path, text.replace('["sleep", "1000"]', '["true"]')))
    done = cli.run("model", "launch", "--no-gpu-check", "--vllm", vllm, "--port", str(free_port()))
    assert done.returncode == 1
    assert "the GPU's memory does not suffice" in done.stderr


@pytest.mark.slow
def test_print_gives_a_line_for_the_shell_on_stdout_and_json_for_scripts(tmp_path: Path) -> None:
    program(tmp_path, "echo 'NVIDIA L4, 23034, 23000, 580.65.06'", "nvidia-smi", "/bin/sh")
    cli = Cli(tmp_path / "data", tmp_path)
    cli.environment["PATH"] = f"{tmp_path}:{os.environ['PATH']}"
    done = cli.run("model", "launch", "--print", "--gpus", "2", "--", "--max-num-seqs", "16")
    assert done.returncode == 0
    assert done.stdout.startswith("vllm serve chromadb/context-1 --served-model-name context-1 ")
    assert done.stdout.endswith(" --tensor-parallel-size 2 --max-num-seqs 16\n")
    assert "NVIDIA L4: 22.5 GiB do not suffice for 19.5 GiB of weights" in done.stderr
    told = cli.json("model", "launch", "--print", "--weights", MXFP4_WEIGHTS, "--kv-cache", "fp8")
    assert told["command"][:3] == ["vllm", "serve", MXFP4_WEIGHTS]
    assert told["settings"]["HOPNODE_PROFILE"] == "context-1"
    assert told["gpus"] == [
        {"name": "NVIDIA L4", "total_gib": 22.5, "free_gib": 22.5, "weights_gib": 13.0, "searches": 11}
    ]


@pytest.mark.slow
def test_check_without_a_server_named_is_wrong_usage_and_a_failed_one_exits_with_1(tmp_path: Path) -> None:
    cli = Cli(tmp_path / "data", tmp_path)
    done = cli.run("model", "check")
    assert (done.returncode, "HOPNODE_CHAT_URL is not set" in done.stderr) == (2, True)
    told = cli.json("model", "check", "--url", "http://127.0.0.1:9/v1", "--name", "m", code=1)
    assert (told["ok"], told["profile"], told["turn"]) == (False, "generic", None)
    assert json.dumps(told).count("hopnode model launch") == 1
