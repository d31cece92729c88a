"""Every format becomes readable text with its title and pages; every broken file becomes a rejection with a reason."""

import os
import zlib

import pytest
from support.data import samples

from hopnode.worker.corpus.parsing.parser import parse
from hopnode.worker.corpus.records import ParsedDocument
from hopnode.worker.errors import DocumentRejected


def read(raw: bytes, filename: str | None = None, media_type: str | None = None) -> ParsedDocument:
    return parse(raw, media_type=media_type, filename=filename)


def reason(raw: bytes, filename: str | None = None, media_type: str | None = None) -> str:
    with pytest.raises(DocumentRejected) as caught:
        read(raw, filename, media_type)
    assert str(caught.value).endswith(".")
    return caught.value.reason


# --- PDF


def test_a_pdf_keeps_the_place_of_every_page() -> None:
    document = read(samples.pdf([["First page."], [samples.FACT], ["Last page."]], title="Handbook"))
    assert (document.kind, document.title) == ("text", "Handbook")
    assert [document.text[page.start : page.end] for page in document.pages] == [
        "First page.",
        samples.FACT,
        "Last page.",
    ]
    assert [page.number for page in document.pages] == [1, 2, 3]


def test_a_pdf_with_some_empty_pages_says_how_many() -> None:
    document = read(samples.pdf([[samples.FACT], [], ["end"], []]))
    assert document.warnings == ("2 of 4 pages hold no text (page 2, 4).",)
    assert document.text == f"{samples.FACT}\n\nend"
    assert [(page.start, page.end) for page in document.pages if page.number in (2, 4)] == [(51, 51), (56, 56)]


def test_a_pdf_of_pictures_needs_ocr() -> None:
    assert reason(samples.image_pdf()) == "needs-ocr"


def test_a_pdf_of_blank_pages_is_empty() -> None:
    assert reason(samples.pdf([[], []])) == "empty"


def test_a_pdf_with_a_password_is_encrypted() -> None:
    assert reason(samples.pdf([[samples.FACT]], password="secret")) == "encrypted"


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9, 0.98])
def test_a_truncated_pdf_is_corrupt(share: float) -> None:
    whole = samples.long_pdf(3)
    assert reason(whole[: int(len(whole) * share)], "a.pdf") == "corrupt"


def test_a_pdf_with_rubbish_inside_is_corrupt() -> None:
    assert reason(b"%PDF-1.4\n" + b"rubbish " * 100 + b"startxref\n0\n%%EOF") == "corrupt"


def test_printed_lines_of_a_pdf_become_paragraphs() -> None:
    lines = ["The node refuses requests that are signed with an expired key, since an exam-"]
    lines += [
        "ple of such a request was once replayed by somebody who had read the log",
        "of the proxy.",
        "Name Quota Region",
    ]
    text = read(samples.pdf([lines])).text
    assert "since an example of such a request was once replayed by somebody who had read the log of the proxy." in text
    assert text.endswith("\nName Quota Region")


def test_an_unlikely_metadata_title_gives_way_to_the_first_line() -> None:
    assert read(samples.pdf([["Handbook of Keys", "text"]], title="untitled"), "x.pdf").title == "Handbook of Keys"
    assert read(samples.pdf([["word " * 40]]), "notes.pdf").title == "notes"


# --- Office


def test_a_docx_becomes_markdown_with_headings_lists_and_tables() -> None:
    document = read(samples.word_document())
    assert (document.kind, document.title, document.pages) == ("markdown", "Handbook", ())
    assert f"# Retention\n\n{samples.FACT}\n\n## Exceptions\n\n- first exception\n- second exception" in document.text
    assert "| Name | Quota | Region |\n|---|---|---|\n| alpha | 120 | eu-1 |" in document.text


def test_a_docx_shows_what_a_reader_sees_and_nothing_else() -> None:
    run = "<w:r>{}<w:t>{}</w:t></w:r>"
    shown = run.format("", "kept") + f"<w:ins>{run.format('', ' inserted')}</w:ins>"
    hidden = "<w:del><w:r><w:delText>deleted</w:delText></w:r></w:del>" + run.format(
        "<w:rPr><w:vanish/></w:rPr>", "hidden"
    )
    control = f"<w:sdt><w:sdtContent><w:p>{run.format('', 'in a control')}</w:p></w:sdtContent></w:sdt>"
    text = read(samples.word_xml(f"<w:p>{shown}{hidden}</w:p>{control}")).text
    assert text == "kept inserted\n\nin a control"


