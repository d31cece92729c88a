"""A real vLLM server on the CPU, started by the Python of its own environment and ended by its process group."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
READY_SECONDS = 600.0
SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SYSTEM_START_DATE": "2026-03-26",
    "OMP_NUM_THREADS": "1",
}
"""Of the server's process: no network, little memory, prompts that are the same every day."""


def make_models(folder: Path, vocabulary: Path) -> None:
    """Fills `folder` with the models of `vllm_models.py`."""
    texts = folder / "texts.txt"
    texts.write_text("\n".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").glob("*.md"))))
    words = ROOT / "hopnode" / "worker" / "inference" / "data" / "minilm_vocab.txt"
    # Last on the path: this folder has modules that are named like some of the standard library.
    program = "import sys; sys.path.append(sys.argv[1]); import vllm_models; vllm_models.main(*sys.argv[2:])"
    command = [PYTHON, "-c", program, Path(__file__).parent, folder, vocabulary, texts, words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-2_000:]


class VllmServer:
    """A server of one model, on a port that stays the same when it is started again; a context manager."""

    def __init__(self, model: Path, vocabulary: Path, log: Path, *arguments: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.root = f"http://127.0.0.1:{self.port}"
        self.url = f"{self.root}/v1"
        self._model, self._vocabulary, self._log, self._arguments = model, vocabulary, log, arguments
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*map(str, self._command()), *self._arguments],
                env=os.environ | SETTINGS | {"TIKTOKEN_ENCODINGS_BASE": str(self._vocabulary)},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        ends = time.monotonic() + READY_SECONDS
        while not self._answers():
            assert self._process.poll() is None, self._log.read_text(errors="replace")[-3_000:]
            assert time.monotonic() < ends, self._log.read_text(errors="replace")[-3_000:]
            time.sleep(0.5)

    def kill(self) -> None:
        """Ends the server and its children at once, as a crash would."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)
            self._process = None

    def metric(self, name: str) -> float:
        """The sum over a metric's series."""
        lines = httpx.get(f"{self.root}/metrics", timeout=30).text.splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.root}/health", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    def _command(self) -> Sequence[object]:
        return [
            *(PYTHON, "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", self._model, "--served-model-name", "context-1"),
            *("--host", "127.0.0.1", "--port", self.port),
            *("--dtype", "bfloat16", "--enforce-eager", "--max-num-seqs", "8"),
        ]
