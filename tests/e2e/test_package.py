"""What `pip install hopnode` gives: a wheel and a source distribution that hold all of the product, and a node that runs from them.

The tree that is built is a copy of what git tracks, so that nothing that merely lies about slips in. The wheel is installed into
a fresh virtual environment that knows nothing of the tree. The packages it depends on are those of `requirements.lock` and no
others, seen through links into the environment that runs the tests: they are the very files that pip would fetch, and fetching
them anew would take minutes and a registry. The links leave out Hopnode itself, which is installed there from the tree, and the
tools of development. So a dependency that nobody declared is missing here as it is at a user's.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Generator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
NAME = f"hopnode-{VERSION}"
SECONDS = 240.0


def output_of(*command: str | Path, cwd: Path, **environment: str) -> str:
    """What a command prints on stdout; it must end well. It sees neither the tree nor anybody's settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOPNODE_", "PYTHON", "PIP_"))}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=kept | {"COLUMNS": "100"} | environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def tracked(*below: str) -> set[str]:
    """The files that git tracks, and that are there."""
    names = output_of("git", "ls-files", "-z", *below, cwd=ROOT).split("\0")
    return {name for name in names if name and (ROOT / name).is_file()}


def build(tree: Path, into: Path, *kinds: str) -> None:
    """Builds as `make dist` does: with the pinned tools of the environment, and without fetching any."""
    output_of(sys.executable, "-m", "build", "--no-isolation", *kinds, "--outdir", into, tree, cwd=into)


def files_of(wheel: Path) -> dict[str, bytes]:
    """The content of a wheel by name."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution of the tree."""
    tree, into = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("dist")
    for name in tracked():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tree / name)
    build(tree, into, "--wheel", "--sdist")
    return into


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    """The wheel of the tree."""
    return dist / f"{NAME}-py3-none-any.whl"


