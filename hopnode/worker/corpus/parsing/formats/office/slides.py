"""PPTX through python-pptx: a slide is a page, its title a heading, its notes belong to it."""

import io
from collections.abc import Iterable, Iterator
from itertools import accumulate

import pptx
from pptx.enum.shapes import MSO_SHAPE_TYPE
from pptx.presentation import Presentation
from pptx.shapes.autoshape import Shape
from pptx.shapes.base import BaseShape
from pptx.shapes.graphfrm import GraphicFrame
from pptx.shapes.group import GroupShape
from pptx.slide import Slide
from pptx.text.text import TextFrame

from hopnode.worker.corpus.parsing.formats.draft import Draft, RawDocument, check_length, markdown_table, one_line
from hopnode.worker.errors import DocumentRejected

_DEEPEST_GROUP = 20


def read_pptx(raw: RawDocument) -> Draft:
    """Slides as parts; a warning says how many hold no text (pictures, drawings)."""
    deck = _open(raw.data)
    slides = [_slide(slide) for slide in deck.slides]
    for characters in accumulate(map(len, slides)):
        check_length(characters, raw.max_characters)
    silent = sum(not text for text in slides)
    if slides and silent == len(slides):
        raise DocumentRejected("needs-ocr", "None of the slides holds text.")
    title = one_line(deck.core_properties.title or "")
    if not title or title == "PowerPoint Presentation":
        title = next((one_line(text.split("\n")[0].lstrip("#")) for text in slides if text), "")
    warnings = (f"{silent} of {len(slides)} slides hold no text.",) if silent else ()
    return Draft(kind="markdown", parts=tuple(slides), paged=True, title=title, warnings=warnings)


def _open(data: bytes) -> Presentation:
    try:
        return pptx.Presentation(io.BytesIO(data))
    except ValueError as error:  # the package is whole and its main part is of another type
        raise DocumentRejected("unsupported-type", "The file is a template or show; save it as plain PPTX.") from error


def _slide(slide: Slide) -> str:
    title_shape = slide.shapes.title
    title = one_line(title_shape.text_frame.text) if title_shape is not None else ""
    blocks = [f"## {title}"] if title else []
    others = (shape for shape in slide.shapes if title_shape is None or shape.shape_id != title_shape.shape_id)
    blocks += [block for block in _shapes(others, _DEEPEST_GROUP) if block]
    if slide.has_notes_slide and (notes := slide.notes_slide.notes_text_frame) is not None and notes.text.strip():
        blocks.append(f"Notes: {_paragraphs(notes)}")
    return "\n\n".join(blocks)


def _shapes(shapes: Iterable[BaseShape], depth: int) -> Iterator[str]:
    """Text of shapes in reading order: from the top, and from the left within the same height."""
    for shape in sorted(shapes, key=lambda one: (one.top or 0, one.left or 0)):
        if isinstance(shape, GroupShape) or shape.shape_type == MSO_SHAPE_TYPE.GROUP:
            if depth and isinstance(shape, GroupShape):
                yield from _shapes(shape.shapes, depth - 1)
        elif isinstance(shape, GraphicFrame) and shape.has_table:
            yield markdown_table([cell.text for cell in row.cells] for row in shape.table.rows)
        elif isinstance(shape, Shape) and shape.has_text_frame:
            yield _paragraphs(shape.text_frame)


def _paragraphs(frame: TextFrame) -> str:
    lines = [(paragraph.level, one_line(paragraph.text)) for paragraph in frame.paragraphs]
    return "\n".join(f"{'  ' * (level - 1)}- {text}" if level else text for level, text in lines if text)
