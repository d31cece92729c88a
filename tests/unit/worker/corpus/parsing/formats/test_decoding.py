"""Bytes become the text that somebody wrote, whatever encoding it came in; binary data becomes a refusal."""

import codecs

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.data import samples

from hopnode.worker.corpus.parsing.formats.decode import decode
from hopnode.worker.errors import DocumentRejected

# Written text: no controls, and nothing that only one half of a pair of surrogates could be.
TEXTS = st.text(st.characters(exclude_categories=("Cc", "Cs"), include_characters="\n\t"), min_size=1)
MARKED = {
    "utf-8": codecs.BOM_UTF8,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
}


@settings(max_examples=40, deadline=None)
@given(text=TEXTS, encoding=st.sampled_from(sorted(MARKED)))
def test_a_byte_order_mark_settles_the_encoding_of_any_text_and_is_no_part_of_it(text: str, encoding: str) -> None:
    assert decode(MARKED[encoding] + text.encode(encoding)) == (text, ())


@settings(max_examples=40, deadline=None)
@given(text=TEXTS.filter(lambda text: not text.startswith("\ufeff")), declared=st.sampled_from(["latin-1", "cp1252"]))
def test_what_is_valid_utf8_is_utf8_even_where_another_charset_was_declared(text: str, declared: str) -> None:
    assert decode(text.encode(), declared) == (text, ())


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_give_text_or_one_refusal(data: bytes) -> None:
    try:
        text, warnings = decode(data)
    except DocumentRejected as error:
        assert error.reason == "unsupported-type"
    else:
        assert len(text) <= len(data)
        assert all(one.endswith(".") for one in warnings)


@pytest.mark.parametrize("charset", ["klingon", "rot13", "base64", "hex", ""])
def test_a_declared_charset_that_is_none_is_passed_over(charset: str) -> None:
    text, _ = decode(samples.GERMAN.encode("latin-1"), charset)
    assert text == samples.GERMAN


def test_a_declared_charset_is_believed_where_the_bytes_are_no_utf8() -> None:
    cyrillic = "Ключ меняют каждый квартал."
    for charset in ("koi8-r", "cp1251", "iso-8859-5"):
        assert decode(cyrillic.encode(charset), charset) == (cyrillic, ())


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_wide_text_without_a_mark_is_told_by_its_zero_bytes(encoding: str) -> None:
    assert decode(samples.SENTENCE.encode(encoding)) == (samples.SENTENCE, ())


def test_zero_bytes_among_text_are_no_wide_text() -> None:
    with pytest.raises(DocumentRejected) as refused:
        decode(b"record\x00\x01\x02" * 40 + b"!")
    assert refused.value.reason == "unsupported-type"


def test_a_few_broken_bytes_are_counted_and_many_make_another_encoding() -> None:
    text = samples.JAPANESE * 5
    data = text.encode()
    broken = data[:30] + b"\xff" + data[30:90] + b"\xfe" + data[90:]
    told, warnings = decode(broken)
    assert told.replace("\ufffd", "") == text
    assert warnings == ("2 byte sequences are not valid UTF-8 and were replaced.",)
    _, guessed = decode(samples.GERMAN.encode("latin-1"))
    assert "read as" in guessed[0]


@pytest.mark.parametrize("share", [0.01, 0.2])
def test_text_with_more_control_characters_than_text_ever_has_is_binary(share: float) -> None:
    count = int(1_000 * share)
    with pytest.raises(DocumentRejected):
        decode(b"a" * (1_000 - count) + b"\x01" * count)


def test_a_stray_control_character_in_a_long_text_does_no_harm() -> None:
    data = b"a" * 1_000 + b"\x0c\x1b" + b"b" * 1_000
    assert decode(data)[0] == data.decode()


@pytest.mark.parametrize("encoding", ["iso2022_jp", "iso2022_kr"])
def test_seven_bit_encodings_are_seen_by_their_escapes(encoding: str) -> None:
    text = samples.KOREAN if encoding.endswith("kr") else samples.JAPANESE
    assert decode(text.encode(encoding)) == (text, ())


def test_an_encoding_is_guessed_from_whole_lines_of_a_long_text() -> None:
    """A sample that ends within a character would rule the right encoding out."""
    text = (samples.JAPANESE + "\n") * 2_500
    data = text.encode("shift_jis")
    assert len(data) > 200_000
    assert decode(data)[0] == text
