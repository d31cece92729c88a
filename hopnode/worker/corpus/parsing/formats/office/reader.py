"""Sends an Office file to its reader, once its container is known to be safe to open."""

from hopnode.worker.corpus.parsing.formats.draft import Draft, RawDocument
from hopnode.worker.corpus.parsing.formats.office.archive import office_format
from hopnode.worker.corpus.parsing.formats.office.sheets import read_xlsx
from hopnode.worker.corpus.parsing.formats.office.slides import read_pptx
from hopnode.worker.corpus.parsing.formats.office.word import read_docx

_READERS = {"docx": read_docx, "xlsx": read_xlsx, "pptx": read_pptx}


def read_office(raw: RawDocument) -> Draft:
    """DOCX, XLSX or PPTX by what the archive holds; raises as `office_format` does."""
    return _READERS[office_format(raw.data)](raw)
