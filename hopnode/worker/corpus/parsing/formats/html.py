"""HTML pages: drops what a reader does not see, finds the content, and keeps it whole."""

import re

import trafilatura
from selectolax.lexbor import LexborHTMLParser, LexborNode

from hopnode.worker.corpus.parsing.formats.decode import decode
from hopnode.worker.corpus.parsing.formats.draft import Draft, RawDocument, check_length, one_line
from hopnode.worker.corpus.parsing.formats.html_markdown import markdown_of

_DECLARED = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_HEAD_BYTES = 4_096

_NEVER_READ = (
    "script, style, noscript, template, iframe, object, embed, svg, canvas, math annotation, dialog:not([open])"
)
_HIDDEN = '[hidden], [aria-hidden="true"], input, button, [role="navigation"], [role="search"]'
_AROUND = "nav, header, footer, aside"
_INVISIBLE_STYLE = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|opacity\s*:\s*0(?:\.0+)?\s*(?:;|$)|font-size\s*:\s*0(?:px|pt|em|rem|%)?\s*(?:;|$)"
    r"|(?:left|top|text-indent)\s*:\s*-\d{3,}",
    re.IGNORECASE,
)
_MAIN = ("main", '[role="main"]', "article")
_MAIN_SHARE = 0.4  # a <main> with less of the page's text than this is not the content
_EXTRACT_SHARE = 0.5  # an extraction that keeps less than this has lost content
_EMPHASIS = re.compile(r"\*\*([^*\n]+)\*\*")  # marks within a phrase keep a search from finding it
_ESCAPED = re.compile(r"\\([\\`*_{}\[\]()#+\-.!<>~])")


def read_html(raw: RawDocument) -> Draft:
    """The page's content as Markdown.

    A `<main>` or single `<article>` is taken whole: its author has said what the content is. Elsewhere trafilatura
    looks for the content. When that loses half of the text or any block of code, the whole page is kept. On a reference
    page with 30 code samples trafilatura kept 7.
    """
    declared = _DECLARED.search(raw.data[:_HEAD_BYTES])
    text, warnings = decode(raw.data, raw.charset or (declared[1].decode("ascii") if declared else None))
    tree = LexborHTMLParser(text)
    title = _title(tree)
    _clean(tree)
    body = tree.body
    markdown = _content(tree, body) if body else ""
    check_length(len(markdown), raw.max_characters)
    return Draft(kind="markdown", parts=(markdown,), title=title, warnings=warnings)


def _content(tree: LexborHTMLParser, body: LexborNode) -> str:
    everything = _visible(body)
    main = _main(tree)
    if main and _visible(main) >= _MAIN_SHARE * everything:
        return markdown_of(main)
    extracted = _extract(tree)
    samples = len(body.css("pre"))
    if len(one_line(extracted)) >= _EXTRACT_SHARE * everything and extracted.count("\n```") >= samples:
        return extracted
    return markdown_of(body)


def _clean(tree: LexborHTMLParser) -> None:
    for selector in (_NEVER_READ, _HIDDEN):
        for node in tree.css(selector):
            node.decompose()
    for node in tree.css("[style]"):
        if _INVISIBLE_STYLE.search(str(node.attributes.get("style") or "")):
            node.decompose()
    for node in tree.css(_AROUND):
        if not _inside_content(node):
            node.decompose()


def _inside_content(node: LexborNode) -> bool:
    """An article's own header holds its title; the header of a page holds the menu."""
    if node.tag in ("nav", "aside"):
        return False
    parent = node.parent
    while parent is not None:
        if parent.tag in ("main", "article", "section"):
            return True
        parent = parent.parent
    return False


def _main(tree: LexborHTMLParser) -> LexborNode | None:
    for selector in _MAIN:
        found = tree.css(selector)
        if len(found) == 1:
            return found[0]
    return None


def _extract(tree: LexborHTMLParser) -> str:
    markdown = trafilatura.extract(
        tree.html or "", output_format="markdown", include_comments=False, include_tables=True
    )
    parts = re.split(r"(^```.*?^```$)", markdown or "", flags=re.DOTALL | re.MULTILINE)
    return "".join(part if part.startswith("```") else _plain(part) for part in parts)


def _plain(markdown: str) -> str:
    return _ESCAPED.sub(r"\1", _EMPHASIS.sub(r"\1", markdown))


def _title(tree: LexborHTMLParser) -> str:
    social = tree.css_first('meta[property="og:title"]')
    if social and (content := social.attributes.get("content")):
        return one_line(content)
    for selector in ("title", "h1"):
        node = tree.css_first(selector)
        if node and (text := one_line(node.text(separator=" "))):
            return text
    return ""


def _visible(node: LexborNode) -> int:
    return len(one_line(node.text(separator=" ")))
