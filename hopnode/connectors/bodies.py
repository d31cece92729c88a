"""Bodies of answers, decoded piece by piece so that a small one cannot grow past its limit in memory. No network here."""

import zlib
from collections.abc import Iterable

from hopnode.connectors.errors import BodyTooLarge, BodyUnreadable

_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS
_GZIP_MAGIC = b"\x1f\x8b"


class _Inflater:
    """Undoes gzip or deflate; makes at most `limit` bytes in all."""

    def __init__(self, limit: int, name: str) -> None:
        self._left = limit
        self._name = name
        self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._started = False

    def feed(self, data: bytes) -> bytes:
        made = bytearray()
        while data and not (self._stream.eof and not data.startswith(_GZIP_MAGIC)):
            if self._stream.eof:  # a gzip file may have several members
                self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)
            piece, data = self._inflate(data)
            self._left -= len(piece)
            if self._left < 0:
                raise BodyTooLarge(f"{self._name}: the unpacked body is over the limit.")
            made += piece
        return bytes(made)

    def end(self) -> None:
        if not self._stream.eof:
            raise BodyUnreadable(f"{self._name}: the compressed body is cut short.")

    def _inflate(self, data: bytes) -> tuple[bytes, bytes]:
        try:
            piece = self._stream.decompress(data, self._left + 1)
        except zlib.error as error:
            if self._started:
                raise BodyUnreadable(f"{self._name}: the compressed body is damaged.") from error
            # "deflate" without the zlib wrapper, as some servers send it
            self._started = True
            self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
            return self._inflate(data)
        self._started = True
        return piece, self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail


def decode_body(pieces: Iterable[bytes], coding: str, limit: int, name: str) -> bytes:
    """Joins `pieces` (as they came over the wire) and undoes the content coding.

    Raises BodyTooLarge when wire or decoded bytes exceed `limit`, BodyUnreadable for damage or a coding that is not gzip,
    deflate or identity.
    """
    coding = coding.strip().lower()
    if coding not in ("", "identity", "gzip", "x-gzip", "deflate"):
        raise BodyUnreadable(f"{name}: the content coding {coding[:40]!r} was not asked for.")
    inflater = _Inflater(limit, name) if coding not in ("", "identity") else None
    wire_limit = limit + limit // 1000 + 1024 if inflater else limit  # what packing may add to data that does not pack
    body, received = bytearray(), 0
    for piece in pieces:
        received += len(piece)
        if received > wire_limit:
            raise BodyTooLarge(f"{name}: the body is over the limit of {limit} bytes.")
        body += inflater.feed(piece) if inflater else piece
    if inflater and received:
        inflater.end()
    return bytes(body)


def unzip(data: bytes, limit: int, name: str) -> bytes:
    """`data`, unpacked when it is a gzip file. Raises BodyTooLarge and BodyUnreadable."""
    return decode_body([data], "gzip", limit, name) if data.startswith(_GZIP_MAGIC) else data