def test_every_row_of_an_xlsx_carries_its_column_names() -> None:
    document = read(samples.workbook(), "plan.xlsx")
    assert (document.kind, document.title) == ("table", "plan")
    assert document.text.split("\n") == [
        "# Plan",
        "Name | Quota | Region",
        "Name: alpha | Quota: 120 | Region: eu-1",
        "Name: beta | Quota: 95 | Region: us-2",
        "Name: gamma | Quota: 7 | Region: ap-3",
    ]


def test_hidden_sheets_are_left_out_and_counted() -> None:
    document = read(samples.workbook(hidden=True))
    assert "show" not in document.text
    assert document.warnings == ("1 hidden sheets were left out.",)


def test_a_title_row_above_the_header_is_no_header() -> None:
    rows = [["Report 2026"], [], *samples.ROWS, ["delta", 1.5, None]]
    text = read(samples.workbook(rows)).text
    assert "Report 2026\nName | Quota | Region\nName: alpha" in text
    assert text.endswith("Name: delta | Quota: 1.5")


def test_a_slide_is_a_page_and_its_title_a_heading() -> None:
    document = read(samples.presentation(("Retention", "", "Quotas"), notes="Speak slowly."))
    assert [page.number for page in document.pages] == [1, 2, 3]
    third = document.pages[2]
    assert document.text[third.start : third.end] == f"## Quotas\n\nQuotas: {samples.FACT}\n\nNotes: Speak slowly."


def test_slides_without_text_are_counted() -> None:
    assert read(samples.presentation(("A", "", ""))).warnings == ("2 of 3 slides hold no text.",)


@pytest.mark.parametrize("make", [samples.word_document, samples.workbook, samples.presentation])
def test_a_truncated_office_file_is_corrupt(make: object) -> None:
    whole: bytes = make()  # type: ignore[operator]
    assert reason(whole[: len(whole) // 2]) == "corrupt"


def test_entities_that_explode_or_read_files_do_not() -> None:
    document = '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body><w:p><w:r>'
    ends = "<w:t>before &x;</w:t></w:r></w:p></w:body></w:document>"
    reads = f'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>{document}{ends}'
    assert "root:" not in read(samples.replaced(samples.word_document(), {"word/document.xml": reads.encode()})).text
    grows = "".join(f'<!ENTITY x{n} "{f"&x{n - 1};" * 10}">' for n in range(1, 10))
    bomb = f'<!DOCTYPE a [<!ENTITY x0 "ha">{grows}]>{document}{ends.replace("&x;", "&x9;")}'
    assert reason(samples.replaced(samples.word_document(), {"word/document.xml": bomb.encode()})) == "corrupt"


# --- archives


def test_a_zip_bomb_is_refused_before_it_is_unpacked() -> None:
    assert reason(samples.zip_bomb(), "a.docx") == "zip-bomb"


def test_an_archive_of_too_many_files_is_refused() -> None:
    assert reason(samples.many_members(10_001)) == "zip-bomb"


def test_an_archive_that_lies_about_sizes_is_corrupt() -> None:
    assert reason(samples.lying_zip()) == "corrupt"


def test_locked_archives_and_office_files_are_encrypted() -> None:
    assert reason(samples.locked_zip()) == "encrypted"
    assert reason(samples.locked_office(), "a.xlsx") == "encrypted"


def test_other_archives_are_of_no_supported_type() -> None:
    assert reason(samples.many_members(3), "a.docx") == "unsupported-type"
    assert reason(samples.replaced(samples.word_document(), {"word/vbaProject.bin": b"x"})) == "unsupported-type"


# --- HTML

_PROSE = "<p>" + samples.SENTENCE * 6 + "</p>"


def test_the_main_part_of_a_page_becomes_markdown_without_loss() -> None:
    body = f"<main><h1>Keys<a href=#keys>¶</a></h1>{_PROSE}<h2>Run</h2><pre><code class=language-bash>hop run\n  --all</code></pre>"
    body += "<ul><li>one<ul><li>sub</li></ul></li><li>two</li></ul><p>A <code>to_string_lossy</code> call<br>ends.</p>"
    body += "<table><tr><th>Name</th><th>Quota</th></tr><tr><td>a|b</td><td>1</td></tr></table></main>"
    document = read(samples.page(body))
    assert (document.kind, document.title) == ("markdown", "Handbook")
    assert document.text.startswith("# Keys\n\nOperators rotate")
    assert (
        "## Run\n\n```bash\nhop run\n  --all\n```\n\n- one\n  - sub\n- two\n\nA `to_string_lossy` call\nends."
        in document.text
    )
    assert document.text.endswith("| Name | Quota |\n|---|---|\n| a\\|b | 1 |")
    assert "Menu" not in document.text and "Imprint" not in document.text


def test_a_page_without_a_main_part_loses_menu_and_footer() -> None:
    text = read(samples.page(f"<div><h1>Keys</h1>{_PROSE * 3}<p>The call to_string_lossy() is free.</p></div>")).text
    assert text.startswith("# Keys")
    assert "The call to_string_lossy() is free." in text
    assert "Menu" not in text and "Imprint" not in text


@pytest.mark.parametrize(
    "hidden",
    [
        "<!-- planted -->",
        "<script>planted</script>",
        "<style>planted</style>",
        "<p hidden>planted</p>",
        "<p style='display: none'>planted</p>",
        "<p style='color:red; visibility:hidden'>planted</p>",
        "<p style='position:absolute;left:-9999px'>planted</p>",
        "<p style='font-size:0'>planted</p>",
        "<span aria-hidden=true>planted</span>",
        "<template><p>planted</p></template>",
        "<noscript>planted</noscript>",
    ],
)
@pytest.mark.parametrize("main", ["main", "div"])
def test_what_a_page_hides_is_not_read(hidden: str, main: str) -> None:
    text = read(samples.page(f"<{main}>{_PROSE}{hidden}{_PROSE}</{main}>")).text
    assert "planted" not in text
    assert "expired key" in text


def test_a_thin_page_is_kept_whole() -> None:
    assert (
        read(samples.page("<div><span>Only</span> <b>five</b> words are here</div>")).text == "Only five words are here"
    )


def test_deep_nesting_does_no_harm() -> None:
    assert read(samples.page("<div>" * 3_000 + samples.FACT)).text == samples.FACT


def test_a_page_in_another_charset_is_read_as_it_declares() -> None:
    page = f"<html><head><meta charset=shift_jis></head><body><main><p>{samples.JAPANESE}</p></main></body></html>"
    assert samples.JAPANESE in read(page.encode("shift_jis")).text


# --- text


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (samples.GERMAN, "latin-1"),
        (samples.GERMAN, "cp1252"),
        (samples.GERMAN, "utf-16"),
        (samples.GERMAN, "utf-16-le"),
        (samples.GERMAN, "utf-8-sig"),
        (samples.JAPANESE, "shift_jis"),
        (samples.JAPANESE, "euc_jp"),
        (samples.JAPANESE, "iso2022_jp"),
        (samples.JAPANESE, "utf-16"),
        (samples.KOREAN, "euc_kr"),
    ],
)
def test_text_is_read_in_the_encoding_that_it_has(text: str, encoding: str) -> None:
    assert read(text.encode(encoding), "notes.txt").text == text


