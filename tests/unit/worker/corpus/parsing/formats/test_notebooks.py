"""Notebooks of format 4 and 3: what an author wrote, and what a reader sees below the code."""

import json
from typing import Any

import pytest

from hopnode.worker.corpus.parsing.formats.draft import Draft, RawDocument
from hopnode.worker.corpus.parsing.formats.notebook import read_notebook
from hopnode.worker.errors import DocumentRejected


def code(source: str | list[str], *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "outputs": list(outputs)}


def read(cells: list[Any], metadata: dict[str, Any] | None = None, **limits: int) -> Draft:
    content = {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata or {}, "cells": cells}
    return read_notebook(RawDocument(json.dumps(content).encode(), **limits))


def text_of(draft: Draft) -> str:
    (part,) = draft.parts
    return part


def test_cells_stand_in_their_order_each_in_its_form() -> None:
    cells = [
        {"cell_type": "markdown", "source": ["# Title\n", "words"]},
        code("x = 1"),
        {"cell_type": "raw", "source": "as it is"},
        {"cell_type": "markdown", "source": ""},
        code(""),
    ]
    draft = read(cells)
    assert text_of(draft) == "# Title\nwords\n\n```python\nx = 1\n```\n\nas it is"
    assert draft.title == "Title"


def test_outputs_are_shown_as_a_reader_sees_them_and_pictures_are_left_out() -> None:
    outputs: list[dict[str, Any]] = [
        {"output_type": "stream", "name": "stdout", "text": ["one\n", "two\n"]},
        {"output_type": "execute_result", "data": {"text/plain": "42", "text/html": "<b>42</b>"}},
        {"output_type": "display_data", "data": {"image/png": "iVBORw0KGgo="}},
        {"output_type": "error", "ename": "KeyError", "evalue": "'a'", "traceback": ["\x1b[31mlong\x1b[0m"]},
    ]
    text = text_of(read([code("run()", *outputs)]))
    assert text == "```python\nrun()\n```\n\n```\none\ntwo\n```\n\n```\n42\n```\n\n```\nKeyError: 'a'\n```"


def test_a_fence_within_code_does_not_end_the_block() -> None:
    text = text_of(read([code("text = '''\n```\n'''"), code("after")]))
    assert text.startswith("````python\n")
    assert text.endswith("\n````\n\n```python\nafter\n```")


def test_a_long_output_is_cut_and_says_so() -> None:
    text = text_of(read([code("run()", {"output_type": "stream", "text": "z" * 50_000}), code("after")]))
    assert text.count("z") == 4_000
    assert "(output shortened)" in text
    assert "after" in text


@pytest.mark.parametrize(
    ("metadata", "language"),
    [
        ({"language_info": {"name": "julia"}}, "julia"),
        ({"kernelspec": {"language": "R", "display_name": "R 4"}}, "R"),
        ({"kernelspec": {"name": "scala 2.13"}}, "scala"),
        ({}, "python"),
    ],
)
def test_code_is_marked_with_the_language_of_the_notebook(metadata: dict[str, Any], language: str) -> None:
    assert text_of(read([code("x")], metadata)) == f"```{language}\nx\n```"


def test_format_3_keeps_its_cells_in_worksheets() -> None:
    cells = [
        {"cell_type": "heading", "level": 2, "source": "Results"},
        {"cell_type": "code", "input": ["y = 2\n"], "outputs": [{"output_type": "pyout", "text": ["7"]}]},
        {"cell_type": "code", "input": "z", "outputs": [{"output_type": "pyerr", "ename": "E", "evalue": "v"}]},
    ]
    content = {"nbformat": 3, "metadata": {}, "worksheets": [{"cells": cells[:2]}, {"cells": cells[2:]}]}
    draft = read_notebook(RawDocument(json.dumps(content).encode()))
    assert text_of(draft) == (
        "## Results\n\n```python\ny = 2\n```\n\n```\n7\n```\n\n```python\nz\n```\n\n```\nE: v\n```"
    )


@pytest.mark.parametrize(
    "content",
    ["", "[]", "null", "{}", '{"cells": {"a": 1}}', '{"cells": ["x"]}', '{"worksheets": [3]}', "[" * 100_000],
)
def test_what_is_no_notebook_is_corrupt(content: str) -> None:
    with pytest.raises(DocumentRejected) as refused:
        read_notebook(RawDocument(content.encode()))
    assert refused.value.reason == "corrupt"


def test_a_notebook_over_the_limit_is_too_large_and_not_corrupt() -> None:
    with pytest.raises(DocumentRejected) as refused:
        read([code("x = 1\n" * 100)], max_characters=200)
    assert refused.value.reason == "too-large"
