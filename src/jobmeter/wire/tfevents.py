"""Reads TensorBoard's event files: records with checksums, each an ``Event`` in protocol buffers.

A record is its length (u64), the masked CRC-32C of the length, the data, and the masked CRC-32C of the data:
https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/lib/io/record_writer.h. Messages:
https://github.com/tensorflow/tensorboard/tree/master/tensorboard/compat/proto, event.proto, summary.proto and
tensor.proto. Standard library only.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from jobmeter.errors import InvalidRequestError
from jobmeter.wire.protobuf import iterate_fields, read_varint

MOST_RECORD = 2**16
"""Longest record that is read; longer ones (images, graphs) are skipped."""
_POLYNOMIAL = 0x82F63B78
_MASK = 0xA282EAD8
_LENGTH, _CHECK = struct.Struct("<QI"), struct.Struct("<I")
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_WALL_TIME, _STEP, _SUMMARY = 0x09, 0x10, 0x2A
_VALUE, _TAG, _SIMPLE, _TENSOR = 0x0A, 0x0A, 0x15, 0x42
_DTYPE, _SHAPE, _CONTENT = 0x08, 0x12, 0x22
_NUMBERS = {0x2A: _FLOAT, 0x2D: _FLOAT, 0x32: _DOUBLE, 0x31: _DOUBLE}
"""Repeated numbers by their tags, packed and unpacked."""
_DIMENSION, _SIZE = 0x12, 0x08
_FORMATS = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}
"""Formats of a scalar by TensorFlow's data type: float, double, int32, int64."""


def _table() -> tuple[int, ...]:
    found = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)  # noqa: PLW2901 - the register of the division
        found.append(value)
    return tuple(found)


_TABLE = _table()


class EventValues(NamedTuple):
    """Scalars by tag that were written at a time (seconds since the epoch) and a step."""

    wall_time: float
    step: int
    values: dict[str, float]


def compute_masked_crc(data: bytes) -> int:
    """Compute the CRC-32C of the data, rotated and offset as the format has it."""
    value, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    value ^= 0xFFFFFFFF
    return ((value >> 15 | value << 17) + _MASK) & 0xFFFFFFFF


class EventFileReader:
    """Reads one file piece by piece. A file ends inside a record while its writer is at work.

    ``damaged`` is True once a checksum was wrong: the lengths after it cannot be trusted, so nothing more is read.
    """

    def __init__(self) -> None:
        self.damaged = False
        self._data = b""
        self._skip = 0

    def feed(self, data: bytes) -> Iterator[EventValues]:
        """Yield the events with scalars that these bytes complete."""
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        self._data += data[skipped:]
        while not self.damaged and len(self._data) >= _LENGTH.size:
            length, check = _LENGTH.unpack_from(self._data)
            if compute_masked_crc(self._data[:8]) != check:
                self.damaged = True
                break
            whole = _LENGTH.size + length + _CHECK.size
            if length > MOST_RECORD:
                self._skip = max(whole - len(self._data), 0)
                self._data = self._data[whole:]
                continue
            if len(self._data) < whole:
                return
            record, rest = self._data[_LENGTH.size : _LENGTH.size + length], self._data[whole:]
            if compute_masked_crc(record) != _CHECK.unpack_from(self._data, _LENGTH.size + length)[0]:
                self.damaged = True
                break
            self._data = rest
            try:
                event = _event(record)
            except (InvalidRequestError, struct.error, UnicodeDecodeError):
                continue  # the checksum is right: a message of another kind
            if event.values:
                yield event
        if self.damaged:
            self._data = b""


def _event(data: bytes) -> EventValues:
    wall_time, step = 0.0, 0
    values: dict[str, float] = {}
    for tag, _, at, end in iterate_fields(data, 0, len(data)):
        if tag == _WALL_TIME:
            (wall_time,) = _DOUBLE.unpack_from(data, at)
        elif tag == _STEP:
            step = read_varint(data, at, end)[0]
            step -= 2**64 if step >= 2**63 else 0
        elif tag == _SUMMARY:
            for inner, _, begin, stop in iterate_fields(data, at, end):
                if inner == _VALUE:
                    values.update(_value(data[begin:stop]))
    return EventValues(wall_time, step, values)


def _value(data: bytes) -> dict[str, float]:
    """Return the scalar of a summary's value by its tag; empty for histograms, images and texts."""
    name, number = "", None
    for tag, _, at, end in iterate_fields(data, 0, len(data)):
        if tag == _TAG:
            name = data[at:end].decode()
        elif tag == _SIMPLE:
            (number,) = _FLOAT.unpack_from(data, at)
        elif tag == _TENSOR:
            number = _scalar(data[at:end])
    return {} if number is None or not name else {name: number}


def _scalar(data: bytes) -> float | None:
    """Return the number of a tensor without dimensions; None for any other tensor."""
    kind, content, numbers = 0, b"", []
    for tag, _, at, end in iterate_fields(data, 0, len(data)):
        if tag == _DTYPE:
            kind = read_varint(data, at, end)[0]
        elif tag == _CONTENT:
            content = data[at:end]
        elif tag == _SHAPE and any(inner == _DIMENSION for inner, *_ in iterate_fields(data, at, end)):
            return None
        elif tag in _NUMBERS:
            numbers.append(_NUMBERS[tag].unpack_from(data, at)[0])
    if numbers:
        return float(numbers[0])
    form_of = _FORMATS.get(kind)
    if form_of is None or len(content) != struct.calcsize(form_of):
        return None
    return float(struct.unpack(form_of, content)[0])
