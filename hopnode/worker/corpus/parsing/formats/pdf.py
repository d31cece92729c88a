"""PDF text through PDFium, a part for every page; tells apart damaged, encrypted, scanned and merely patchy files."""

import re

import pypdfium2 as pdfium
from pypdfium2.raw import FPDF_ERR_PASSWORD, FPDF_PAGEOBJ_IMAGE

from hopnode.worker.corpus.parsing.formats.draft import Draft, RawDocument, check_length, one_line
from hopnode.worker.corpus.parsing.formats.reflow import reflow
from hopnode.worker.errors import DocumentRejected

_TAIL_BYTES = 4_096
_MOST_UNREADABLE = 0.3
_LONGEST_TITLE = 120
_MOST_PAGES_NAMED = 10
# Replacement marks, private use, and glyphs without a Unicode meaning: a font that hides its text from readers.
_UNREADABLE = re.compile("[\ufffd\ue000-\uf8ff\x00-\x08\x0e-\x1f]")
_LIGATURES = str.maketrans(
    {"\ufb00": "ff", "\ufb01": "fi", "\ufb02": "fl", "\ufb03": "ffi", "\ufb04": "ffl", "\ufb05": "st", "\ufb06": "st"}
)
_EMPTY_TITLES = re.compile(
    r"\(?(?:anonymous|untitled|unspecified|none|null|title)\)?|.*\.(?:docx?|indd|qxd|tex|dvi|pdf|pptx?|xlsx?|ps)",
    re.IGNORECASE,
)
_APPLICATION = re.compile(r"Microsoft (?:Word|PowerPoint|Excel) - ", re.IGNORECASE)


def read_pdf(raw: RawDocument) -> Draft:
    """Pages as parts, title from the metadata or the first line.

    Raises `DocumentRejected`: `corrupt` (also for a cut-off file from which PDFium could save some pages), `encrypted`,
    `needs-ocr` when pages hold pictures and no text, `empty`.
    """
    if b"startxref" not in raw.data.rstrip(b"\x00\r\n\t ")[-_TAIL_BYTES:]:
        raise DocumentRejected("corrupt", "The PDF is cut off: its end is missing.")
    document = _open(raw.data)
    try:
        pages, damaged = _pages(document, raw.max_characters)
        silent = [number for number, text in enumerate(pages, 1) if not text and number not in damaged]
        if not any(pages):
            raise _without_text(document, damaged)
        title = _title(document) or _first_line(pages)
    finally:
        document.close()
    return Draft(
        kind="text", parts=tuple(pages), paged=True, title=title, warnings=_warnings(len(pages), silent, damaged)
    )


def _open(data: bytes) -> pdfium.PdfDocument:
    try:
        return pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        if getattr(error, "err_code", None) == FPDF_ERR_PASSWORD:
            raise DocumentRejected("encrypted", "The PDF is protected by a password.") from error
        raise DocumentRejected("corrupt", "The PDF is damaged and cannot be opened.") from error


def _pages(document: pdfium.PdfDocument, max_characters: int) -> tuple[list[str], list[int]]:
    texts: list[str] = []
    damaged: list[int] = []
    characters = 0
    for index in range(len(document)):
        try:
            text = _page_text(document, index)
        except pdfium.PdfiumError:
            text = ""
            damaged.append(index + 1)
        characters += len(text)
        check_length(characters, max_characters)
        texts.append(text)
    return texts, damaged


def _page_text(document: pdfium.PdfDocument, index: int) -> str:
    page = document[index]
    try:
        text_page = page.get_textpage()
        text = text_page.get_text_range() if text_page.count_chars() else ""
        text_page.close()
    finally:
        page.close()
    if len(_UNREADABLE.findall(text)) > _MOST_UNREADABLE * len(text):
        return ""
    return reflow(text.translate(_LIGATURES).replace("\r\n", "\n"))


def _first_line(pages: list[str]) -> str:
    line = next(text for text in pages if text).partition("\n")[0]
    return line if len(line) <= _LONGEST_TITLE else ""


def _without_text(document: pdfium.PdfDocument, damaged: list[int]) -> DocumentRejected:
    if damaged:
        return DocumentRejected("corrupt", f"None of the PDF's pages can be read; {len(damaged)} are damaged.")
    for index in range(len(document)):
        if any(True for _ in document[index].get_objects(filter=[FPDF_PAGEOBJ_IMAGE], max_depth=3)):
            return DocumentRejected("needs-ocr", "The PDF holds pictures of text only; run it through OCR first.")
    return DocumentRejected("empty", "The PDF holds no text.")


def _warnings(pages: int, silent: list[int], damaged: list[int]) -> tuple[str, ...]:
    found: list[str] = []
    for numbers, what in ((silent, "hold no text"), (damaged, "are damaged and were left out")):
        if numbers:
            named = ", ".join(map(str, numbers[:_MOST_PAGES_NAMED])) + (
                ", …" if len(numbers) > _MOST_PAGES_NAMED else ""
            )
            found.append(f"{len(numbers)} of {pages} pages {what} (page {named}).")
    return tuple(found)


def _title(document: pdfium.PdfDocument) -> str:
    title = _APPLICATION.sub("", one_line(document.get_metadata_value("Title")))
    return "" if _EMPTY_TITLES.fullmatch(title) else title
