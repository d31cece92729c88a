"""Opens a ZIP container only after its table of contents shows that it is no bomb, and says which document it holds."""

import io
import zipfile

from hopnode.worker.errors import DocumentRejected

MOST_MEMBERS = 10_000
MOST_BYTES = 256_000_000
MOST_RATIO = 200
_RATIO_MATTERS_FROM = 10_000_000
_ENCRYPTED_FLAG = 0x1
_CONTENT_TYPES = "[Content_Types].xml"

_MACROS = {"word/vbaProject.bin", "ppt/vbaProject.bin"}
_MAIN_PARTS = {
    "word/document.xml": "docx",
    "xl/workbook.xml": "xlsx",
    "ppt/presentation.xml": "pptx",
}


def office_format(data: bytes) -> str:
    """`docx`, `xlsx` or `pptx`; checks members, declared size and ratio before anything is unpacked.

    Raises `DocumentRejected`: `corrupt`, `zip-bomb`, `encrypted`, or `unsupported-type` for other archives. Sizes may
    lie: `zipfile` reads no more than was declared, and fails on the checksum.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise DocumentRejected("corrupt", "The file is a damaged or cut-off Office file or ZIP archive.") from error
    _guard(members, len(data))
    if any(member.flag_bits & _ENCRYPTED_FLAG for member in members):
        raise DocumentRejected("encrypted", "The archive is protected by a password.")
    names = {member.filename for member in members}
    if names & _MACROS:
        raise DocumentRejected("unsupported-type", "The document holds macros; save it as plain DOCX or PPTX.")
    for part, format_name in _MAIN_PARTS.items():
        if part in names:
            return format_name
    if _CONTENT_TYPES in names:
        raise DocumentRejected("corrupt", "The Office file lacks its main part.")
    raise DocumentRejected("unsupported-type", "The file is a ZIP archive and no DOCX, XLSX or PPTX; unpack it first.")


def _guard(members: list[zipfile.ZipInfo], packed: int) -> None:
    unpacked = sum(member.file_size for member in members)
    if len(members) > MOST_MEMBERS:
        raise DocumentRejected("zip-bomb", f"The archive holds {len(members):,} files; {MOST_MEMBERS:,} are allowed.")
    if unpacked > MOST_BYTES:
        raise DocumentRejected(
            "zip-bomb", f"The archive would unpack to {unpacked / 1e6:,.0f} MB; {MOST_BYTES / 1e6:,.0f} MB are allowed."
        )
    if unpacked > _RATIO_MATTERS_FROM and unpacked > MOST_RATIO * packed:
        raise DocumentRejected(
            "zip-bomb",
            f"The archive would unpack to {unpacked / packed:,.0f} times its size; {MOST_RATIO} times are allowed.",
        )
