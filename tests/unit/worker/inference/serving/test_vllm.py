"""The launch line of Context-1, what it takes of a GPU, and which GPUs there are."""

import json
from pathlib import Path

import pytest

from hopnode.worker.errors import ConfigurationError
from hopnode.worker.harness.budget import Rules
from hopnode.worker.inference.serving.gpus import Gpu, list_gpus
from hopnode.worker.inference.serving.vllm import MXFP4_WEIGHTS, WEIGHTS, WINDOW, Launch, fit, weights_gib


def options(line: Launch) -> dict[str, str]:
    """The options of a launch line with their values; empty for switches."""
    words = line.arguments()[1:]
    return {
        word: "" if following.startswith("--") else following
        for word, following in zip(words, [*words[1:], "--"], strict=True)
        if word.startswith("--")
    }


def test_the_line_serves_the_window_of_the_harness_and_every_profile() -> None:
    line = options(Launch())
    assert Launch().arguments()[0] == "chromadb/context-1"
    assert line["--max-model-len"] == str(WINDOW) == str(Rules().window)
    assert line["--max-num-batched-tokens"] == "16384"
    assert (line["--enable-auto-tool-choice"], line["--tool-call-parser"]) == ("", "openai")
    assert line["--reasoning-parser"] == "openai_gptoss"
    assert "--trust-remote-code" not in line


def test_what_is_not_asked_for_is_not_in_the_line_and_what_vllm_is_told_comes_last() -> None:
    assert not {"--tensor-parallel-size", "--kv-cache-dtype", "--moe-backend"} & set(options(Launch()))
    line = Launch(gpus=2, kv_cache="fp8", kernels_compiled=False, extra=("--max-num-seqs", "8"))
    assert options(line) | {"--tensor-parallel-size": "2", "--kv-cache-dtype": "fp8"} == options(line)
    assert (options(line)["--moe-backend"], line.environment()) == ("triton", {"VLLM_USE_DEEP_GEMM": "0"})
    assert line.arguments()[-2:] == ["--max-num-seqs", "8"]


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000/v1"),
        ("0.0.0.0", "http://127.0.0.1:8000/v1"),
        ("::1", "http://[::1]:8000/v1"),
        ("10.0.0.5", "http://10.0.0.5:8000/v1"),
    ],
)
def test_the_settings_of_the_node_follow_the_line(host: str, url: str) -> None:
    told = Launch(host=host, served_name="mine").settings()
    assert told == {"HOPNODE_CHAT_URL": url, "HOPNODE_CHAT_MODEL": "mine", "HOPNODE_PROFILE": "context-1"}


def test_a_window_takes_three_quarters_of_a_gibibyte_and_half_of_that_in_eight_bits() -> None:
    assert fit(24, 13, Launch()).searches == 7  # 24 x 0.9 - 13 - 3 = 5.6
    assert fit(24, 13, Launch(kv_cache="fp8")).searches == 14
    assert fit(24, 39, Launch()).searches == 0
    assert fit(80, 39, Launch()).searches == 40


def test_two_gpus_halve_what_each_holds() -> None:
    one, two = fit(32, 39, Launch()), fit(32, 39, Launch(gpus=2))
    assert (one.searches, two.weights_gib, two.searches) == (0, 19.5, 16)


def test_known_weights_are_known_folders_are_counted_and_others_are_not_guessed(tmp_path: Path) -> None:
    assert (weights_gib(WEIGHTS), weights_gib(MXFP4_WEIGHTS)) == (39.0, 13.0)
    assert weights_gib("somebody/else") is None
    (tmp_path / "model-1.safetensors").write_bytes(bytes(2**20))
    (tmp_path / "model-2.safetensors").write_bytes(bytes(2**20))
    assert weights_gib(str(tmp_path)) == 2 / 1024
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-1.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert weights_gib(str(tmp_path)) == 1 / 1024, "what the index does not name is not loaded"


def listed(folder: Path, script: str, visible: str | None = None) -> list[Gpu]:
    """The GPUs that this script lists in the place of `nvidia-smi`."""
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return list_gpus(visible, search_path=str(folder))


TWO = "echo 'NVIDIA H100 80GB HBM3, 81559, 81000, 580.65.06'; echo 'NVIDIA L4, 23034, 512, 580.65.06'"


def test_gpus_are_listed_with_their_memory(tmp_path: Path) -> None:
    first, second = listed(tmp_path, TWO)
    assert first == Gpu("NVIDIA H100 80GB HBM3", 81559 / 1024, 81000 / 1024, "580.65.06")
    assert (second.name, second.free_gib) == ("NVIDIA L4", 0.5)


@pytest.mark.parametrize(
    ("visible", "names"), [("1", ["NVIDIA L4"]), ("", []), ("GPU-0a1b", ["NVIDIA H100 80GB HBM3"])]
)
def test_hidden_gpus_are_left_out(tmp_path: Path, visible: str, names: list[str]) -> None:
    found = listed(tmp_path, TWO, visible)
    assert [gpu.name for gpu in found] == names


def test_memory_that_the_driver_does_not_tell_is_unknown_and_no_program_is_no_gpu(tmp_path: Path) -> None:
    (spark,) = listed(tmp_path, "echo 'NVIDIA GB10, [N/A], [N/A], 580.95'")
    assert spark.total_gib == 0.0
    assert list_gpus(None, search_path="/nowhere") == []


def test_a_driver_that_is_not_in_order_speaks_for_itself(tmp_path: Path) -> None:
    script = "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18"
    with pytest.raises(ConfigurationError, match="Driver/library version mismatch"):
        listed(tmp_path, script)
