"""A gzip stream of parts that many connections share: each part is compressed once, for all of them.

A part is compressed by itself and ends at a whole byte (RFC 1951), so parts follow each other in any stream. The check
value at the end of a stream (RFC 1952) is that of its parts, joined as zlib's ``crc32_combine`` does.
"""

import zlib

import msgspec

HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
_LEVEL = 1
_LAST_BLOCK = b"\x03\x00"
_POLYNOMIAL = 0xEDB88320
_ONE, _X_TO_8 = 1 << 31, 1 << 23
"""1 and x to the power of 8: the highest bit is the coefficient of x to the power of 0."""


class Part(msgspec.Struct, frozen=True):
    """A compressed part, and what the check values of the streams that have it are joined from."""

    packed: bytes
    size: int
    crc: int
    shift: int

    @classmethod
    def of(cls, content: bytes) -> "Part":
        """The part that holds this content."""
        deflate = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS)
        packed = deflate.compress(content) + deflate.flush(zlib.Z_FULL_FLUSH)
        return cls(packed, len(content), zlib.crc32(content), _power(len(content)))


class SharedGzip:
    """One connection's stream. ``HEAD`` begins it, ``add`` gives the bytes of each part, ``end`` the last ones."""

    def __init__(self) -> None:
        self._crc = 0
        self._size = 0

    def add(self, part: Part) -> bytes:
        """The part, noted as the next one of this stream."""
        self._crc = _product(part.shift, self._crc) ^ part.crc
        self._size += part.size
        return part.packed

    def end(self) -> bytes:
        """What ends the stream."""
        return _LAST_BLOCK + self._crc.to_bytes(4, "little") + (self._size & 0xFFFFFFFF).to_bytes(4, "little")


def _product(a: int, b: int) -> int:
    """Of two polynomials over GF(2), modulo the one of CRC-32; ``a`` is not 0."""
    bit, product = _ONE, 0
    while True:
        if a & bit:
            product ^= b
            if not a & (bit - 1):
                return product
        bit >>= 1
        b = (b >> 1) ^ _POLYNOMIAL if b & 1 else b >> 1


def _power(size: int) -> int:
    """The polynomial x to the power of 8 for each of so many bytes."""
    power, factor = _ONE, _X_TO_8
    while size:
        if size & 1:
            power = _product(factor, power)
        factor = _product(factor, factor)
        size >>= 1
    return power
