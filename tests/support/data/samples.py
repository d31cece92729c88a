"""Makes sample documents of every format, whole and broken, in memory; the facts in them are constants that tests ask for."""

import csv
import io
import json
import os
import zipfile
from collections.abc import Iterable, Sequence

import docx
import openpyxl
import pptx
from PIL import Image
from reportlab.lib.pagesizes import A4
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

FACT = "The retention policy keeps audit logs for 400 days."
ROWS = (("Name", "Quota", "Region"), ("alpha", "120", "eu-1"), ("beta", "95", "us-2"), ("gamma", "7", "ap-3"))
SENTENCE = "Operators rotate keys every quarter, and the node refuses requests signed with an expired key. "
GERMAN = "Die Größe der Bäume hängt vom Wetter ab, und für Müller ist das überraschend schön."
JAPANESE = "日本語の文章を正しく読み取ることができるかどうかを確認するためのテストです。カタカナも混ぜます。"
KOREAN = "한국어 문장을 올바르게 읽을 수 있는지 확인하기 위한 시험입니다. 오늘 날씨가 좋습니다."

_LINE_HEIGHT = 14
_TOP = 800


def pdf(pages: Sequence[Sequence[str]], *, title: str = "", password: str = "") -> bytes:
    """A PDF with these lines on its pages; a page without lines is blank."""
    buffer = io.BytesIO()
    encrypt = StandardEncryption(password, ownerPassword=password + "!") if password else None
    canvas = Canvas(buffer, pagesize=A4, encrypt=encrypt)
    if title:
        canvas.setTitle(title)
    for lines in pages:
        for number, line in enumerate(lines):
            canvas.drawString(40, _TOP - number * _LINE_HEIGHT, line)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def long_pdf(pages: int) -> bytes:
    """A PDF of `pages` pages with 40 lines of prose each."""
    return pdf([[f"Page {number} of the handbook."] + [SENTENCE[:90]] * 40 for number in range(1, pages + 1)])


def image_pdf(pages: int = 1) -> bytes:
    """A scan: pages with a picture and no text."""
    buffer = io.BytesIO()
    canvas = Canvas(buffer, pagesize=A4)
    for _ in range(pages):
        canvas.drawImage(ImageReader(_noise(60)), 40, 300, 400, 400)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def heavy_pdf(megabytes: int) -> bytes:
    """A PDF of about so many megabytes: pages of prose between photographs that do not compress."""
    buffer = io.BytesIO()
    canvas = Canvas(buffer, pagesize=A4)
    for number in range(megabytes):
        for line in range(20):
            canvas.drawString(40, _TOP - line * _LINE_HEIGHT, f"{number} {SENTENCE[:90]}")
        canvas.drawImage(ImageReader(_noise(520)), 40, 40, 400, 400)
        canvas.showPage()
    canvas.save()
    return buffer.getvalue()


def word_document() -> bytes:
    """A DOCX: title, two chapters, a list, a table."""
    document = docx.Document()
    document.add_heading("Handbook", 0)
    document.add_heading("Retention", 1)
    document.add_paragraph(FACT)
    document.add_heading("Exceptions", 2)
    document.add_paragraph("first exception", style="List Bullet")
    document.add_paragraph("second exception", style="List Bullet")
    document.add_heading("Quotas", 1)
    table = document.add_table(rows=0, cols=3)
    for row in ROWS:
        for cell, text in zip(table.add_row().cells, row, strict=True):
            cell.text = text
    return _saved(document)


def word_xml(body: str) -> bytes:
    """A DOCX whose body is this WordprocessingML."""
    root = '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
    text = f'<?xml version="1.0" encoding="UTF-8"?>{root}<w:body>{body}</w:body></w:document>'
    return replaced(_saved(docx.Document()), {"word/document.xml": text.encode()})


