"""The files that containers are made from: what they copy, run, set and open is what the code and the pages say."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from hopnode.node_service.settings import ServiceSettings
from hopnode.worker.settings import WorkerSettings

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
FILES: dict[str, dict[str, Any]] = {
    path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(DEPLOY.glob("compose*.yaml"))
}
SERVICES = [(name, service) for name, file in FILES.items() for service in file["services"]]
NODE_FILES = ("compose.yaml", "compose.server.yaml")
SETTINGS = {f"HOPNODE_{name.upper()}" for one in (ServiceSettings, WorkerSettings) for name in one.model_fields}


def service(file: str, name: str) -> dict[str, Any]:
    return FILES[file]["services"][name]


def services_of_the_node() -> list[tuple[str, str]]:
    """Services that run our image from its Dockerfile."""
    return [(file, name) for file, name in SERVICES if service(file, name).get("image") == "hopnode"]


def test_the_image_copies_only_what_the_context_lets_through() -> None:
    copied = [
        name for line in re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE) for name in line.split()
    ]
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert {"requirements.lock", "pyproject.toml", "hopnode"} <= set(copied)
    assert [name for name in copied if name not in let_through or not (ROOT / name).exists()] == []


def test_the_image_runs_without_rights_on_a_libc_that_the_wheels_need() -> None:
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert len(bases) == 2
    assert all(re.fullmatch(r"python:3\.\d+-slim-bookworm", base) for base in bases), "glibc, not musl"
    users = re.findall(r"^USER (\S+)", DOCKERFILE, re.MULTILINE)
    assert users and users[-1] not in ("0", "root")
    assert "--require-hashes -r requirements.lock" in DOCKERFILE


@pytest.mark.parametrize(("file", "name"), services_of_the_node())
def test_a_service_of_the_node_may_write_to_its_data_only(file: str, name: str) -> None:
    one = service(file, name)
    assert one["read_only"] is True
    assert one["tmpfs"] == ["/tmp"]
    assert one["cap_drop"] == ["ALL"]
    assert one["security_opt"] == ["no-new-privileges:true"]
    assert one["volumes"] == ["data:/data"]
    assert "privileged" not in one and "network_mode" not in one


@pytest.mark.parametrize(("file", "name"), SERVICES)
def test_only_faces_are_published_and_only_on_this_machine(file: str, name: str) -> None:
    ports = service(file, name).get("ports", [])
    assert all(str(port).startswith("127.0.0.1:") for port in ports)
    assert bool(ports) <= (name in ("node", "api", "n8n"))


@pytest.mark.parametrize(("file", "name"), SERVICES)
def test_every_image_that_is_not_ours_is_pinned(file: str, name: str) -> None:
    image = service(file, name).get("image", "hopnode")
    assert image == "hopnode" or re.search(r":v?\d+\.?\d*", image), image


def test_the_chroma_server_has_the_version_of_the_client() -> None:
    pinned = re.findall(r'"chromadb==([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert service("compose.server.yaml", "chroma")["image"] == f"chromadb/chroma:{pinned[0]}"


@pytest.mark.parametrize(("file", "name"), SERVICES)
def test_every_setting_of_a_service_exists(file: str, name: str) -> None:
    environment = service(file, name).get("environment", {})
    assert {one for one in environment if one.startswith("HOPNODE_")} <= SETTINGS


def test_settings_of_the_image_exist() -> None:
    named = set(re.findall(r"\b(HOPNODE_\w+)=", DOCKERFILE))
    assert named and named <= SETTINGS


def test_all_processes_of_a_server_mode_node_have_the_same_settings() -> None:
    node = {
        name: service("compose.server.yaml", name)["environment"]
        for file, name in services_of_the_node()
        if "server" in file
    }
    shared = dict(node["agent"])
    assert {"HOPNODE_DATABASE_URL", "HOPNODE_REDIS_URL", "HOPNODE_CHROMA_URL", "HOPNODE_DATA_DIR"} <= set(shared)
    assert all(shared.items() <= environment.items() for environment in node.values())
    assert set(node) == {"migrate", "api", "agent", "sync"}


def test_the_processes_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    for name in ("migrate", "api", "agent", "sync"):
        command = " ".join(service("compose.server.yaml", name)["command"])
        assert command in page, command


def test_nothing_of_the_node_starts_before_the_schema_is_there() -> None:
    for name in ("api", "agent", "sync"):
        waits = service("compose.server.yaml", name)["depends_on"]
        assert waits["migrate"] == {"condition": "service_completed_successfully"}


def test_passwords_are_asked_for_and_never_written() -> None:
    text = (DEPLOY / "compose.server.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{(\w+_PASSWORD)[^}]*\}", text)) == {"POSTGRES_PASSWORD", "REDIS_PASSWORD"}
    assert not re.findall(r"\$\{\w+_PASSWORD(?!:\?)[^}]*\}", text), "compose stops when a password is missing"


def test_files_that_add_to_the_embedded_node_belong_to_its_project() -> None:
    for name in ("compose.n8n.yaml", "compose.dify.yaml"):
        assert FILES[name]["name"] == FILES["compose.yaml"]["name"]


def test_every_compose_file_is_on_a_page() -> None:
    pages = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md"))
    assert [name for name in FILES if f"deploy/{name}" not in pages] == []


def test_the_image_has_a_python_that_the_package_takes() -> None:
    least = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    (minor,) = set(re.findall(r"^FROM python:3\.(\d+)", DOCKERFILE, re.MULTILINE))
    assert least == ">=3.11" and int(minor) >= 11
