"""How vLLM serves Chroma's Context-1: the launch line, and the GPU memory it takes. Starts nothing and asks nobody.

The one source of the flags: `hopnode model launch`, `deploy/compose.gpu.yaml` and the tests read them here. The flags are
those of the code that Chroma released. The memory is worked out from the shape of gpt-oss-20b.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, cast

VERSION: Final = "0.32.0"
"""The vLLM that `make test-vllm` runs; older ones down to LEAST_VERSION should do."""
LEAST_VERSION: Final = (0, 13)
IMAGE: Final = f"vllm/vllm-openai:v{VERSION}"
WEIGHTS: Final = "chromadb/context-1"
MXFP4_WEIGHTS: Final = "evilfreelancer/context-1-mxfp4"
"""Converted by a third party; Chroma has announced MXFP4 weights of its own."""
SERVED_NAME: Final = "context-1"
PORT: Final = 8000
WINDOW: Final = 32_768
BATCHED_TOKENS: Final = 16_384
GPU_SHARE: Final = 0.9

_WEIGHTS_GIB: Final[Mapping[str, float]] = {WEIGHTS: 39.0, MXFP4_WEIGHTS: 13.0}
_WORKING_GIB: Final = 3.0
"""CUDA itself, activations of BATCHED_TOKENS tokens and captured graphs: an allowance, not a measurement."""
_SEARCH_GIB: Final = 0.75
"""Key-value cache of one full window: 12 layers of full attention, 8 heads of 64, two bytes; the other 12 hold 128 tokens."""


@dataclass(frozen=True)
class Launch:
    """One way to serve the weights. `share` is how much of each GPU's memory vLLM takes, `kernels_compiled` whether the host
    can compile CUDA kernels (has nvcc), `extra` are arguments for vLLM as they are."""

    weights: str = WEIGHTS
    served_name: str = SERVED_NAME
    host: str = "127.0.0.1"
    port: int = PORT
    gpus: int = 1
    share: float = GPU_SHARE
    kv_cache: Literal["auto", "fp8"] = "auto"
    kernels_compiled: bool = True
    extra: tuple[str, ...] = field(default=())

    def arguments(self) -> list[str]:
        """What follows `vllm serve`. The tool and reasoning parsers serve chat profiles; `context-1` reads token ids itself."""
        line = [self.weights, "--served-model-name", self.served_name, "--host", self.host, "--port", str(self.port)]
        line += ["--max-model-len", str(WINDOW), "--max-num-batched-tokens", str(BATCHED_TOKENS)]
        line += ["--gpu-memory-utilization", f"{self.share:g}", "--async-scheduling"]
        line += ["--enable-auto-tool-choice", "--tool-call-parser", "openai", "--reasoning-parser", "openai_gptoss"]
        if self.gpus > 1:
            line += ["--tensor-parallel-size", str(self.gpus)]
        if self.kv_cache != "auto":
            line += ["--kv-cache-dtype", self.kv_cache]
        if not self.kernels_compiled:
            line += ["--moe-backend", "triton"]
        return [*line, *self.extra]

    def environment(self) -> dict[str, str]:
        """Variables for vLLM's process, added to the present ones."""
        return {} if self.kernels_compiled else {"VLLM_USE_DEEP_GEMM": "0"}

    def settings(self) -> dict[str, str]:
        """The settings of a node that uses this server from the same machine."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host  # noqa: S104 - compared, not bound
        return {
            "HOPNODE_CHAT_URL": f"http://{f'[{host}]' if ':' in host else host}:{self.port}/v1",
            "HOPNODE_CHAT_MODEL": self.served_name,
            "HOPNODE_PROFILE": "context-1",
        }


@dataclass(frozen=True)
class Fit:
    """How the weights fit: GiB of weights on each GPU, GiB that vLLM may take there, and `searches`, the full windows that
    the rest holds at once."""

    weights_gib: float
    taken_gib: float
    searches: int


def fit(gpu_gib: float, weights_gib: float, launch: Launch) -> Fit:
    """Worked out for a GPU with `gpu_gib` of memory; what a search holds is split over the GPUs as the weights are."""
    each = weights_gib / launch.gpus
    taken = gpu_gib * launch.share
    window = _SEARCH_GIB / launch.gpus / (2 if launch.kv_cache == "fp8" else 1)
    return Fit(each, taken, max(0, int((taken - each - _WORKING_GIB) / window)))


def weights_gib(weights: str) -> float | None:
    """GiB of the weights: those of a folder are counted, those of known names are known; None otherwise."""
    folder = Path(weights).expanduser()
    with suppress(OSError, ValueError, KeyError, TypeError):
        return _gib_of(_indexed(folder / "model.safetensors.index.json"))
    with suppress(OSError):
        if files := list(folder.glob("*.safetensors")):
            return _gib_of(files)
    return _WEIGHTS_GIB.get(weights)


def _indexed(index: Path) -> list[Path]:
    """The files that an index names; others in the folder are not loaded."""
    named = cast(Mapping[str, str], json.loads(index.read_text(encoding="utf-8"))["weight_map"])
    return [index.parent / name for name in sorted(set(named.values()))]


def _gib_of(files: Iterable[Path]) -> float:
    return sum(file.stat().st_size for file in files) / 2**30
