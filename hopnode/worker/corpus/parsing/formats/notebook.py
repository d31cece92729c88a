"""Jupyter notebooks: Markdown cells as they are, code cells as fences, text output below them; pictures are left out."""

import json
from collections.abc import Iterator
from typing import Any

from hopnode.worker.corpus.chunking.outline import outline_of
from hopnode.worker.corpus.parsing.formats.decode import decode
from hopnode.worker.corpus.parsing.formats.draft import Draft, RawDocument, gather
from hopnode.worker.errors import DocumentRejected

_MOST_OUTPUT_CHARACTERS = 4_000


def read_notebook(raw: RawDocument) -> Draft:
    """Cells in order, of format 4 or 3; raises `DocumentRejected("corrupt")` for what is no notebook."""
    text, warnings = decode(raw.data, raw.charset)
    try:
        notebook: Any = json.loads(text)
        sheets: Any = notebook.get("worksheets") or [notebook]
        cells: list[Any] = [cell for sheet in sheets for cell in sheet["cells"]]
        markdown = gather(_blocks(cells, _language(notebook)), raw.max_characters)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise DocumentRejected("corrupt", "The file is not a Jupyter notebook.") from error
    return Draft(kind="markdown", parts=(markdown,), title=outline_of(markdown).title, warnings=warnings)


def _language(notebook: Any) -> str:
    metadata: Any = notebook.get("metadata") or {}
    info: Any = metadata.get("language_info") or metadata.get("kernelspec") or {}
    return str(info.get("name") or info.get("language") or "python").partition(" ")[0]


def _blocks(cells: list[Any], language: str) -> Iterator[str]:
    for cell in cells:
        source = _joined(cell.get("source", cell.get("input", ""))).strip("\n")
        kind = cell.get("cell_type")
        if kind == "heading":
            yield f"{'#' * int(cell.get('level', 1))} {source}\n\n"
        elif kind == "code":
            yield _fence(source, language)
            for output in cell.get("outputs") or []:
                yield _fence(_output(output).strip("\n"), "")
        elif source:
            yield f"{source}\n\n"


def _output(output: Any) -> str:
    kind = output.get("output_type")
    if kind in ("error", "pyerr"):
        return f"{output.get('ename', '')}: {output.get('evalue', '')}"
    data: Any = output.get("data") or output
    text = _joined(output.get("text") if kind == "stream" else data.get("text/plain", data.get("text", "")))
    return text if len(text) <= _MOST_OUTPUT_CHARACTERS else f"{text[:_MOST_OUTPUT_CHARACTERS]}\n… (output shortened)"


def _joined(text: Any) -> str:
    return "".join(map(str, text)) if isinstance(text, list) else str(text or "")


def _fence(text: str, language: str) -> str:
    fence = "````" if "```" in text else "```"
    return f"{fence}{language}\n{text}\n{fence}\n\n" if text.strip() else ""
