"""Which reader a document needs: by its first bytes, then its media type, then its file name. Reads no content."""

import re
from pathlib import PurePosixPath

from hopnode.worker.errors import DocumentRejected

_HEAD_BYTES = 4_096
_PDF_HEAD_BYTES = 1_024  # the PDF specification's readers accept junk before the header

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED_PACKAGE = "EncryptedPackage".encode("utf-16-le")
# The comments before `<html>` are matched once and for all (an atomic group): trying them again would be exponential.
_HTML = re.compile(
    rb"\s*(?:<\?xml[^>]*>\s*)?(?>(?:<!--.*?-->\s*)*)<(?:!doctype\s+html|html[\s>])", re.IGNORECASE | re.DOTALL
)
_MARKS = b"\xef\xbb\xbf"

_REFUSED = (
    (b"{\\rtf", "an RTF document; save it as DOCX or PDF"),
    (b"\x89PNG", "an image"),
    (b"\xff\xd8\xff", "an image"),
    (b"GIF8", "an image"),
    (b"\x1f\x8b", "a compressed archive; unpack it first"),
    (b"BZh", "a compressed archive; unpack it first"),
    (b"\xfd7zXZ", "a compressed archive; unpack it first"),
    (b"7z\xbc\xaf\x27\x1c", "a compressed archive; unpack it first"),
    (b"Rar!\x1a\x07", "a compressed archive; unpack it first"),
    (b"\x7fELF", "a program"),
    (b"MZ\x90", "a program"),
    (b"SQLite format 3\x00", "a database"),
)

_MEDIA_TYPES = {
    "application/pdf": "pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "pptx",
    "text/html": "html",
    "application/xhtml+xml": "html",
    "text/markdown": "markdown",
    "text/x-markdown": "markdown",
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
    "application/json": "json",
    "application/x-ndjson": "jsonl",
    "application/jsonl": "jsonl",
    "application/x-ipynb+json": "ipynb",
    "text/x-python": "code:python",
    "text/javascript": "code:javascript",
    "application/javascript": "code:javascript",
}

_EXTENSIONS = {
    "pdf": "pdf", "docx": "docx", "xlsx": "xlsx", "xlsm": "xlsx", "pptx": "pptx",
    "html": "html", "htm": "html", "xhtml": "html", "md": "markdown", "markdown": "markdown", "mdx": "markdown",
    "csv": "csv", "tsv": "tsv", "tab": "tsv", "json": "json", "geojson": "json", "jsonl": "jsonl", "ndjson": "jsonl",
    "ipynb": "ipynb",
    "py": "code:python", "pyi": "code:python", "js": "code:javascript", "mjs": "code:javascript",
    "cjs": "code:javascript", "jsx": "code:javascript", "ts": "code:typescript", "mts": "code:typescript",
    "tsx": "code:tsx", "go": "code:go", "rs": "code:rust", "java": "code:java", "c": "code:c", "h": "code:c",
    "cc": "code:cpp", "cpp": "code:cpp", "cxx": "code:cpp", "hpp": "code:cpp", "hh": "code:cpp",
    "cs": "code:c_sharp", "rb": "code:ruby", "php": "code:php", "sh": "code:bash", "bash": "code:bash",
    "kt": "code:kotlin", "swift": "code:swift", "scala": "code:scala", "sql": "code:sql", "lua": "code:lua",
    "r": "code:r", "pl": "code:perl", "ex": "code:elixir", "hs": "code:haskell", "css": "code:css",
}  # fmt: skip

_BINARY = frozenset({"pdf", "docx", "xlsx", "pptx"})
_RISKY = _BINARY | {"zip", "html"}


def detect(data: bytes, media_type: str | None, filename: str | None) -> str:
    """The format: `pdf docx xlsx pptx zip html markdown csv tsv json jsonl ipynb text` or `code:<language>`.

    `zip` stands for an Office file or another archive: its reader looks inside. Raises `DocumentRejected`: `empty`,
    `encrypted`, `unsupported-type`, or `corrupt` where a PDF or Office file was promised and something else came.
    """
    if not data:
        raise DocumentRejected("empty", "The document is empty (0 bytes).")
    promised = _promised(media_type, filename)
    found = _by_content(data)
    if found == "html" and promised.startswith("code:"):
        return promised
    if found:
        return found
    if promised in _BINARY:
        raise DocumentRejected(
            "corrupt", f"The document is not the {promised.upper()} file that its name or type promises."
        )
    return promised or "text"


def is_risky(format_name: str) -> bool:
    """Whether a reader of this format is to run in a process of its own."""
    return format_name in _RISKY


def charset_of(media_type: str | None) -> str | None:
    """The charset parameter of a media type."""
    match = re.search(r"charset\s*=\s*[\"']?([\w.:-]+)", media_type or "", re.IGNORECASE)
    return match[1] if match else None


def _by_content(data: bytes) -> str | None:
    if b"%PDF-" in data[:_PDF_HEAD_BYTES]:
        return "pdf"
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return "zip"
    if data.startswith(_OLE):
        if _ENCRYPTED_PACKAGE in data:
            raise DocumentRejected("encrypted", "The document is protected by a password.")
        raise _unsupported("an Office file of before 2007; save it as DOCX, XLSX or PPTX")
    for magic, what in _REFUSED:
        if data.startswith(magic):
            raise _unsupported(what)
    if _HTML.match(data[:_HEAD_BYTES].removeprefix(_MARKS)):
        return "html"
    return None


def _promised(media_type: str | None, filename: str | None) -> str:
    """What the media type names, else what the file name names; a general type such as `text/plain` names nothing."""
    bare = (media_type or "").partition(";")[0].strip().lower()
    extension = PurePosixPath((filename or "").replace("\\", "/")).suffix.lstrip(".").lower()
    return _MEDIA_TYPES.get(bare) or _EXTENSIONS.get(extension, "")


def _unsupported(what: str) -> DocumentRejected:
    return DocumentRejected("unsupported-type", f"The document is {what}.")
