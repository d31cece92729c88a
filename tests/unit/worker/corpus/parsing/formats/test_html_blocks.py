"""Blocks of a page become Markdown that reads as the page does: lists, code, quotes, tables, and nothing hidden."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from hopnode.worker.corpus.parsing.formats.draft import Draft, RawDocument
from hopnode.worker.corpus.parsing.formats.html import read_html
from hopnode.worker.corpus.parsing.formats.html_markdown import markdown_of
from hopnode.worker.errors import DocumentRejected

WORDS = st.text("abcdefgh", min_size=1, max_size=6)
PROSE = "Operators rotate keys every quarter, and the node refuses requests signed with an expired key. " * 4


def markdown(body: str) -> str:
    tree = LexborHTMLParser(f"<body>{body}</body>")
    assert tree.body is not None
    return markdown_of(tree.body)


def read(page: str | bytes, charset: str | None = None) -> Draft:
    return read_html(RawDocument(page.encode() if isinstance(page, str) else page, charset=charset))


def text_of(draft: Draft) -> str:
    (part,) = draft.parts
    return part


@st.composite
def trees(draw: st.DrawFn, depth: int = 4) -> tuple[str, list[str]]:
    """HTML of nested elements, and its words in the order in which a reader meets them."""
    html, words = "", list[str]()
    for _ in range(draw(st.integers(1, 3))):
        if depth and draw(st.booleans()):
            name = draw(st.sampled_from(["div", "p", "b", "span", "section", "h2", "ul", "blockquote", "a"]))
            inner, found = draw(trees(depth=depth - 1))
            html += f"<{name}><li>{inner}</li></{name}>" if name == "ul" else f"<{name}>{inner}</{name}>"
        else:
            found = [draw(WORDS)]
            html += f" {found[0]} "
        words += found
    return html, words


@settings(max_examples=40, deadline=None)
@given(trees())
def test_no_word_of_a_tree_is_lost_doubled_or_moved(tree: tuple[str, list[str]]) -> None:
    html, words = tree
    told = markdown(html)
    assert [word for word in told.replace("#", " ").replace(">", " ").replace("- ", " ").split() if word] == words


@pytest.mark.parametrize(
    ("html", "written"),
    [
        ("<dl><dt>Term</dt><dd>Meaning</dd></dl>", "Term\n\nMeaning"),
        ("<ol><li>a<ol><li>b</ol><li>c</ol>", "1. a\n   1. b\n2. c"),
        ("<ol><li></li><li>x</li></ol>", "1. x"),
        ("<ul><li><p>one</p><p>more</p></li></ul>", "- one\n  more"),
        ("<ul><li>run<pre>a\nb</pre></li></ul>", "- run\n  ```\n  a\n  b\n  ```"),
        ("<blockquote><p>one</p><p>two</p></blockquote>", "> one\n>\n> two"),
        ("<p>a<br>b<br><br>c", "a\nb\nc"),
        ("<p>H<sub>2</sub>O and <b>bold</b>ly", "H2O and boldly"),
        ("<p>Press <kbd>Ctrl</kbd> or <code>a`b</code>", "Press `Ctrl` or a`b"),
        ("<p>&lt;b&gt; &amp; &copy;", "<b> & ©"),
        ("<a href=x><h2>Linked</h2></a>", "## Linked"),
        ("<h2>Keys <a href=#k>¶</a></h2><h3>§</h3><p>x", "## Keys\n\nx"),
        ("<h6>low</h6>text", "###### low\n\ntext"),
        ("a <i>run <b>of</b></i> words<div>apart</div>and on", "a run of words\n\napart\n\nand on"),
        ("<details><summary>More</summary>inside</details>", "More\n\ninside"),
    ],
)
def test_a_block_is_written_as_it_reads(html: str, written: str) -> None:
    assert markdown(html) == written


@pytest.mark.parametrize(
    ("html", "written"),
    [
        ("<pre>  a\n\n    b\n</pre>", "```\n  a\n\n    b\n```"),
        ("<pre>a ``` b</pre>", "````\na ``` b\n````"),
        ("<pre>a ````` b</pre>", "``````\na ````` b\n``````"),
        ("<pre><code class='x lang-py y'>a</code></pre>", "```py\na\n```"),
        ("<div class=highlight-source-rust><pre>a</pre></div>", "```rust\na\n```"),
        ("<pre class='brush: c++'>a</pre>", "```c++\na\n```"),
        ("<pre>a<span>b</span>\n<b>c</b></pre>", "```\nab\nc\n```"),
        ("<pre> \n </pre><p>x", "x"),
    ],
)
def test_code_keeps_its_lines_its_spaces_and_its_language(html: str, written: str) -> None:
    assert markdown(html) == written


@pytest.mark.parametrize(
    ("html", "written"),
    [
        ("<table><tr><th>a<th>b<tr><td>1<td>2</table>", "| a | b |\n|---|---|\n| 1 | 2 |"),
        ("<table><tr><th>a<th>b<tr><td>1</table>", "| a | b |\n|---|---|\n| 1 |  |"),
        ("<table><tr><th>a<th>b<tr><td>x|y<td>p<br>q</table>", "| a | b |\n|---|---|\n| x\\|y | p q |"),
        ("<table><thead><tr><th>a<th>b<tbody><tr><td>1<td>2</table>", "| a | b |\n|---|---|\n| 1 | 2 |"),
        ("<table><caption>Quotas</caption><tr><th>a<th>b<tr><td>1<td>2</table>", "Quotas\n\n| a | b |\n|---|---|\n| 1 | 2 |"),
        ("<table><tr><td>only<tr><td>one</table>", "only\n\none"),
        ("<table><tr><td><table><tr><td>x<td>y</table><td>z</table>", "x\n\ny\n\nz"),
        ("<table><tr><td><td></table>after", "after"),
    ],
)  # fmt: skip
def test_a_grid_is_a_table_and_a_table_for_layout_is_its_content(html: str, written: str) -> None:
    assert markdown(html).strip() == written


def test_elements_without_end_are_read_to_their_last_word() -> None:
    for name in ("div", "blockquote", "ul><li", "span", "b"):
        assert markdown(f"<{name}>" * 2_000 + "core").endswith("core")


def test_a_main_part_is_taken_when_it_holds_the_content_and_not_when_it_is_a_shell() -> None:
    whole = text_of(read(f"<body><main><p>{PROSE}</p></main><div><p>Beside</p></div>"))
    assert whole == PROSE.strip()
    shell = text_of(read(f"<body><main><p>Loading</p></main><div><p>{PROSE}</p></div>"))
    assert PROSE.strip() in shell


def test_of_several_articles_none_is_the_page() -> None:
    articles = "".join(f"<article><h2>Story {number}</h2><p>{PROSE}</p></article>" for number in range(3))
    text = text_of(read(f"<body>{articles}"))
    assert all(f"Story {number}" in text for number in range(3))


def test_a_page_keeps_every_block_of_code() -> None:
    samples = "".join(f"<p>{PROSE[:60]}</p><pre>call_{number}()</pre>" for number in range(30))
    text = text_of(read(f"<body><div>{samples}</div>"))
    assert all(f"call_{number}()" in text for number in range(30))


def test_a_header_within_an_article_holds_its_title_and_that_of_the_page_its_menu() -> None:
    inside = f"<article><header><h1>Keys</h1></header><p>{PROSE}</p><footer>Written in May</footer></article>"
    text = text_of(read(f"<body><header>Menu</header>{inside}<aside>Advert</aside><footer>Imprint</footer>"))
    assert "# Keys" in text
    assert "Written in May" in text
    assert not any(word in text for word in ("Menu", "Advert", "Imprint"))


@pytest.mark.parametrize(
    ("head", "title"),
    [
        ("<title>A &amp;  B</title>", "A & B"),
        ("<title>Plain</title><meta property='og:title' content='Social'>", "Social"),
        ("<title></title><meta property='og:title'>", "First"),
        ("<title> \n </title>", "First"),
    ],
)
def test_the_title_of_a_page(head: str, title: str) -> None:
    assert read(f"<html><head>{head}</head><body><h1>First</h1><h1>Second</h1>").title == title


def test_a_page_without_any_title_has_none() -> None:
    assert read("<body><p>x").title == ""


@pytest.mark.parametrize(
    ("encoding", "declared", "served"),
    [
        ("utf-8", "latin-1", "utf-8"),
        ("latin-1", "koi8-r", "iso-8859-1"),
        ("koi8-r", "koi8-r", None),
        ("utf-8", None, None),
        ("utf-16", "utf-8", None),
    ],
)
def test_the_charset_of_the_server_goes_before_that_of_the_page(
    encoding: str, declared: str | None, served: str | None
) -> None:
    word = "Größe" if encoding != "koi8-r" else "Ключ"
    meta = f'<meta http-equiv=Content-Type content="text/html; charset={declared}">' if declared else ""
    page = f"<html><head>{meta}</head><body><main><p>{word}</p></main></body></html>"
    assert text_of(read(page.encode(encoding), served)) == word


def test_a_page_over_the_limit_is_too_large() -> None:
    with pytest.raises(DocumentRejected) as refused:
        read_html(RawDocument(f"<main><p>{PROSE}".encode(), max_characters=100))
    assert refused.value.reason == "too-large"
