"""Gzip stream built from parts that connections share: each part is compressed once for all of them.

A part is compressed independently and ends at a whole byte (RFC 1951), so parts can follow each other in any stream.
The checksum at the end of a stream (RFC 1952) is combined from its parts like zlib's ``crc32_combine``.
"""

import zlib

import msgspec

HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_LEVEL = 1
_LAST_BLOCK = b"\x03\x00"
_POLYNOMIAL = 0xEDB88320
_ONE, _X_TO_8 = 1 << 31, 1 << 23
"""The polynomials 1 and x to the power of 8: the highest bit is the coefficient of x to the power of 0."""


class GzipPart(msgspec.Struct, frozen=True):
    """Compressed part, with the values to combine the checksums of its streams."""

    packed: bytes
    size: int
    crc: int
    shift: int

    @classmethod
    def from_content(cls, content: bytes) -> "GzipPart":
        """Compress the content into a part."""
        deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        packed = deflate.compress(content) + deflate.flush(zlib.Z_FULL_FLUSH)
        return cls(packed, len(content), zlib.crc32(content), _power(len(content)))


class SharedGzip:
    """Gzip stream of one connection.

    ``HEAD`` begins it, ``add`` returns the bytes of each part, ``end`` the trailer.
    """

    def __init__(self) -> None:
        self._crc = 0
        self._size = 0

    def add(self, part: GzipPart) -> bytes:
        """Append a part to the stream and return its bytes."""
        self._crc = _product(part.shift, self._crc) ^ part.crc
        self._size += part.size
        return part.packed

    def end(self) -> bytes:
        """Return the trailer of the stream."""
        return _LAST_BLOCK + self._crc.to_bytes(4, "little") + (self._size & 0xFFFFFFFF).to_bytes(4, "little")


def _product(a: int, b: int) -> int:
    """Multiply two polynomials over GF(2), modulo the polynomial of CRC-32; ``a`` is not 0."""
    bit, product = _ONE, 0
    while True:
        if a & bit:
            product ^= b
            if not a & (bit - 1):
                return product
        bit >>= 1
        b = (b >> 1) ^ _POLYNOMIAL if b & 1 else b >> 1


def _power(size: int) -> int:
    """Raise x to the power of 8 per byte, for ``size`` bytes."""
    power, factor = _ONE, _X_TO_8
    while size:
        if size & 1:
            power = _product(factor, power)
        factor = _product(factor, factor)
        size >>= 1
    return power
