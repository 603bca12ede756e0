"""Reads and writes protocol buffers in plain Python, one field after the other: for remote write and OTLP.

https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Iterator

from jobmeter.errors import InvalidRequestError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED = {FIXED64: 8, FIXED32: 4}
_LONGEST = 10

Field = tuple[int, int, int, int]
"""The tag, the positions of the tag and of the content (a varint has it in between), and the end."""


def make_damage_error(what: str) -> InvalidRequestError:
    """Return the error for bytes that are no message."""
    return InvalidRequestError(f"the body is not the message that Content-Type says: {what}", "body")


def read_varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return an unsigned varint of at most 64 bits, and the start of the next field."""
    if at < end and data[at] < 128:  # nearly every one
        return data[at], at + 1
    value = 0
    for place in range(_LONGEST):
        if at >= end:
            raise make_damage_error("it ends inside a number")
        byte = data[at]
        at += 1
        value |= (byte & 127) << (7 * place)
        if byte < 128:
            if value >= 2**64:
                break
            return value, at
    raise make_damage_error("a number has more than 64 bits")


def encode_varint(value: int) -> bytes:
    """Encode a number that is not negative, seven bits a byte."""
    if value < 128:
        return bytes((value,))
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def iterate_fields(data: bytes, at: int, end: int) -> Iterator[Field]:
    """Yield the fields of a message, in their order. Raises InvalidRequestError (field ``body``)."""
    while at < end:
        begin = at
        tag, at = read_varint(data, at, end)
        kind = tag & 7
        if not 8 <= tag < 2**32:
            raise make_damage_error("a field has no number")
        content = at
        if kind == VARINT:
            _, at = read_varint(data, at, end)
        elif kind == BYTES:
            length, content = read_varint(data, at, end)
            at = content + length
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            raise make_damage_error("a field is of an unknown kind")
        if at > end:
            raise make_damage_error("it ends inside a field")
        yield tag, begin, content, at