def workbook(rows: Iterable[Sequence[object]] = ROWS, *, hidden: bool = False) -> bytes:
    """An XLSX with the sheet `Plan`; with `hidden`, a hidden sheet besides."""
    book = openpyxl.Workbook()
    sheet = book.worksheets[0]
    sheet.title = "Plan"
    for row in rows:
        sheet.append(list(row))
    if hidden:
        secret = book.create_sheet("Secret")
        secret.append(["do not", "show"])
        secret.sheet_state = "hidden"
    return _saved(book)


def presentation(titles: Sequence[str] = ("Retention", "Quotas"), *, notes: str = "") -> bytes:
    """A PPTX with a slide for every title; the empty title makes an empty slide."""
    deck = pptx.Presentation()
    for title in titles:
        slide = deck.slides.add_slide(deck.slide_layouts[1 if title else 6])
        if title:
            slide.shapes.title.text = title
            slide.placeholders[1].text = f"{title}: {FACT}"
        if notes:
            slide.notes_slide.notes_text_frame.text = notes
    return _saved(deck)


def table_csv(delimiter: str = ",", rows: Iterable[Sequence[str]] = ROWS) -> bytes:
    """A CSV file with a header."""
    buffer = io.StringIO(newline="")
    csv.writer(buffer, delimiter=delimiter).writerows(rows)
    return buffer.getvalue().encode()


def notebook() -> bytes:
    """A notebook: a Markdown cell, a code cell with two outputs, one of them a picture."""
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": ["42\n"]},
        {"output_type": "display_data", "metadata": {}, "data": {"image/png": "iVBORw0KGgo="}},
    ]
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Retention\n", FACT]},
        {"cell_type": "code", "metadata": {}, "execution_count": 1, "source": ["print(42)"], "outputs": outputs},
    ]
    metadata = {"language_info": {"name": "python"}}
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells}).encode()


def page(body: str, *, title: str = "Handbook") -> bytes:
    """An HTML page with a menu and a footer around `body`."""
    around = "<nav><a href=/a>Menu one</a> <a href=/b>Menu two</a></nav>", "<footer>Imprint and cookies</footer>"
    text = f"<!doctype html><html><head><title>{title}</title></head><body>{around[0]}{body}{around[1]}</body></html>"
    return text.encode()


def zip_bomb() -> bytes:
    """A DOCX of 150 kB that would unpack to 100 MB."""
    return replaced(word_document(), {"word/media/image1.bmp": bytes(100_000_000)})


def many_members(count: int) -> bytes:
    """A ZIP archive with `count` empty files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for number in range(count):
            archive.writestr(f"{number}", b"")
    return buffer.getvalue()


def lying_zip() -> bytes:
    """A DOCX whose table of contents says that the text is shorter than it is."""
    data = bytearray(word_document())
    with zipfile.ZipFile(io.BytesIO(bytes(data))) as archive:
        size = archive.getinfo("word/document.xml").file_size
    needle = size.to_bytes(4, "little")
    position = data.find(needle)
    while position >= 0:
        data[position : position + 4] = (size // 3).to_bytes(4, "little")
        position = data.find(needle, position + 4)
    return bytes(data)


def locked_zip() -> bytes:
    """A ZIP archive whose members say that they are encrypted."""
    data = bytearray(word_document())
    for magic, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        position = data.find(magic)
        while position >= 0:
            data[position + offset] |= 1
            position = data.find(magic, position + 4)
    return bytes(data)


def locked_office() -> bytes:
    """The beginning of an Office file with a password: an OLE container that names an encrypted package."""
    return b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(1_000) + "EncryptedPackage".encode("utf-16-le") + bytes(1_000)


def replaced(data: bytes, members: dict[str, bytes]) -> bytes:
    """The ZIP archive `data` with these members replaced or added."""
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as old,
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            if name not in members:
                new.writestr(name, old.read(name))
        for name, content in members.items():
            new.writestr(name, content)
    return buffer.getvalue()


def _saved(document: object) -> bytes:
    buffer = io.BytesIO()
    document.save(buffer)  # type: ignore[attr-defined]
    return buffer.getvalue()


def _noise(side: int) -> Image.Image:
    return Image.frombytes("RGB", (side, side), os.urandom(3 * side * side))
