"""What must be true before a tag: one version everywhere, a package that declares what it needs, and workflows that can run."""

import ast
import json
import os
import re
import sys
import tomllib
from datetime import date
from importlib.metadata import packages_distributions, version
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.node.http_node import serve_node
from typer.testing import CliRunner

from hopnode.node_service.cli import app
from hopnode.node_service.commands.terminal.invocation import Invocation

ROOT = Path(__file__).parents[3]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
WORKFLOWS: dict[str, dict[str, Any]] = {
    path.name: yaml.safe_load(path.read_text(encoding="utf-8")) for path in (ROOT / ".github/workflows").glob("*.yml")
}
JOBS = {f"{file}:{name}": job for file, workflow in WORKFLOWS.items() for name, job in workflow["jobs"].items()}
each_job = pytest.mark.parametrize("job", JOBS)


# --- one version ---------------------------------------------------------------------------------------------------


def test_the_installed_version_is_that_of_the_tree() -> None:
    assert version("hopnode") == PROJECT["version"], "run `make demo` or any other target: it installs the tree anew"


def test_the_command_the_interface_and_a_served_node_tell_the_version_of_the_tree(tmp_path: Path) -> None:
    said = CliRunner().invoke(app, ["--version"], obj=Invocation())
    assert (said.exit_code, said.stdout) == (0, f"hopnode {PROJECT['version']}\n")
    described = json.loads((ROOT / "docs/openapi.json").read_text(encoding="utf-8"))
    assert described["info"]["version"] == PROJECT["version"], "run `make openapi`"
    with serve_node(tmp_path) as node:
        client = node.client(node.default_token)
        told = [client.get(path).raise_for_status().json()["version"] for path in ("/v1/whoami", "/healthz")]
    assert told == [PROJECT["version"]] * 2


def test_the_newest_section_of_the_changelog_is_this_version_and_every_section_has_its_day() -> None:
    first, *headings = re.findall(r"^## (.+)$", CHANGELOG, re.MULTILINE)
    assert first == "Unreleased"
    told = [re.fullmatch(r"(\d+)\.(\d+)\.(\d+) \((\d{4}-\d\d-\d\d)\)", heading) for heading in headings]
    assert None not in told, headings
    sections = [(tuple(map(int, one.groups()[:3])), date.fromisoformat(one[4])) for one in told if one]
    assert ".".join(map(str, sections[0][0])) == PROJECT["version"]
    assert sections == sorted(sections, reverse=True)
    assert [day for _, day in sections] == sorted((day for _, day in sections), reverse=True)


# --- a package that has what it needs ----------------------------------------------------------------------------


def test_every_file_of_the_package_that_is_no_module_is_named_as_package_data() -> None:
    named = {
        path
        for package, patterns in PYPROJECT["tool"]["setuptools"]["package-data"].items()
        for pattern in patterns
        for path in (ROOT / package.replace(".", "/")).glob(pattern)
    }
    there = {
        path
        for path in (ROOT / "hopnode").rglob("*")
        if path.is_file() and path.suffix != ".py" and path.parent.name != "__pycache__"
    }
    assert len(there) >= 10
    assert sorted(str(path) for path in there - named) == []


def test_every_folder_with_modules_is_a_package_that_the_wheel_takes_along() -> None:
    folders = {path.parent for path in (ROOT / "hopnode").rglob("*.py")}
    assert sorted(str(folder) for folder in folders if not (folder / "__init__.py").exists()) == []


def imported_names() -> dict[str, str]:
    """The top-level names from outside that the product imports, each with a module that does."""
    found: dict[str, str] = {}
    for path in (ROOT / "hopnode").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [str(node.module)]
            else:
                continue
            found |= {name.partition(".")[0]: str(path.relative_to(ROOT)) for name in names}
    return {name: place for name, place in found.items() if name not in {*sys.stdlib_module_names, "hopnode"}}


def plain(requirement: str) -> str:
    """The name of a required distribution, as PyPI compares names."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement)[0]).lower()


def test_every_package_that_the_product_imports_is_declared() -> None:
    declared = {plain(one) for one in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["postgres"]]}
    brings = packages_distributions()
    missing = {
        name: place
        for name, place in imported_names().items()
        if not declared & {plain(distribution) for distribution in brings.get(name, [])}
    }
    assert missing == {}


# --- workflows and hooks that can run -------------------------------------------------------------------------------


def commands_of(job: dict[str, Any]) -> list[str]:
    """What the steps of a job run in a shell."""
    return [step["run"] for step in job.get("steps", []) if "run" in step]


def test_every_command_of_the_house_that_a_workflow_calls_is_there() -> None:
    commands = "\n".join(command for job in JOBS.values() for command in commands_of(job))
    targets = re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.MULTILINE)
    called = re.findall(r"\bmake ([a-z-]+)", commands)
    assert called and set(called) <= set(targets)
    programs = re.findall(r"^\.[\w/.-]+", commands, re.MULTILINE)
    assert ".ci/run" in programs
    assert [program for program in programs if not os.access(ROOT / program, os.X_OK)] == []


def test_a_release_tests_before_it_builds_and_builds_before_it_publishes() -> None:
    release = WORKFLOWS["release.yml"]
    assert release[True] == {"push": {"tags": ["v*"]}}, "`on`, which YAML 1.1 takes for a truth value"
    assert (ROOT / release["jobs"]["test"]["uses"]).is_file()

    def before(job: str) -> set[str]:
        needs = release["jobs"][job].get("needs", [])
        direct = {needs} if isinstance(needs, str) else set(needs)
        return direct.union(*map(before, direct))

    assert {"test", "python"} <= before("pypi")
    assert {name for name in release["jobs"] if "test" not in before(name)} == {"test"}
    assert before("github") == set(release["jobs"]) - {"github"}
    tag_check, dist = commands_of(release["jobs"]["python"])
    assert "pyproject.toml" in tag_check and dist == "make dist"
    assert re.search(
        rf'^version = "{re.escape(PROJECT["version"])}"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
    )


@each_job
def test_a_job_uses_actions_of_one_exact_commit_and_says_which_release_that_is(job: str) -> None:
    text = (ROOT / ".github/workflows" / job.partition(":")[0]).read_text(encoding="utf-8")
    for step in JOBS[job].get("steps", []):
        if "uses" in step:
            assert re.search(rf"uses: {re.escape(step['uses'])} # v\d+\.\d+\.\d+$", text, re.MULTILINE), step
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"])


@each_job
def test_a_job_has_few_rights_no_secret_and_an_end(job: str) -> None:
    workflow = WORKFLOWS[job.partition(":")[0]]
    rights = JOBS[job].get("permissions", workflow["permissions"])
    assert workflow["permissions"] in ({}, {"contents": "read"})
    written = {right for right, level in rights.items() if level == "write"}
    assert written <= {"id-token", "attestations"} or written == {"contents"} == set(rights)
    assert "secrets." not in json.dumps(JOBS[job])
    assert "uses" in JOBS[job] or JOBS[job]["timeout-minutes"] <= 120
    assert not [step for step in JOBS[job].get("steps", []) if "${{ github." in step.get("run", "")], (
        "could be a command"
    )


def test_the_hooks_before_a_commit_run_what_make_check_runs() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    entries = [hook["entry"] for hook in hooks]
    lines = re.findall(r"^(?:LINT|TYPES) := (.*)$", MAKEFILE, re.MULTILINE)
    checks = [
        command.replace("$(VENV)", ".venv").removesuffix(" .") for line in lines for command in line.split(" && ")
    ]
    assert sorted(checks) == sorted(entries)
