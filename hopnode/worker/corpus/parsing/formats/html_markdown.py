"""Turns a cleaned HTML tree into Markdown without losing or escaping text; decides nothing about what matters on a page."""

import re
from collections.abc import Iterator

from selectolax.lexbor import LexborNode

from hopnode.worker.corpus.parsing.formats.draft import markdown_table, one_line

_HEADINGS = {f"h{level}": "#" * level for level in range(1, 7)}
# Every element that starts a new block of text; all others run on within a line.
_BLOCK_NAMES = """
address article aside blockquote body center dd details div dl dt fieldset figcaption figure footer form header hgroup
hr html legend li main nav ol optgroup option p pre search section select summary table tbody td tfoot th thead tr ul
"""
_BLOCKS = frozenset(_BLOCK_NAMES.split()) | frozenset(_HEADINGS)
_DEEPEST = 120
_ANCHORS = "§¶ "  # what documentation generators show as a link beside a heading
_SPACE = re.compile(r"[ \t\n\r\f]+")
_LANGUAGE = re.compile(r"(?:(?:language|lang|highlight(?:-source)?)[-_]|brush:\s*)([A-Za-z0-9+#]+)")


def markdown_of(root: LexborNode) -> str:
    """The text of `root` in document order: headings, lists, code fences, quotes and tables as Markdown."""
    return "\n\n".join(block for block in _blocks(root, 0) if block.strip())


def _blocks(node: LexborNode, depth: int) -> Iterator[str]:
    """Blocks of text below `node`; runs of inline nodes between block elements become paragraphs."""
    inline: list[str] = []
    for child in node.iter(include_text=True):
        if _is_inline(child):
            inline.append(_inline(child, depth))
            continue
        yield _paragraph(inline)
        inline = []
        yield from _block(child, depth + 1)
    yield _paragraph(inline)


def _block(node: LexborNode, depth: int) -> Iterator[str]:
    tag = node.tag or ""
    if depth > _DEEPEST:
        yield one_line(node.text(separator=" "))
    elif tag in _HEADINGS:
        title = one_line(_inline_children(node, depth)).strip(_ANCHORS)
        yield f"{_HEADINGS[tag]} {title}" if title else ""
    elif tag == "pre":
        yield _code(node)
    elif tag in ("ul", "ol"):
        yield _list(node, depth)
    elif tag == "table":
        yield from _table(node, depth)
    elif tag == "blockquote":
        quoted = "\n\n".join(block for block in _blocks(node, depth) if block.strip())
        yield "\n".join(f"> {line}".rstrip() for line in quoted.split("\n")) if quoted else ""
    else:
        yield from _blocks(node, depth)


def _code(node: LexborNode) -> str:
    text = node.text().strip("\n")
    longest = max((len(run) for run in re.findall("`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    code = node.css_first("code")
    names = " ".join(str(one.attributes.get("class") or "") for one in (code, node, node.parent) if one)
    language = _LANGUAGE.search(names)
    return f"{fence}{language[1] if language else ''}\n{text}\n{fence}" if text.strip() else ""


def _list(node: LexborNode, depth: int) -> str:
    items: list[str] = []
    for child in node.iter():
        mark = f"{len(items) + 1}. " if node.tag == "ol" else "- "
        blocks = [block for block in _blocks(child, depth + 1) if block.strip()]
        if not blocks:
            continue
        lines = "\n".join(blocks).split("\n")
        rest = [f"{' ' * len(mark)}{line}".rstrip() for line in lines[1:]]
        items.append("\n".join([mark + lines[0], *rest]))
    return "\n".join(items)


def _table(node: LexborNode, depth: int) -> Iterator[str]:
    """A grid becomes a Markdown table; a table that only lays out a page (one column, or tables within) its content."""
    rows = [row for row in node.css("tr") if _owner(row) == node.mem_id]
    cells = [[cell for cell in row.iter() if cell.tag in ("td", "th")] for row in rows]
    widest = max((len(row) for row in cells), default=0)
    caption = node.css_first("caption")
    if caption:
        yield one_line(caption.text(separator=" "))
    if widest < 2 or node.css_first("table table"):
        for row in cells:
            for cell in row:
                yield from _blocks(cell, depth + 1)
        return
    texts = [[" ".join(block for block in _blocks(cell, depth + 1) if block) for cell in row] for row in cells if row]
    yield markdown_table([row + [""] * (widest - len(row)) for row in texts if any(row)])


def _owner(row: LexborNode) -> int | None:
    parent = row.parent
    while parent is not None and parent.tag != "table":
        parent = parent.parent
    return parent.mem_id if parent is not None else None


def _is_inline(node: LexborNode) -> bool:
    """Text and inline elements, unless a block hides inside an inline element (a link around a heading)."""
    tag = node.tag or ""
    if tag.startswith("-"):
        return True
    return tag not in _BLOCKS and not any((child.tag or "") in _BLOCKS for child in node.iter())


def _inline(node: LexborNode, depth: int) -> str:
    tag = node.tag or ""
    if node.is_text_node:
        return _SPACE.sub(" ", node.text_content or "")
    if tag.startswith("-"):
        return ""
    if tag == "br":
        return "\n"
    if depth > _DEEPEST:
        return _SPACE.sub(" ", node.text(separator=" "))
    if tag in ("code", "kbd", "samp"):
        code = one_line(node.text())
        return f"`{code}`" if code and "`" not in code else code
    return _inline_children(node, depth)


def _inline_children(node: LexborNode, depth: int) -> str:
    return "".join(_inline(child, depth + 1) for child in node.iter(include_text=True))


def _paragraph(parts: list[str]) -> str:
    lines = "".join(parts).split("\n")
    return "\n".join(line for line in (one_line(line) for line in lines) if line)
