"""A container is opened only after its table of contents shows no danger, and it says which document it holds."""

import io
import random
import zipfile

import pytest
from support.data import samples

from hopnode.worker.corpus.parsing.formats.office import archive
from hopnode.worker.corpus.parsing.formats.office.archive import office_format
from hopnode.worker.errors import DocumentRejected


def zipped(members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as made:
        for name, content in members.items():
            made.writestr(name, content)
    return buffer.getvalue()


def reason(data: bytes) -> str:
    with pytest.raises(DocumentRejected) as refused:
        office_format(data)
    return refused.value.reason


def test_what_an_archive_holds_decides_and_not_what_it_is_called() -> None:
    made = samples.word_document(), samples.workbook(), samples.presentation()
    assert [office_format(data) for data in made] == ["docx", "xlsx", "pptx"]


def test_an_archive_without_a_main_part_is_broken_when_it_says_that_it_is_an_office_file() -> None:
    assert reason(zipped({"[Content_Types].xml": b"<Types/>", "word/styles.xml": b"x"})) == "corrupt"
    assert reason(zipped({"photos/1.jpg": b"x"})) == "unsupported-type"
    assert reason(zipped({})) == "unsupported-type"


@pytest.mark.parametrize("part", ["word/vbaProject.bin", "ppt/vbaProject.bin"])
def test_macros_are_refused_with_what_to_do(part: str) -> None:
    with pytest.raises(DocumentRejected, match="save it as plain") as refused:
        office_format(samples.replaced(samples.word_document(), {part: b"x"}))
    assert refused.value.reason == "unsupported-type"


def test_as_many_members_as_are_allowed_pass_and_one_more_does_not() -> None:
    allowed = dict.fromkeys((str(number) for number in range(archive.MOST_MEMBERS - 1)), b"")
    stored = zipped({"word/document.xml": b"x"} | allowed, zipfile.ZIP_STORED)
    assert office_format(stored) == "docx"
    assert reason(zipped({"word/document.xml": b"x", "one more": b""} | allowed, zipfile.ZIP_STORED)) == "zip-bomb"


def test_a_high_ratio_matters_only_where_much_is_unpacked() -> None:
    small = zipped({"word/document.xml": bytes(9_000_000)})
    assert len(small) * archive.MOST_RATIO < 9_000_000, "its ratio is over the limit"
    assert office_format(small) == "docx"
    assert reason(zipped({"word/document.xml": bytes(11_000_000)})) == "zip-bomb"


def test_large_members_that_hardly_pack_are_no_bomb() -> None:
    noise = random.Random(7).randbytes(11_000_000)
    assert office_format(zipped({"word/document.xml": b"x", "word/media/1": noise}, zipfile.ZIP_STORED)) == "docx"


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"PK\x03\x04" + bytes(100), b"PK\x05\x06" + b"\xff" * 18])
def test_what_only_begins_like_an_archive_is_corrupt(data: bytes) -> None:
    assert reason(data) == "corrupt"