@pytest.fixture(scope="module")
def source(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution."""
    unpacked = tmp_path_factory.mktemp("source")
    with tarfile.open(dist / f"{NAME}.tar.gz") as archive:
        archive.extractall(unpacked, filter="data")
    assert [path.name for path in unpacked.iterdir()] == [NAME]
    return unpacked / NAME


def test_the_wheel_holds_every_file_of_the_product_and_nothing_else(wheel: Path) -> None:
    found = files_of(wheel)
    product = tracked("hopnode")
    assert {Path(name).suffix for name in product} >= {".py", ".json", ".md", ".mako", ".gz", ".txt"}
    described = {name for name in found if name.startswith(f"{NAME}.dist-info/")}
    assert set(found) - described == product
    assert [name for name in product if found[name] != (ROOT / name).read_bytes()] == []


def test_the_wheel_claims_one_name_among_the_packages_of_others(wheel: Path) -> None:
    found = files_of(wheel)
    assert {name.partition("/")[0] for name in found} == {"hopnode", f"{NAME}.dist-info"}
    assert found[f"{NAME}.dist-info/top_level.txt"].split() == [b"hopnode"]
    assert b"hopnode = hopnode.node_service.cli:main" in found[f"{NAME}.dist-info/entry_points.txt"]


def test_every_licence_and_notice_stands_where_tools_look_for_them(wheel: Path) -> None:
    licences = {name for name in tracked("LICENSE", "hopnode") if re.match(r"(LICENSE|NOTICE)", Path(name).name)}
    assert len(licences) >= 4
    found = files_of(wheel)
    assert {f"{NAME}.dist-info/licenses/{name}" for name in licences} == {
        name for name in found if "/licenses/" in name
    }
    metadata = found[f"{NAME}.dist-info/METADATA"].decode()
    assert "\nLicense-Expression: MIT AND Apache-2.0\n" in metadata


def test_the_source_distribution_holds_the_product_and_what_builds_it(source: Path) -> None:
    found = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    about = {"LICENSE", "README.md", "PKG-INFO", "pyproject.toml", "setup.cfg"}
    assert {name for name in found if not name.startswith("hopnode.egg-info/")} == tracked("hopnode") | about


def test_a_wheel_from_the_source_distribution_is_the_wheel_from_the_tree(
    source: Path, wheel: Path, tmp_path: Path
) -> None:
    build(source, tmp_path, "--wheel")
    (again,) = tmp_path.glob("*.whl")
    assert again.name == wheel.name
    assert files_of(again) == files_of(wheel)


def runtime_packages() -> Generator[Path]:
    """What the packages of `requirements.lock` have put into the environment that runs the tests."""
    for name in re.findall(r"^([\w.-]+)==", (ROOT / "requirements.lock").read_text(), re.MULTILINE):
        try:
            package = distribution(name)
        except PackageNotFoundError:  # the lock file is for every platform; this one is for another
            continue
        tops = {file.parts[0] for file in package.files or () if file.parts[0] not in ("..", "__pycache__")}
        yield from (Path(str(package.locate_file(top))) for top in tops)


class Installed:
    """A fresh virtual environment with the wheel, and a folder outside of the tree to work in."""

    def __init__(self, home: Path, wheel: Path) -> None:
        self.work, self.data = home / "work", home / "data"
        self.work.mkdir()
        venv.create(home / "venv", symlinks=True)
        self.python = home / "venv" / "bin" / "python"
        (self.packages,) = (home / "venv").glob("lib/python*/site-packages")
        seen = home / "dependencies"
        seen.mkdir()
        for path in set(runtime_packages()):
            (seen / path.name).symlink_to(path)
        (self.packages / "dependencies.pth").write_text(f"{seen}\n")
        # With all dependencies in sight and no registry, pip succeeds only when what the wheel asks for is there.
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", self.python)
        output_of(*pip, "install", "--no-index", wheel, cwd=self.work)

    def hopnode(self, *arguments: str | Path) -> str:
        """What the installed command prints."""
        return output_of(self.python.with_name("hopnode"), *arguments, cwd=self.work, HOPNODE_DATA_DIR=str(self.data))

    def json(self, *arguments: str | Path) -> Any:
        """What the installed command prints as JSON."""
        return json.loads(self.hopnode(*arguments, "--json"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Installed:
    """The wheel in an environment of its own."""
    return Installed(tmp_path_factory.mktemp("home"), wheel)


def test_the_installed_package_is_not_the_tree_and_sees_no_tool_of_development(installed: Installed) -> None:
    program = "import hopnode, sys; print(hopnode.__file__); print(*sys.path, sep='\\n')"
    place, *path = output_of(installed.python, "-c", program, cwd=installed.work).splitlines()
    assert Path(place) == installed.packages / "hopnode" / "__init__.py"
    assert not [entry for entry in path if entry and Path(entry).is_relative_to(ROOT)]
    program = (
        "import importlib.util as i; print([name for name in ('pytest', 'setuptools', 'ruff') if i.find_spec(name)])"
    )
    assert output_of(installed.python, "-c", program, cwd=installed.work) == "[]\n"


def test_the_installed_command_tells_the_version_of_the_tree(installed: Installed) -> None:
    assert installed.hopnode("--version") == f"hopnode {VERSION}\n"


def test_the_installed_demo_finds_in_its_sample_what_the_question_needs(installed: Installed) -> None:
    (asked,) = installed.json("demo", "--questions", "1")["questions"]
    assert len(asked["gold"]) >= 2
    assert asked["answers"]["agent"]["found"] == sorted(asked["gold"])


def test_the_installed_command_adds_a_file_and_finds_it(installed: Installed) -> None:
    (installed.work / "harbour.md").write_text("# Quay\n\nThe harbour of Lindau lies north of the old lighthouse.\n")
    (installed.work / "bread.md").write_text("# Bread\n\nRye flour, water and salt rest for a night.\n")
    installed.hopnode("add", "harbour.md", "bread.md")
    found = installed.json("search", "Where does the harbour of Lindau lie?")
    assert found["result"]["passages"][0]["key"] == "harbour.md"
