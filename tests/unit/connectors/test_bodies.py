import gzip
import random
import tracemalloc
import zlib

import pytest

from hopnode.connectors.bodies import decode_body, unzip
from hopnode.connectors.errors import BodyTooLarge, BodyUnreadable

TEXT = "Ein Text, der sich packen lässt. ".encode() * 500


def pieces(data: bytes, size: int = 700) -> list[bytes]:
    return [data[i : i + size] for i in range(0, len(data), size)]


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("coding", "wire"),
    [
        ("", TEXT),
        ("identity", TEXT),
        ("gzip", gzip.compress(TEXT)),
        ("X-GZIP", gzip.compress(TEXT)),
        ("deflate", zlib.compress(TEXT)),
        ("deflate", raw_deflate(TEXT)),
        ("gzip", gzip.compress(TEXT[:5000]) + gzip.compress(TEXT[5000:])),
    ],
)
@pytest.mark.parametrize("size", [7, 700, 100_000])
def test_a_body_is_the_same_however_it_was_packed_and_cut(coding: str, wire: bytes, size: int) -> None:
    assert decode_body(pieces(wire, size), coding, 1_000_000, "page") == TEXT


def test_a_body_of_exactly_the_limit_passes_and_one_byte_more_does_not() -> None:
    for coding, pack in (("", bytes), ("gzip", gzip.compress)):
        noise = random.Random(1).randbytes(1000) + bytes(1000)
        assert decode_body([pack(noise)], coding, 2000, "page") == noise
        with pytest.raises(BodyTooLarge):
            decode_body([pack(noise)], coding, 1999, "page")


def test_a_gzip_bomb_stops_at_the_limit_and_takes_no_memory_to_speak_of() -> None:
    bomb = gzip.compress(bytes(100_000_000))
    tracemalloc.start()
    with pytest.raises(BodyTooLarge):
        decode_body([bomb], "gzip", 1_000_000, "page")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000


def test_an_endless_body_that_unpacks_to_nothing_ends_at_the_limit_of_the_wire() -> None:
    empty_blocks = gzip.compress(b"") * 10_000
    with pytest.raises(BodyTooLarge):
        decode_body(pieces(empty_blocks), "gzip", 100_000, "page")


@pytest.mark.parametrize("wire", [gzip.compress(TEXT)[:-20], b"\x1f\x8b rubbish", b"rubbish", zlib.compress(TEXT)[:9]])
def test_a_damaged_body_is_unreadable(wire: bytes) -> None:
    with pytest.raises(BodyUnreadable):
        decode_body(pieces(wire), "gzip", 1_000_000, "page")


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "rot13"])
def test_a_coding_that_was_not_asked_for_is_refused(coding: str) -> None:
    with pytest.raises(BodyUnreadable, match="not asked for"):
        decode_body([b"abc"], coding, 1000, "page")


def test_an_empty_body_is_empty_even_when_it_claims_to_be_packed() -> None:
    assert decode_body([], "gzip", 10, "page") == b""


def test_only_gzip_files_are_unpacked() -> None:
    assert unzip(gzip.compress(TEXT), 100_000, "map") == TEXT
    assert unzip(TEXT, 100_000, "map") == TEXT
