"""The little of Protocol Buffers that sinks need: https://protobuf.dev/programming-guides/encoding/."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def varint(number: int) -> bytes:
    """A number that is not negative, seven bits a byte."""
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def whole(field: int, number: int) -> bytes:
    """A field with a number that is not negative."""
    return varint(field << 3 | _VARINT) + varint(number)


def fixed64(field: int, number: int) -> bytes:
    """A field with eight bytes."""
    return varint(field << 3 | _FIXED64) + number.to_bytes(8, "little")


def fixed32(field: int, number: int) -> bytes:
    """A field with four bytes."""
    return varint(field << 3 | _FIXED32) + number.to_bytes(4, "little")


def octets(field: int, content: bytes) -> bytes:
    """A field with bytes, a text or a message."""
    return varint(field << 3 | _BYTES) + varint(len(content)) + content


def text(field: int, content: str) -> bytes:
    """A field with a text."""
    return octets(field, content.encode())


def read(message: bytes) -> dict[int, int | bytes]:
    """The fields of a message, of each the last one. Raises ValueError for what is none."""
    fields: dict[int, int | bytes] = {}
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        kind = tag & 7
        if kind == _VARINT:
            fields[tag >> 3], place = _varint(message, place)
            continue
        if kind == _BYTES:
            size, place = _varint(message, place)
        else:
            size = {_FIXED64: 8, _FIXED32: 4}.get(kind, -1)
        if size < 0 or place + size > len(message):
            raise ValueError("a message that was cut off, or none")
        fields[tag >> 3] = message[place : place + size]
        place += size
    return fields


def _varint(message: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if place >= len(message) or shift > 63:
            raise ValueError("a number that was cut off")
        byte = message[place]
        number |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return number, place
