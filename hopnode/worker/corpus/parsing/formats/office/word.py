"""DOCX through python-docx: headings, lists and tables as Markdown; reads inserted text, and neither deleted nor hidden text."""

import io
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import docx
from docx.document import Document
from docx.oxml import parse_xml
from docx.oxml.ns import qn

from hopnode.worker.corpus.parsing.formats.draft import Draft, RawDocument, gather, markdown_table, one_line
from hopnode.worker.errors import DocumentRejected

Element = Any  # lxml ships no types

_PARAGRAPH, _TABLE, _CONTENT = qn("w:p"), qn("w:tbl"), (qn("w:sdt"), qn("w:sdtContent"), qn("w:ins"), qn("w:customXml"))
_PROPERTIES, _STYLE, _OUTLINE, _NUMBERING = qn("w:pPr"), qn("w:pStyle"), qn("w:outlineLvl"), qn("w:numPr")
_RUN_PROPERTIES, _VANISH, _DEPTH = qn("w:rPr"), qn("w:vanish"), qn("w:ilvl")
_ROW, _CELL, _VALUE = qn("w:tr"), qn("w:tc"), qn("w:val")
_TEXT = frozenset({qn("w:t"), "{http://schemas.openxmlformats.org/officeDocument/2006/math}t"})
_GAPS = {qn("w:tab"): "\t", qn("w:br"): "\n", qn("w:cr"): "\n", qn("w:noBreakHyphen"): "-"}
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_SKIPPED = frozenset({qn("w:del"), qn("w:moveFrom"), _PROPERTIES, _RUN_PROPERTIES, _FALLBACK})
_NOTES = {"footnotes": qn("w:footnote"), "endnotes": qn("w:endnote")}
_OFF = ("0", "false", "none", "off")
_DEEPEST_STYLE = 20
_DEEPEST_ITEM = 8


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
        block = _paragraph(child, levels) if child.tag == _PARAGRAPH else None
        if block and block.is_item:
            items.append(block.text)
            continue
        yield "\n".join(items)
        items = []
        if block:
            yield block.text
        elif child.tag == _TABLE:
            yield from _table(child, levels)
        elif child.tag in _CONTENT:
            yield from _blocks(child, levels)
    yield "\n".join(items)


class _Block(NamedTuple):
    text: str
    is_item: bool


def _paragraph(paragraph: Element, levels: Mapping[str, int]) -> _Block | None:
    """A heading, a list item or plain text; nothing for an empty paragraph."""
    text = _text(paragraph).strip()
    if not text:
        return None
    properties = paragraph.find(_PROPERTIES)
    found = {child.tag: child for child in properties} if properties is not None else {}
    style = _value(found.get(_STYLE))
    level = _outline_level(found[_OUTLINE]) if _OUTLINE in found else levels.get(style, 0)
    if level:
        return _Block(f"{'#' * level} {one_line(text)}", False)
    if _NUMBERING in found or style.startswith("List"):
        depth = _value(found[_NUMBERING].find(_DEPTH)) if _NUMBERING in found else ""
        indent = "  " * min(int(depth), _DEEPEST_ITEM) if depth.isdigit() else ""
        return _Block(f"{indent}- {one_line(text)}", True)
    return _Block(text, False)


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
    properties = run.find(_RUN_PROPERTIES)
    mark = properties.find(_VANISH) if properties is not None else None
    return mark is not None and mark.get(_VALUE, "true") not in _OFF


def _outline_level(element: Element) -> int:
    """A heading level (1…6) of an outline level, which counts from 0 and means body text from 9."""
    value = _value(element)
    return int(value) + 1 if value.isdigit() and int(value) < 6 else 0


def _value(element: Element | None) -> str:
    return element.get(_VALUE, "") if element is not None else ""


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
    label = _value(style.find(qn("w:name"))).lower()
    outline = style.find(f"{_PROPERTIES}/{_OUTLINE}")
    if label == "title":
        return 1
    if label.startswith("heading ") and label[8:].isdigit():
        return min(int(label[8:]), 6)
    if outline is not None:
        return _outline_level(outline)
    return _style_level(styles, _value(style.find(qn("w:basedOn"))), depth - 1)
