"""DOCX through python-docx: headings, lists and tables as Markdown; reads inserted text, and neither deleted nor hidden text."""

import io
from collections.abc import Iterator, Mapping
from typing import Any

import docx
from docx.document import Document
from docx.oxml import parse_xml
from docx.oxml.ns import qn

from worker.corpus.formats.draft import Draft, RawDocument, gather, markdown_table, one_line
from worker.errors import DocumentRejected

Element = Any  # lxml ships no types

_PARAGRAPH, _TABLE, _CONTENT = qn("w:p"), qn("w:tbl"), (qn("w:sdt"), qn("w:sdtContent"), qn("w:ins"), qn("w:customXml"))
_ROW, _CELL, _VALUE = qn("w:tr"), qn("w:tc"), qn("w:val")
_TEXT = frozenset({qn("w:t"), "{http://schemas.openxmlformats.org/officeDocument/2006/math}t"})
_GAPS = {qn("w:tab"): "\t", qn("w:br"): "\n", qn("w:cr"): "\n", qn("w:noBreakHyphen"): "-"}
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_SKIPPED = frozenset({qn("w:del"), qn("w:moveFrom"), qn("w:pPr"), qn("w:rPr"), _FALLBACK})
_NOTES = {"footnotes": qn("w:footnote"), "endnotes": qn("w:endnote")}
_OFF = ("0", "false", "none", "off")
_DEEPEST_STYLE = 20


def read_docx(raw: RawDocument) -> Draft:
    """The body in order, then foot- and endnotes; headers and footers are left out, since they repeat on every page."""
    document = _open(raw.data)
    levels = _heading_levels(document)
    blocks = (f"{block}\n\n" for block in _all_blocks(document, levels) if block.strip())
    text = gather(blocks, raw.max_characters)
    title = one_line(document.core_properties.title or "")
    if not title:
        title = next((one_line(line.lstrip("#")) for line in text.split("\n") if line.startswith("#")), "")
    return Draft(kind="markdown", parts=(text,), title=title)


def _open(data: bytes) -> Document:
    try:
        return docx.Document(io.BytesIO(data))
    except ValueError as error:  # the package is whole and its main part is of another type
        raise DocumentRejected(
            "unsupported-type", "The file is a template or variant of DOCX; save it as plain DOCX."
        ) from error


def _all_blocks(document: Document, levels: Mapping[str, int]) -> Iterator[str]:
    yield from _blocks(document.element.body, levels)
    package = document.part.package
    for part in package.iter_parts() if package else ():
        for name, tag in _NOTES.items():
            if str(part.partname) == f"/word/{name}.xml":
                yield from _notes(parse_xml(part.blob), tag)


def _notes(root: Element, tag: str) -> Iterator[str]:
    for number, note in enumerate(root.iterchildren(tag), -1):  # the first two are separators, without text
        text = one_line(" ".join(_text(paragraph) for paragraph in note.iter(_PARAGRAPH)))
        yield f"[{number}] {text}" if text else ""


def _blocks(parent: Element, levels: Mapping[str, int]) -> Iterator[str]:
    items: list[str] = []
    for child in parent:
        if child.tag == _PARAGRAPH and _is_list_item(child, levels):
            items.append(_list_item(child))
            continue
        yield "\n".join(item for item in items if item)
        items = []
        if child.tag == _PARAGRAPH:
            yield _paragraph(child, levels)
        elif child.tag == _TABLE:
            yield from _table(child, levels)
        elif child.tag in _CONTENT:
            yield from _blocks(child, levels)
    yield "\n".join(item for item in items if item)


def _paragraph(paragraph: Element, levels: Mapping[str, int]) -> str:
    text = _text(paragraph).strip()
    level = _level(paragraph, levels)
    return f"{'#' * level} {one_line(text)}" if level and text else text


def _list_item(paragraph: Element) -> str:
    text = one_line(_text(paragraph))
    depth = paragraph.find(f"{qn('w:pPr')}/{qn('w:numPr')}/{qn('w:ilvl')}")
    indent = int(depth.get(_VALUE, "0")) if depth is not None else 0
    return f"{'  ' * min(indent, 8)}- {text}" if text else ""


def _is_list_item(paragraph: Element, levels: Mapping[str, int]) -> bool:
    numbered = paragraph.find(f"{qn('w:pPr')}/{qn('w:numPr')}") is not None
    return not _level(paragraph, levels) and (numbered or _style_id(paragraph).startswith("List"))


def _table(table: Element, levels: Mapping[str, int]) -> Iterator[str]:
    rows = [list(row.iterchildren(_CELL)) for row in table.iterchildren(_ROW)]
    if all(len(row) < 2 for row in rows):  # a frame around text
        for cell in (cell for row in rows for cell in row):
            yield from _blocks(cell, levels)
        return
    texts = [[" ".join(block for block in _blocks(cell, {}) if block) for cell in row] for row in rows if row]
    widest = max(len(row) for row in texts)
    yield markdown_table(row + [""] * (widest - len(row)) for row in texts if any(cell.strip() for cell in row))


def _text(element: Element) -> str:
    return "".join(_runs(element))


def _runs(element: Element) -> Iterator[str]:
    for child in element:
        if child.tag in _TEXT:
            yield child.text or ""
        elif child.tag in _GAPS:
            yield _GAPS[child.tag]
        elif child.tag not in _SKIPPED and not _is_hidden(child):
            yield from _runs(child)


def _is_hidden(run: Element) -> bool:
    mark = run.find(f"{qn('w:rPr')}/{qn('w:vanish')}")
    return mark is not None and mark.get(_VALUE, "true") not in _OFF


def _level(paragraph: Element, levels: Mapping[str, int]) -> int:
    own = paragraph.find(f"{qn('w:pPr')}/{qn('w:outlineLvl')}")
    if own is not None and (value := own.get(_VALUE, "")).isdigit():
        return int(value) + 1 if int(value) < 6 else 0
    return levels.get(_style_id(paragraph), 0)


def _style_id(paragraph: Element) -> str:
    style = paragraph.find(f"{qn('w:pPr')}/{qn('w:pStyle')}")
    return style.get(_VALUE, "") if style is not None else ""


def _heading_levels(document: Document) -> dict[str, int]:
    """Style id → heading level (1…6), by the built-in names and by the outline level that a style has or inherits."""
    styles: dict[str, Element] = {
        style.get(qn("w:styleId"), ""): style for style in document.styles.element.iterchildren(qn("w:style"))
    }
    return {name: level for name in styles if (level := _style_level(styles, name, _DEEPEST_STYLE))}


def _style_level(styles: Mapping[str, Element], name: str, depth: int) -> int:
    style = styles.get(name)
    if style is None or not depth:
        return 0
    label = _child_value(style, "w:name").lower()
    outline = style.find(f"{qn('w:pPr')}/{qn('w:outlineLvl')}")
    if label == "title":
        return 1
    if label.startswith("heading ") and label[8:].isdigit():
        return min(int(label[8:]), 6)
    if outline is not None and (value := outline.get(_VALUE, "")).isdigit():
        return int(value) + 1 if int(value) < 6 else 0
    return _style_level(styles, _child_value(style, "w:basedOn"), depth - 1)


def _child_value(element: Element, tag: str) -> str:
    child = element.find(qn(tag))
    return child.get(_VALUE, "") if child is not None else ""