def test_a_guessed_encoding_is_named_in_a_warning_and_a_declared_one_is_not() -> None:
    assert "it was read as" in read(samples.GERMAN.encode("latin-1")).warnings[0]
    assert not read(samples.GERMAN.encode("latin-1"), media_type="text/plain; charset=iso-8859-1").warnings


def test_broken_bytes_in_utf8_do_not_spoil_the_rest() -> None:
    document = read((samples.JAPANESE * 20).encode()[:-1])
    assert document.text.startswith(samples.JAPANESE)
    assert document.warnings == ("1 byte sequences are not valid UTF-8 and were replaced.",)


@pytest.mark.parametrize("size", [40, 400, 40_000])
def test_random_bytes_are_no_text(size: int) -> None:
    assert reason(os.urandom(size - 1) + b"\x00", "notes.txt") == "unsupported-type"


@pytest.mark.parametrize(
    "raw", [b"\x89PNG\r\n\x1a\n....", b"\xff\xd8\xff\xe0", b"{\\rtf1 text}", b"\x7fELF..", zlib.compress(bytes(999))]
)
def test_other_kinds_of_files_are_named_and_refused(raw: bytes) -> None:
    assert reason(raw, "file.txt") == "unsupported-type"


@pytest.mark.parametrize("raw", [b"", b" \n\t\n", "\u200b\ufeff".encode()])
def test_a_document_without_text_is_empty(raw: bytes) -> None:
    assert reason(raw, "a.md") == "empty"


