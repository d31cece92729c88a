"""Bytes to text: byte order marks, UTF-8, a declared charset, then a guess; refuses what is no text at all."""

import codecs
import re

from charset_normalizer import from_bytes

from hopnode.worker.errors import DocumentRejected

_SAMPLE_BYTES = 200_000
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Seven-bit encodings switch character sets with escape sequences, and are valid UTF-8 that reads as rubbish.
_ESCAPES = ((b"\x1b$)C", "iso2022_kr"), (b"\x1b$B", "iso2022_jp"), (b"\x1b$@", "iso2022_jp"), (b"\x1b(J", "iso2022_jp"))
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_MOST_CONTROLS = 0.005
_MOST_REPLACED = 0.05


def decode(data: bytes, charset: str | None = None) -> tuple[str, tuple[str, ...]]:
    """The text and warnings about how it was found; `DocumentRejected("unsupported-type")` for binary data."""
    text, warnings = _decoded(data, charset)
    sample = text[:_SAMPLE_BYTES]
    if len(_CONTROLS.findall(sample)) > _MOST_CONTROLS * len(sample):
        raise _binary()
    return text, warnings


def _decoded(data: bytes, charset: str | None) -> tuple[str, tuple[str, ...]]:
    encoding = _certain_encoding(data)
    if encoding:
        return data.decode(encoding, "replace"), ()
    for candidate in ("utf-8", charset):
        text = _strict(data, candidate)
        if text is not None and "\x00" not in text:
            return text, ()
    if wide := _wide_without_mark(data):
        return data.decode(wide, "replace"), ()
    if b"\x00" in data:
        raise _binary()
    return _nearly_utf8(data) or _guessed(data)


def _certain_encoding(data: bytes) -> str | None:
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return encoding
    for escape, encoding in _ESCAPES:
        if escape in data[:_SAMPLE_BYTES] and _strict(data, encoding) is not None:
            return encoding
    return None


def _strict(data: bytes, encoding: str | None) -> str | None:
    try:
        return data.decode(encoding) if encoding else None
    except (UnicodeError, LookupError):  # a charset header may name anything, even a codec that is no charset
        return None


def _wide_without_mark(data: bytes) -> str | None:
    """UTF-16 without a mark shows in Western text: every second byte is zero."""
    sample = data[:_SAMPLE_BYTES]
    if len(sample) < 4 or len(data) % 2:
        return None
    half = len(sample) // 2
    even, odd = sample[::2].count(0) / half, sample[1::2].count(0) / half
    if odd > 0.4 and even < 0.05:
        return "utf-16-le"
    return "utf-16-be" if even > 0.4 and odd < 0.05 else None


def _nearly_utf8(data: bytes) -> tuple[str, tuple[str, ...]] | None:
    """UTF-8 with a few broken bytes: far more multi-byte characters are whole than broken."""
    text = data.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    whole = sum(1 for character in text[:_SAMPLE_BYTES] if character > "\x7f") - broken
    if whole < 20 * broken:
        return None
    return text, (f"{broken} byte sequences are not valid UTF-8 and were replaced.",)


def _guessed(data: bytes) -> tuple[str, tuple[str, ...]]:
    sample = data[:_SAMPLE_BYTES]
    if len(sample) < len(data):  # a character that is cut in two would rule its encoding out
        sample = sample[: sample.rfind(b"\n") + 1] or sample
    best = from_bytes(sample).best()
    if best is None:
        raise _binary()
    text = data.decode(best.encoding, "replace")
    if text.count("\ufffd") > _MOST_REPLACED * len(text):
        raise _binary()
    return text, (f"The character encoding is not declared; it was read as {best.encoding}.",)


def _binary() -> DocumentRejected:
    return DocumentRejected("unsupported-type", "The file is binary and of no type that can be read as text.")
