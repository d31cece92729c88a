"""Real vLLM servers with random-weight models, one after the other; left out unless `-m vllm` asks for them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.harness.harmony import VOCABULARY, harmony
from support.vllm.vllm_server import PYTHON, VllmServer, make_models


@pytest.fixture(scope="session")
def vllm_python(request: pytest.FixtureRequest) -> Path:
    """The Python of the environment that has vLLM."""
    if "vllm" not in str(request.config.getoption("-m")):
        pytest.skip("real vLLM servers take minutes: `make test-vllm`")
    if not PYTHON.exists():
        pytest.skip(f"there is no environment with vLLM at {PYTHON.parents[1]}: `make test-vllm` makes it")
    return PYTHON


@pytest.fixture(scope="session")
def tiny_models(vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the models that are made for these tests."""
    harmony()  # unpacks the vocabulary
    folder = tmp_path_factory.mktemp("models")
    make_models(folder, VOCABULARY / "o200k_base.tiktoken")
    return folder


def unchunked(tokens: int) -> tuple[str, str]:
    """This build cannot draw with a seed from a prompt that it reads in pieces: its engine dies ("CPU Generator does not use
    offset")."""
    return "--max-num-batched-tokens", str(tokens)


@pytest.fixture(scope="module")
def gptoss(tiny_models: Path) -> Iterator[VllmServer]:
    """gpt-oss with the real harmony prompt and parsers."""
    flags = (
        "--max-model-len",
        "32768",
        *unchunked(32_768),
        "--enable-auto-tool-choice",
        "--tool-call-parser",
        "openai",
    )
    reasoning = ("--reasoning-parser", "openai_gptoss")
    with VllmServer(tiny_models / "tiny-gptoss", VOCABULARY, tiny_models / "gptoss.log", *flags, *reasoning) as server:
        yield server


@pytest.fixture(scope="module")
def llama(tiny_models: Path) -> Iterator[VllmServer]:
    """Llama with calls in tags."""
    flags = ("--max-model-len", "8192", *unchunked(8_192), "--enable-auto-tool-choice", "--tool-call-parser", "hermes")
    with VllmServer(tiny_models / "tiny-llama", VOCABULARY, tiny_models / "llama.log", *flags) as server:
        yield server


@pytest.fixture(scope="module")
def bert(tiny_models: Path) -> Iterator[VllmServer]:
    """Embeddings, scores and reranking."""
    with VllmServer(tiny_models / "tiny-bert", VOCABULARY, tiny_models / "bert.log", "--runner", "pooling") as server:
        yield server
