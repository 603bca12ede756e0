"""Reads remote-write requests in plain Python, if the compiled scan is missing or does not support the request."""

import struct
from collections import Counter
from dataclasses import dataclass, field

from jobmeter.errors import LimitExceededError
from jobmeter.wire.protobuf import BYTES, iterate_fields, read_varint

_LABELS, _SAMPLE = 0x0A, 0x12
"""Tags of a series that both versions share."""
_VALUE, _TIME = 0x09, 0x10
_DOUBLE = struct.Struct("<d")


@dataclass(slots=True)
class RequestFields:
    """The fields of a request. ``symbols``: the start and end of each symbol. ``names``: the name of each series.

    A name is the label fields with their tags and lengths; with references, their numbers as packed varints. ``index``,
    ``value`` and ``time`` (ms) of the samples; ``others`` counts the further fields of series by their tag.
    """

    symbols: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    names: list[bytes] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    time: list[int] = field(default_factory=list)
    others: Counter[int] = field(default_factory=Counter)


def read(data: bytes, series: int, symbol: int | None, most: int) -> RequestFields:
    """Read the fields of a request; ``series`` and ``symbol`` are tags. ``symbol`` None: labels are texts.

    Raises InvalidRequestError, LimitExceededError for more than ``most`` fields.
    """
    found = RequestFields()
    for count, (tag, _, at, end) in enumerate(iterate_fields(data, 0, len(data)), 1):
        if count > most:
            raise LimitExceededError(f"a request may have at most {most} series, symbols and other parts", "body")
        if tag == series:
            _series(found, data, at, end, packed=symbol is not None)
        elif tag == symbol:
            found.symbols[0].append(at)
            found.symbols[1].append(end)
    return found


def _series(into: RequestFields, data: bytes, at: int, end: int, *, packed: bool) -> None:
    name: list[bytes] = []
    for tag, begin, content, stop in iterate_fields(data, at, end):
        if tag == _LABELS:
            name.append(data[content if packed else begin : stop])
        elif tag == _LABELS - BYTES and packed:  # references that are not packed are legal too
            name.append(data[content:stop])
        elif tag == _SAMPLE:
            value, time = _sample(data, content, stop)
            into.index.append(len(into.names))
            into.value.append(value)
            into.time.append(time)
        else:
            into.others[tag] += 1
    into.names.append(b"".join(name))


def _sample(data: bytes, at: int, end: int) -> tuple[float, int]:
    """Return the value and the time of a Sample. Absent fields are 0, unknown fields are ignored."""
    value, time = 0.0, 0
    for tag, _, content, _ in iterate_fields(data, at, end):
        if tag == _VALUE:
            (value,) = _DOUBLE.unpack_from(data, content)
        elif tag == _TIME:
            time, _ = read_varint(data, content, end)
    return value, time - 2**64 if time >= 2**63 else time


def parse_label(data: bytes, at: int, end: int) -> tuple[bytes, bytes]:
    """Return the name and the value of a Label."""
    name = value = b""
    for tag, _, content, stop in iterate_fields(data, at, end):
        if tag == 0x0A:
            name = data[content:stop]
        elif tag == 0x12:
            value = data[content:stop]
    return name, value
