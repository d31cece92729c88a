"""The NVIDIA GPUs of this machine, as `nvidia-smi` lists them. Knows nothing of what they are for."""

import shutil
import subprocess
from dataclasses import dataclass

from hopnode.worker.errors import ConfigurationError

ASK_SECONDS = 20.0
_QUERY = ("name", "memory.total", "memory.free", "driver_version")


@dataclass(frozen=True)
class Gpu:
    """One GPU; memory in GiB."""

    name: str
    total_gib: float
    free_gib: float
    driver: str


def list_gpus(visible: str | None, *, search_path: str | None = None) -> list[Gpu]:
    """All GPUs; empty where there is no `nvidia-smi`. `visible` has the form of `CUDA_VISIBLE_DEVICES` and hides the others.

    `search_path` names the folders to look for the program in; None: those of this process.
    Raises `ConfigurationError` when the program is there and fails, in its own words: the driver is then not in order.
    """
    program = shutil.which("nvidia-smi", path=search_path)
    if program is None:
        return []
    command = [program, f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_SECONDS, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(f"{program} cannot be asked: {error}") from error
    if done.returncode != 0:
        said = " ".join((done.stdout + done.stderr).split())[:300]
        raise ConfigurationError(f"{program} fails: {said or f'exit code {done.returncode}'}")
    gpus = [_read(line) for line in done.stdout.splitlines() if line.strip()]
    return _visible(gpus, visible)


def _read(line: str) -> Gpu:
    name, total, free, driver = (cell.strip() for cell in line.rsplit(",", 3))
    return Gpu(name, _gib(total), _gib(free), driver)


def _gib(mebibytes: str) -> float:
    """0.0 where the driver does not say, as on GPUs that share the machine's memory."""
    return float(mebibytes) / 1024 if mebibytes.replace(".", "", 1).isdigit() else 0.0


def _visible(gpus: list[Gpu], chosen: str | None) -> list[Gpu]:
    """Numbers are followed; ids of another form (UUIDs) tell only how many."""
    if chosen is None:
        return gpus
    names = [name.strip() for name in chosen.split(",") if name.strip()]
    if all(name.isdigit() for name in names):
        return [gpus[int(name)] for name in names if int(name) < len(gpus)]
    return gpus[: len(names)]
