"""Protocol buffers, one field after the other: for whatever the array decoder leaves over.

https://protobuf.dev/programming-guides/encoding/
"""

import struct
from collections.abc import Iterator

from jobmeter.errors import InvalidRequestError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}
_LONGEST = 10
_DOUBLE = struct.Struct("<d")

Field = tuple[int, int, int, int]
"""Its tag, where the tag begins, where its content begins (a varint has it in between), and where it ends."""


def damaged(what: str) -> InvalidRequestError:
    """The refusal of bytes that are no message."""
    return InvalidRequestError(f"the body is not the message that Content-Type says: {what}", "body")


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """An unsigned varint of at most 64 bits, and where the next thing begins."""
    value = 0
    for place in range(_LONGEST):
        if at >= end:
            raise damaged("it ends inside a number")
        byte = data[at]
        at += 1
        value |= (byte & 127) << (7 * place)
        if byte < 128:
            if value >= 2**64:
                break
            return value, at
    raise damaged("a number has more than 64 bits")


def fields(data: bytes, at: int, end: int) -> Iterator[Field]:
    """The fields of a message, in their order. Raises InvalidRequestError (field ``body``)."""
    while at < end:
        begin = at
        tag, at = varint(data, at, end)
        kind = tag & 7
        if not 8 <= tag < 2**32:
            raise damaged("a field has no number")
        content = at
        if kind == VARINT:
            _, at = varint(data, at, end)
        elif kind == BYTES:
            length, content = varint(data, at, end)
            at = content + length
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            raise damaged("a field is of an unknown kind")
        if at > end:
            raise damaged("it ends inside a field")
        yield tag, begin, content, at


def sample(data: bytes, at: int, end: int) -> tuple[float, int]:
    """The value and the time of a Sample; what is absent is 0, what is unknown is passed over."""
    value, time = 0.0, 0
    for tag, _, content, _ in fields(data, at, end):
        if tag == 0x09:
            (value,) = _DOUBLE.unpack_from(data, content)
        elif tag == 0x10:
            time, _ = varint(data, content, end)
    return value, time - 2**64 if time >= 2**63 else time


def label(data: bytes, at: int, end: int) -> tuple[bytes, bytes]:
    """The name and the value of a Label."""
    name = value = b""
    for tag, _, content, stop in fields(data, at, end):
        if tag == 0x0A:
            name = data[content:stop]
        elif tag == 0x12:
            value = data[content:stop]
    return name, value
