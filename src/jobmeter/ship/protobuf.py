"""Subset of Protocol Buffers that sinks need: https://protobuf.dev/programming-guides/encoding/."""

from jobmeter.wire.protobuf import BYTES, FIXED32, FIXED64, VARINT, encode_varint, iterate_fields, read_varint


def encode_number(field: int, number: int) -> bytes:
    """Encode a field with a number, 0 or more."""
    return encode_varint(field << 3 | VARINT) + encode_varint(number)


def encode_fixed64(field: int, number: int) -> bytes:
    """Encode a field with eight bytes."""
    return encode_varint(field << 3 | FIXED64) + number.to_bytes(8, "little")


def encode_fixed32(field: int, number: int) -> bytes:
    """Encode a field with four bytes."""
    return encode_varint(field << 3 | FIXED32) + number.to_bytes(4, "little")


def encode_bytes(field: int, content: bytes) -> bytes:
    """Encode a field with bytes, a text or a message."""
    return encode_varint(field << 3 | BYTES) + encode_varint(len(content)) + content


def encode_text(field: int, content: str) -> bytes:
    """Encode a field with a text."""
    return encode_bytes(field, content.encode())


def read(message: bytes) -> dict[int, int | bytes]:
    """Decode the fields of a message, the last value of each. Raises InvalidRequestError for an invalid message."""
    return {
        tag >> 3: read_varint(message, at, end)[0] if tag & 7 == VARINT else message[at:end]
        for tag, _, at, end in iterate_fields(message, 0, len(message))
    }
