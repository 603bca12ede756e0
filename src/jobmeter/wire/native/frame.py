"""Frames: the outer layer of the native wire format, written and read without any input or output.

See docs/reference/wire-format.md. Standard library only, so that an agent needs no compression library. A payload in
Zstandard is passed on unread.
"""

import struct
import zlib
from enum import IntEnum

import msgspec

from jobmeter.errors import InvalidRequestError, LimitExceededError

MAGIC = b"JM"
VERSION = 1
HEADER = struct.Struct("<2sBBB3sIII")
MAX_SENT = 64 * 2**20
"""Most bytes of one compressed payload."""
MAX_PLAIN = 256 * 2**20
"""Most bytes of one payload after decompression."""


class FrameKind(IntEnum):
    """Content of a frame's payload."""

    SAMPLES = 1
    RECORDS = 2
    LOGS = 3


class Codec(IntEnum):
    """Compression of a frame's payload."""

    NONE = 0
    ZLIB = 1
    ZSTD = 2


class Frame(msgspec.Struct, frozen=True):
    """A frame of a body: ``payload`` is still compressed, ``plain_size`` is its length after decompression."""

    kind: FrameKind
    codec: Codec
    payload: bytes | memoryview
    plain_size: int


def write_frame(kind: FrameKind, plain: bytes, level: int = 1) -> bytes:
    """Return the bytes of one frame, compressed with zlib if that makes it smaller (``level`` 0: never).

    Raises LimitExceededError if the payload is larger than a frame may hold.
    """
    if len(plain) > MAX_PLAIN:
        raise LimitExceededError(f"a frame may hold at most {MAX_PLAIN} bytes, it would hold {len(plain)}", "frame")
    packed = zlib.compress(plain, level) if level else plain
    codec = Codec.ZLIB if len(packed) < len(plain) else Codec.NONE
    payload = packed if codec is Codec.ZLIB else plain
    if len(payload) > MAX_SENT:
        raise LimitExceededError(f"a frame may be sent with at most {MAX_SENT} bytes, it has {len(payload)}", "frame")
    head = HEADER.pack(MAGIC, VERSION, kind, codec, bytes(3), len(payload), len(plain), zlib.crc32(payload))
    return head + payload


def read_frame(data: bytes | memoryview, offset: int = 0) -> tuple[Frame, int] | None:
    """Return the frame at ``offset`` and the offset behind it; None if ``data`` ends before the frame does.

    The payload's checksum is verified. The payload is a view if ``data`` is a memoryview. Raises InvalidRequestError
    for bytes that are no frame, LimitExceededError for a frame that declares too large a size.
    """
    if len(data) - offset < HEADER.size:
        if bytes(data[offset : offset + 2]) != MAGIC[: len(data) - offset]:
            raise InvalidRequestError(f"there is no frame at byte {offset}", "frame")
        return None
    magic, version, kind, codec, zero, size, plain_size, crc = HEADER.unpack_from(data, offset)
    if magic != MAGIC or version != VERSION or zero != bytes(3):
        raise InvalidRequestError(f"there is no frame of version {VERSION} at byte {offset}", "frame")
    if size > MAX_SENT or plain_size > MAX_PLAIN:
        raise LimitExceededError(f"the frame at byte {offset} claims {size} and {plain_size} bytes", "frame")
    end = offset + HEADER.size + size
    if end > len(data):
        return None
    payload = data[offset + HEADER.size : end]
    if zlib.crc32(payload) != crc:
        raise InvalidRequestError(f"the frame at byte {offset} is damaged: its checksum is wrong", "frame")
    try:
        return Frame(FrameKind(kind), Codec(codec), payload, plain_size), end
    except ValueError as error:
        raise InvalidRequestError(
            f"the frame at byte {offset} has an unknown kind or codec: {error}", "frame"
        ) from error


def unpack(frame: Frame) -> bytes:
    """Return the decompressed payload of a frame that Jobmeter wrote; empty for other codecs and damaged data."""
    if frame.codec is Codec.ZSTD:
        return b""
    try:
        return zlib.decompress(frame.payload) if frame.codec is Codec.ZLIB else bytes(frame.payload)
    except zlib.error:
        return b""