def test_text_over_the_limit_is_too_large() -> None:
    for raw, name in ((b"word " * 50, "a.txt"), (samples.word_document(), None), (samples.long_pdf(1), None)):
        with pytest.raises(DocumentRejected) as caught:
            parse(raw, media_type=None, filename=name, max_characters=200)
        assert caught.value.reason == "too-large"


# --- which format


@pytest.mark.parametrize(
    ("filename", "media_type", "kind"),
    [
        ("a.md", None, "markdown"),
        ("a.md", "text/plain", "markdown"),
        ("a.md", "application/octet-stream", "markdown"),
        ("a.txt", "text/markdown; charset=utf-8", "markdown"),
        ("dir/a.py", None, "code:python"),
        ("a.TSX", None, "code:tsx"),
        ("a.rs", "text/plain", "code:rust"),
        ("a.kt", None, "code:kotlin"),
        ("LICENSE", None, "text"),
        (None, None, "text"),
    ],
)
def test_the_name_decides_where_media_type_and_content_do_not(
    filename: str | None, media_type: str | None, kind: str
) -> None:
    assert read(b"alpha beta", filename, media_type).kind == kind


def test_the_content_decides_before_name_and_media_type() -> None:
    assert read(samples.pdf([[samples.FACT]]), "a.docx", "text/plain").text == samples.FACT
    assert read(samples.page(f"<main>{samples.FACT}</main>"), "a.pdf", "application/pdf").text == samples.FACT


def test_a_promised_pdf_that_is_none_is_corrupt() -> None:
    assert reason(b"no pdf at all", "a.pdf") == "corrupt"
    assert (
        reason(b"no workbook", None, "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet") == "corrupt"
    )


def test_the_title_comes_from_the_text_and_last_from_the_name() -> None:
    assert read(b"---\r\ntitle: 'Front'\r\n---\r\n# First\r\n", "a.md").title == "Front"
    assert read(b"Intro\n\n```\n# not this\n```\n\n# First\n", "a.md").title == "First"
    assert read(b"no heading", "C:\\files\\notes.v2.txt").title == "notes.v2"


# --- tables, JSON, notebooks


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_a_csv_is_read_with_the_delimiter_that_it_has(delimiter: str) -> None:
    document = read(samples.table_csv(delimiter), "a.csv")
    assert document.kind == "table"
    assert "\nName: beta | Quota: 95 | Region: us-2\n" in document.text


def test_a_csv_keeps_long_cells_quotes_and_line_ends_within_cells() -> None:
    rows = [("Title", "Text"), ("x", 'He said "no";\nshe said, "yes"'), ("long", "y" * 200_000)]
    text = read(samples.table_csv(rows=rows), media_type="text/csv").text
    assert 'Title: x | Text: He said "no"; she said, "yes"\n' in text
    assert "y" * 200_000 in text


def test_numbers_alone_are_no_header() -> None:
    assert read(b"1,2\n3,4\n", "a.csv").text == "1 | 2\n3 | 4"


def test_json_becomes_one_readable_line_for_every_value() -> None:
    raw = b'[{"name": "alpha", "limits": {"daily": 2.50, "tags": ["x", "y"], "off": false, "none": null}}, {"name": "beta"}]'
    assert (
        read(raw, "a.json").text
        == "name: alpha\nlimits.daily: 2.50\nlimits.tags: x, y\nlimits.off: false\n\nname: beta"
    )


def test_json_lines_are_records_and_bad_lines_stay_as_text() -> None:
    document = read(b'{"a": 12345678901234567890}\nnot json\n{"a": [{"b": 1}]}\n', "a.jsonl")
    assert document.text == "a: 12345678901234567890\n\nnot json\n\na[0].b: 1"
    assert document.warnings == ("1 of 3 lines are not valid JSON; they were read as text.",)


@pytest.mark.parametrize("raw", [b'{"a": 1,}', b"[" * 100_000 + b"]" * 100_000])
def test_what_only_looks_like_json_stays_as_text(raw: bytes) -> None:
    document = read(raw, "a.json")
    assert document.text == raw.decode()
    assert document.warnings


def test_a_notebook_keeps_text_code_and_text_output() -> None:
    document = read(samples.notebook(), "a.ipynb")
    assert (document.kind, document.title) == ("markdown", "Retention")
    assert document.text == f"# Retention\n{samples.FACT}\n\n```python\nprint(42)\n```\n\n```\n42\n```"


def test_a_file_that_is_no_notebook_is_corrupt() -> None:
    for raw in (b"[]", b"{", b'{"cells": 3}', b'{"cells": [1]}'):
        assert reason(raw, "a.ipynb") == "corrupt"
