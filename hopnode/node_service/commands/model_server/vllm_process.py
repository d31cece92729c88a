"""A vLLM server as a child of `hopnode model launch`: whether it can run here, start, readiness, end, and why it failed."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from hopnode.node_service.commands.terminal.exits import CommandError, ExitCode
from hopnode.worker.inference.serving.gpus import Gpu
from hopnode.worker.inference.serving.vllm import MXFP4_WEIGHTS, Launch, fit, weights_gib

POLL_SECONDS = 0.5
GRACE_SECONDS = 30.0
LAST_LINES = 15

CAUSES: tuple[tuple[re.Pattern[str], str, str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), message, mend)
    for pattern, message, mend in (
        (
            r"CUDA out of memory|OutOfMemoryError|No available memory for the cache blocks",
            "the GPU's memory does not suffice",
            f"Serve MXFP4 weights (`--weights {MXFP4_WEIGHTS}`), use `--kv-cache fp8`, more `--gpus`, or a larger GPU.",
        ),
        (
            r"larger than the (?:maximum|available).{0,40}KV cache|KV cache.{0,80}larger than the available",
            "the GPU's memory holds the weights, and no whole window of 32,768 tokens beside them",
            "Use `--kv-cache fp8`, raise `--gpu-memory` (0.95 at most), serve MXFP4 weights, or use more `--gpus`.",
        ),
        (
            r"Free memory on device.{0,80}less than desired",
            "another program holds memory of the GPU",
            "See which with `nvidia-smi` and end it, or lower `--gpu-memory`.",
        ),
        (
            r"LocalEntryNotFoundError|OfflineModeIsEnabled|couldn't connect to|Name or service not known|Max retries exceeded",
            "the weights are not on this machine, and cannot be fetched from Hugging Face",
            "Copy them here and name their folder with `--weights FOLDER`, or give this machine access to the network.",
        ),
        (
            r"RepositoryNotFoundError|GatedRepoError|is not a local folder and is not a valid model identifier|401 Client Error",
            "there are no weights of that name, or they may not be fetched without a token",
            "Correct `--weights`, or set HF_TOKEN to a token of Hugging Face.",
        ),
        (r"No space left on device", "the disk is full", "The weights take up to 42 GB; set HF_HOME to a larger disk."),
        (r"address already in use", "another program listens on that port", "Choose another with `--port`."),
        (
            r"nvcc.{0,40}not found|Could not find nvcc|CUDA_HOME",
            "a CUDA kernel could not be compiled",
            "Install the CUDA toolkit, or use the image of deploy/compose.gpu.yaml, which has all it needs.",
        ),
        (
            r"driver.{0,60}(?:too old|insufficient)|no kernel image is available",
            "driver or GPU are too old for this vLLM",
            "Update the NVIDIA driver; GPUs before compute capability 8.0 (Ampere) are too old for gpt-oss.",
        ),
        (
            r"unrecognized arguments|invalid choice",
            "this vLLM does not know a flag of the launch line",
            "Update vLLM, or start it by hand without that flag (`hopnode model launch --print`).",
        ),
    )
)


def find_program(asked: str | None) -> list[str]:
    """How vLLM is started: the program that was named, else `vllm` beside this Python or on the PATH. CommandError when
    there is none."""
    if asked:
        found = shutil.which(asked)
        if not found:
            raise CommandError(f"There is no program {asked}.", "Name vLLM's with `--vllm PATH`.", ExitCode.USAGE)
        return [found]
    found = shutil.which("vllm", path=str(Path(sys.executable).parent)) or shutil.which("vllm")
    if not found:
        raise CommandError(
            "vLLM is not installed here.",
            "Install it in an environment of its own (`python -m venv vllm && vllm/bin/pip install vllm`) and name it with "
            "`--vllm vllm/bin/vllm`; or use the image of deploy/compose.gpu.yaml; or take the line of `--print` elsewhere.",
        )
    return [found]


def need_gpus(gpus: Sequence[Gpu], launch: Launch) -> None:
    """CommandError when there are too few GPUs, or too little memory on them for the weights."""
    if not gpus:
        raise CommandError(
            "No NVIDIA GPU was found: there is no `nvidia-smi`, or it lists none.",
            "Install the driver, or run this on the machine with the GPU. Another kind of accelerator that vLLM can use: "
            "`--no-gpu-check`. Without one, Hopnode works with the profile `offline` or any OpenAI-compatible endpoint.",
        )
    if len(gpus) < launch.gpus:
        raise CommandError(f"{launch.gpus} GPUs are asked for, and there are {len(gpus)}.", "Lower `--gpus`.")
    weights = weights_gib(launch.weights)
    smallest = min(gpus[: launch.gpus], key=lambda gpu: gpu.total_gib)
    if weights is None or not smallest.total_gib:
        return
    if fit(smallest.total_gib, weights, launch).searches < 1:
        raise CommandError(_too_small(smallest, weights, launch), _smaller(launch))
    fullest = min(gpus[: launch.gpus], key=lambda gpu: gpu.free_gib)
    if fullest.free_gib < fullest.total_gib * launch.share:
        raise CommandError(
            f"{fullest.name} has {fullest.free_gib:.1f} of {fullest.total_gib:.1f} GiB free, and vLLM is to take "
            f"{fullest.total_gib * launch.share:.1f}.",
            "See with `nvidia-smi` what holds the rest and end it, or lower `--gpu-memory`.",
        )


def _too_small(gpu: Gpu, weights: float, launch: Launch) -> str:
    on = f" on each of {launch.gpus} GPUs" if launch.gpus > 1 else ""
    return (
        f"{gpu.name} has {gpu.total_gib:.1f} GiB, of which vLLM may take {gpu.total_gib * launch.share:.1f}. The weights take "
        f"{weights / launch.gpus:.1f}{on}, and with what vLLM works in no search fits beside them."
    )


def _smaller(launch: Launch) -> str:
    if launch.weights != MXFP4_WEIGHTS:
        return f"Serve MXFP4 weights (13 GiB: `--weights {MXFP4_WEIGHTS}`), use more `--gpus`, or a larger GPU."
    return "Use `--kv-cache fp8`, more `--gpus`, or a larger GPU: 24 GB do, 16 GB do not."


def need_port(launch: Launch) -> None:
    """CommandError when somebody listens there already."""
    family = socket.AF_INET6 if ":" in launch.host else socket.AF_INET
    with closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((launch.host, launch.port))
        except OSError as error:
            raise CommandError(
                f"{launch.host}:{launch.port} cannot be listened on: {error.strerror}.",
                "Choose another with `--port` (and `--host`), or end what listens there.",
            ) from error


class ModelServer:
    """The child, in a process group of its own; a context manager that ends it. What it says goes to the file `log`."""

    def __init__(self, program: Sequence[str], launch: Launch, log: Path) -> None:
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        self._launch = launch
        with log.open("wb") as file:
            self._process = subprocess.Popen(  # noqa: S603 - the program that the operator named
                [*program, "serve", *launch.arguments()],
                env=os.environ | launch.environment(),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(GRACE_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # its engine and workers
        self._process.wait()

    @property
    def alive(self) -> bool:
        """Whether the child runs."""
        return self._process.poll() is None

    def wait_ready(self, seconds: float, told: Callable[[str], None], stopped: Callable[[float], bool]) -> bool:
        """Waits until the server serves (True), or until `stopped(pause)` says so (False). `told` gets the last line of the log
        again and again. Raises CommandError with the cause when the server ends, or is not ready in time."""
        ends = time.monotonic() + seconds
        while not self._serves():
            if not self.alive:
                raise self.failure(f"vLLM ended with exit code {self._process.returncode} before it was ready")
            if time.monotonic() > ends:
                raise self.failure(f"vLLM was not ready within {seconds:.0f} s")
            told(self.last_line())
            if stopped(POLL_SECONDS):
                return False
        return True

    def failure(self, what: str) -> CommandError:
        """What happened, with its cause where the log tells a known one, and the end of the log where it does not."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        for pattern, message, mend in CAUSES:
            if pattern.search(text):
                return CommandError(f"{what}: {message}.", f"{mend} The whole log: {self.log}")
        tail = "\n    ".join(text.splitlines()[-LAST_LINES:])
        return CommandError(f"{what}. The end of its log:\n    {tail}", f"Read the whole log: {self.log}")

    def last_line(self) -> str:
        """The last line of the log, at most 8 kB of it looked at."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - 8_192))
            lines = file.read().decode("utf-8", "replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def _serves(self) -> bool:
        root = self._launch.settings()["HOPNODE_CHAT_URL"].removesuffix("/v1")
        try:
            return httpx.get(f"{root}/health", timeout=5, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False
