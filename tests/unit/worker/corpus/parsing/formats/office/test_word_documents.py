"""DOCX: headings by name, level and inheritance, lists, tables and notes, and only what a reader of the paper sees."""

import io
import zipfile

import pytest
from support.data import samples

from hopnode.worker.corpus.parsing.formats.draft import Draft, RawDocument
from hopnode.worker.corpus.parsing.formats.office.reader import read_office
from hopnode.worker.errors import DocumentRejected

NAMESPACE = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def paragraph(text: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def table(*rows: list[str]) -> str:
    """A table; a cell that begins with `<` is XML as it stands."""
    cells = [[one if one.startswith("<") else paragraph(one) for one in row] for row in rows]
    written = "".join(f"<w:tr>{''.join(f'<w:tc>{one}</w:tc>' for one in row)}</w:tr>" for row in cells)
    return f"<w:tbl>{written}</w:tbl>"


def read(data: bytes, **limits: int) -> Draft:
    return read_office(RawDocument(data, **limits))


def text_of(body: str) -> str:
    (part,) = read(samples.word_xml(body)).parts
    return part


def member(data: bytes, name: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read(name)


def with_styles(body: str, styles: str) -> bytes:
    """The body with these styles beside the built-in ones."""
    data = samples.word_xml(body)
    known = member(data, "word/styles.xml").decode()
    return samples.replaced(data, {"word/styles.xml": known.replace("</w:styles>", f"{styles}</w:styles>").encode()})


@pytest.mark.parametrize(
    ("properties", "mark"),
    [
        ('<w:pStyle w:val="Title"/>', "# "),
        ('<w:pStyle w:val="Heading1"/>', "# "),
        ('<w:pStyle w:val="Heading4"/>', "#### "),
        ('<w:pStyle w:val="Heading9"/>', "###### "),
        ('<w:outlineLvl w:val="1"/>', "## "),
        ('<w:outlineLvl w:val="9"/>', ""),
        ('<w:outlineLvl w:val="x"/>', ""),
        ('<w:pStyle w:val="Heading2"/><w:outlineLvl w:val="0"/>', "# "),
        ('<w:pStyle w:val="NoSuchStyle"/>', ""),
    ],
)
def test_a_heading_is_known_by_its_style_or_its_outline_level(properties: str, mark: str) -> None:
    assert text_of(paragraph("Keys", properties)) == f"{mark}Keys"


def test_a_style_of_ones_own_is_a_heading_when_what_it_builds_on_is_one() -> None:
    styles = (
        '<w:style w:type="paragraph" w:styleId="Mine"><w:name w:val="Mine"/><w:basedOn w:val="Middle"/></w:style>'
        '<w:style w:type="paragraph" w:styleId="Middle"><w:name w:val="Middle"/><w:basedOn w:val="Heading3"/></w:style>'
    )
    (part,) = read(with_styles(paragraph("Keys", '<w:pStyle w:val="Mine"/>'), styles)).parts
    assert part == "### Keys"


def test_styles_that_build_on_each_other_do_not_go_round_for_ever() -> None:
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="{one}"><w:name w:val="{one}"/><w:basedOn w:val="{other}"/></w:style>'
        for one, other in (("Hen", "Egg"), ("Egg", "Hen"))
    )
    (part,) = read(with_styles(paragraph("Keys", '<w:pStyle w:val="Hen"/>'), styles)).parts
    assert part == "Keys"


def test_items_of_a_list_stand_together_by_their_depth() -> None:
    def item(text: str, depth: str) -> str:
        return paragraph(text, f'<w:numPr><w:ilvl w:val="{depth}"/></w:numPr>')

    body = (
        paragraph("before") + item("a", "0") + item("b", "2") + item("c", "900") + item("d", "?") + paragraph("after")
    )
    assert text_of(body) == f"before\n\n- a\n    - b\n{' ' * 16}- c\n- d\n\nafter"


def test_tabs_breaks_and_hyphens_within_a_line_are_kept() -> None:
    run = "<w:t>a</w:t><w:tab/><w:t>b</w:t><w:br/><w:t>c</w:t><w:noBreakHyphen/><w:t>d</w:t>"
    assert text_of(f"<w:p><w:r>{run}</w:r></w:p>") == "a\tb\nc-d"


def test_links_fields_and_moved_text_read_as_they_are_printed() -> None:
    def run(text: str) -> str:
        return f"<w:r><w:t>{text}</w:t></w:r>"

    body = f"<w:hyperlink>{run('linked ')}</w:hyperlink><w:moveFrom>{run('moved away ')}</w:moveFrom>"
    body += f"<w:fldSimple>{run('dated ')}</w:fldSimple><w:moveTo>{run('moved here')}</w:moveTo>"
    assert text_of(f"<w:p>{body}</w:p>") == "linked dated moved here"


@pytest.mark.parametrize(
    ("mark", "seen"), [("<w:vanish/>", False), ('<w:vanish w:val="0"/>', True), ('<w:vanish w:val="false"/>', True)]
)
def test_hidden_text_is_hidden_only_where_its_mark_is_on(mark: str, seen: bool) -> None:
    run = f"<w:r><w:rPr>{mark}</w:rPr><w:t>secret</w:t></w:r>"
    assert ("secret" in text_of(f"<w:p><w:r><w:t>open </w:t></w:r>{run}</w:p>")) == seen


def test_a_drawing_with_a_fallback_is_read_once() -> None:
    compatible = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    box = "<w:r><w:t>in a box</w:t></w:r>"
    choice = f"<mc:Choice>{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback>"
    assert text_of(f"<w:p><mc:AlternateContent {compatible}>{choice}</mc:AlternateContent></w:p>") == "in a box"


def test_a_table_keeps_its_cells_in_their_columns_also_where_a_row_is_short() -> None:
    assert text_of(table(["a", "b"], ["x|y", "z"], ["only"])) == "| a | b |\n|---|---|\n| x\\|y | z |\n| only |  |"


def test_a_frame_of_one_cell_is_its_content() -> None:
    framed = table([paragraph("Keys", '<w:pStyle w:val="Heading1"/>') + paragraph("text")])
    assert text_of(framed) == "# Keys\n\ntext"


def test_a_table_without_text_leaves_no_trace() -> None:
    assert text_of(paragraph("before") + table(["", ""], ["", ""]) + paragraph("after")) == "before\n\nafter"


def test_notes_stand_behind_the_text_with_their_numbers() -> None:
    data = samples.word_xml(paragraph("text"))
    relation = (
        '<Relationship Id="rIdNotes" Target="footnotes.xml" '
        'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes"/>'
    )
    relations = member(data, "word/_rels/document.xml.rels").decode()
    kind = "application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml"
    types = member(data, "[Content_Types].xml").decode()
    separators = "<w:footnote><w:p/></w:footnote>" * 2
    notes = separators + "".join(f"<w:footnote>{paragraph(text)}</w:footnote>" for text in ("the first", "the second"))
    members = {
        "word/footnotes.xml": f"<w:footnotes {NAMESPACE}>{notes}</w:footnotes>",
        "word/_rels/document.xml.rels": relations.replace("</Relationships>", f"{relation}</Relationships>"),
        "[Content_Types].xml": types.replace(
            "</Types>", f'<Override PartName="/word/footnotes.xml" ContentType="{kind}"/></Types>'
        ),
    }
    (part,) = read(samples.replaced(data, {name: text.encode() for name, text in members.items()})).parts
    assert part == "text\n\n[1] the first\n\n[2] the second"


def test_the_title_is_the_first_heading_where_the_file_names_none() -> None:
    body = paragraph("before") + paragraph("Keys", '<w:pStyle w:val="Heading2"/>')
    assert read(samples.word_xml(body)).title == "Keys"
    assert read(samples.word_xml(paragraph("no heading"))).title == ""


def test_a_document_over_the_limit_is_too_large() -> None:
    with pytest.raises(DocumentRejected) as refused:
        read(samples.word_xml(paragraph("word " * 30) * 50), max_characters=1_000)
    assert refused.value.reason == "too-large"


def test_a_template_is_of_no_supported_type() -> None:
    data = samples.word_document()
    types = member(data, "[Content_Types].xml").replace(b"document.main+xml", b"template.main+xml")
    with pytest.raises(DocumentRejected, match="template") as refused:
        read(samples.replaced(data, {"[Content_Types].xml": types}))
    assert refused.value.reason == "unsupported-type"
