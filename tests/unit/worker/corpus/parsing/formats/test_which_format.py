"""What a document is: by its first bytes, then its media type, then its name; and what is never read, by name."""

import time

import pytest

from hopnode.worker.corpus.parsing.formats.detect import charset_of, detect, is_risky
from hopnode.worker.errors import DocumentRejected


def reason(data: bytes, media_type: str | None = None, filename: str | None = None) -> tuple[str, str]:
    with pytest.raises(DocumentRejected) as refused:
        detect(data, media_type, filename)
    return refused.value.reason, str(refused.value)


@pytest.mark.parametrize(
    "data",
    [
        b"<html>",
        b"<HTML lang=en>",
        b"<!doctype html><p>x",
        b"  \n<!DOCTYPE  HTML PUBLIC ''>",
        b"\xef\xbb\xbf<!doctype html>",
        b'<?xml version="1.0"?>\n<html xmlns="x">',
        b"<!-- saved from a site -->\n<!-- twice -->\n<html>",
    ],
)
def test_a_page_is_told_by_how_it_begins_whatever_it_is_called(data: bytes) -> None:
    assert detect(data, None, None) == "html"
    assert detect(data, "text/plain", "page.txt") == "html"
    assert detect(data, "application/pdf", "page.pdf") == "html"


@pytest.mark.parametrize("data", [b"<htmlish>", b"a <html>", b"<?xml version='1.0'?><rss>", b"<!doctype book>"])
def test_what_only_looks_like_a_page_is_none(data: bytes) -> None:
    assert detect(data, None, "a.txt") == "text"


def test_source_code_that_begins_as_a_page_stays_source_code() -> None:
    assert detect(b"<html><?php echo 1;", None, "index.php") == "code:php"


def test_a_hundred_open_comments_are_told_apart_in_no_time() -> None:
    """Whoever tries the comments in every way possible never ends."""
    data = b"<!-- a --> " * 300 + b"<!-- " * 100
    started = time.perf_counter()
    assert detect(data, None, None) == "text"
    assert time.perf_counter() - started < 1


def test_a_pdf_may_have_rubbish_before_its_header_but_not_much() -> None:
    assert detect(b"junk\n" * 10 + b"%PDF-1.7", None, None) == "pdf"
    assert detect(b"x" * 2_000 + b"%PDF-1.7", None, None) == "text"


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"{\\rtf1 a}", "RTF"),
        (b"\x89PNG\r\n", "image"),
        (b"GIF89a", "image"),
        (b"\x1f\x8b\x08", "unpack"),
        (b"BZh9", "unpack"),
        (b"7z\xbc\xaf\x27\x1c", "unpack"),
        (b"Rar!\x1a\x07\x01", "unpack"),
        (b"MZ\x90\x00", "program"),
        (b"SQLite format 3\x00", "database"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(99), "2007"),
    ],
)
def test_a_refusal_says_what_the_file_is(data: bytes, word: str) -> None:
    for filename in (None, "a.txt", "a.md"):
        told = reason(data, None, filename)
        assert told[0] == "unsupported-type"
        assert word in told[1]


@pytest.mark.parametrize("name", ["pdf", "docx", "xlsx", "pptx"])
def test_a_promise_that_the_bytes_do_not_keep_is_named(name: str) -> None:
    told = reason(b"plain words", None, f"report.{name}")
    assert told[0] == "corrupt"
    assert name.upper() in told[1]


def test_nothing_is_empty_whatever_was_promised() -> None:
    assert reason(b"", "application/pdf", "a.pdf")[0] == "empty"


@pytest.mark.parametrize(
    ("media_type", "filename", "found"),
    [
        ("text/csv", "a.md", "csv"),
        ("TEXT/CSV; header=present", None, "csv"),
        ("text/plain", "a.csv", "csv"),
        ("application/octet-stream", "table.TSV", "tsv"),
        ("application/jsonl", None, "jsonl"),
        (None, "notes.tar.md", "markdown"),
        (None, "C:\\files\\tool.PY", "code:python"),
        (None, "../up/../a.geojson", "json"),
        (None, ".md", "text"),
        (None, "Makefile", "text"),
        ("nonsense", "file.unknown", "text"),
        ("", "", "text"),
    ],
)
def test_media_type_and_name_decide_in_this_order(media_type: str | None, filename: str | None, found: str) -> None:
    assert detect(b"plain words", media_type, filename) == found


def test_archives_and_pages_are_read_apart_and_plain_text_is_not() -> None:
    apart = [detect(data, None, None) for data in (b"%PDF-1.7", b"PK\x03\x04", b"PK\x05\x06", b"<html>")]
    assert apart == ["pdf", "zip", "zip", "html"]
    assert all(map(is_risky, apart))
    assert not any(map(is_risky, ("text", "markdown", "csv", "json", "code:python")))


@pytest.mark.parametrize(
    ("media_type", "charset"),
    [
        ("text/plain; charset=utf-8", "utf-8"),
        ('text/html; Charset = "ISO-8859-1"', "ISO-8859-1"),
        ("text/html;charset='x-sjis';q=1", "x-sjis"),
        ("text/plain; charset=", None),
        ("text/plain", None),
        (None, None),
    ],
)
def test_the_charset_of_a_media_type(media_type: str | None, charset: str | None) -> None:
    assert charset_of(media_type) == charset
