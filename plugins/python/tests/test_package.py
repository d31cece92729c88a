"""What is shipped, and what a newer or older node may answer."""

import os
import subprocess
import sys
import zipfile
from importlib.metadata import requires
from pathlib import Path

import pytest

import hopnode_client
from hopnode_client import Search, Whoami
from hopnode_client.errors import InvalidRequest, NodeFailed, ProblemError, error_of

PROJECT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names in the wheel, built without the network from a copy of the project."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "project"
    names = ["pyproject.toml", "README.md", "LICENSE", "hopnode_client"]
    copy.mkdir()
    subprocess.run(["cp", "-r", *(str(PROJECT / name) for name in names), str(copy)], check=True)
    build = ["wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(folder), str(copy)]
    subprocess.run([sys.executable, "-m", "pip", *build], check=True)
    with zipfile.ZipFile(next(folder.glob("hopnode_client-*.whl"))) as opened:
        return [name for name in opened.namelist() if not name.endswith("/")]


def test_the_wheel_holds_every_module_the_types_and_the_licence_and_nothing_else(wheel: list[str]) -> None:
    modules = {str(path.relative_to(PROJECT)) for path in (PROJECT / "hopnode_client").rglob("*.py")}
    inside = {name for name in wheel if ".dist-info/" not in name}
    assert inside == modules | {"hopnode_client/py.typed"}
    assert [name for name in wheel if name.endswith("licenses/LICENSE")]


def test_it_needs_httpx_and_pydantic_and_nothing_else() -> None:
    plain = [line for line in requires("hopnode-client") or [] if "extra ==" not in line]
    assert sorted(line.partition(">")[0].partition("<")[0] for line in plain) == ["httpx", "pydantic"]


def test_it_is_imported_without_the_frameworks_and_without_the_node() -> None:
    heavy = "{'langchain_core', 'llama_index', 'hopnode', 'setuptools'}"
    program = f"import sys, hopnode_client; sys.exit(bool({heavy} & set(sys.modules)))"
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, env=dict(os.environ))


def test_every_name_of_the_public_face_is_there() -> None:
    assert all(hasattr(hopnode_client, name) for name in hopnode_client.__all__)


def test_fields_statuses_and_codes_of_a_newer_node_are_no_errors() -> None:
    search = Search.model_validate_json(
        '{"id": "1", "status": "paused", "query": "?", "created_at": "2026-12-01T00:00:00Z", "colour": "red", '
        '"result": {"mode": "deep", "passages": [], "sources": [1]}}'
    )
    assert not search.ended and search.model_extra == {"colour": "red"}
    assert search.result and search.result.model_extra == {"sources": [1]}
    new = error_of(
        418, b'{"type": "urn:hopnode:problem:teapot", "code": "teapot", "status": 418}', "application/problem+json"
    )
    assert type(new) is ProblemError and new.code == "teapot"
    worse = error_of(507, b'{"code": "full", "status": 507, "detail": "Full."}', "application/problem+json")
    assert isinstance(worse, NodeFailed) and str(worse).startswith("Full. ")
    odd = error_of(
        422, b'{"code": "odd", "status": 422, "errors": [{"in": "query", "field": "x"}]}', "application/problem+json"
    )
    assert isinstance(odd, InvalidRequest) and odd.errors[0].place == "query"


def test_records_cannot_be_changed() -> None:
    me = Whoami.model_validate(
        {
            "workspace": {"id": "1", "name": "default", "created_at": "2026-12-01T00:00:00Z"},
            "key": {"id": "1"},
            "version": "0.1.0",
        }
    )
    with pytest.raises(ValueError, match="frozen"):
        me.version = "2"  # type: ignore[misc]
