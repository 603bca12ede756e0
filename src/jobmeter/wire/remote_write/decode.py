"""Decodes requests of both versions, also in Snappy, to columns: by the compiled scan, else in plain Python.

https://prometheus.io/docs/specs/prw/remote_write_spec/ and https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/
"""

import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.kernel.remote_write import ScannedWrite, scan_1, scan_2
from jobmeter.kernel.text_table import Texts, TextTable
from jobmeter.model.batch import Float64s, Int64s, Uint32s, Uint64s
from jobmeter.model.memory import Take
from jobmeter.wire.protobuf import BYTES, fields, make_damage_error, varint

_BEST = 22
"""Upper bound of the compression ratio: 3 bytes unpack to 64 at most."""
_HEAD = 16


def unpack(packed: bytes, limit: int, take: Take) -> bytes:
    """Unpack a block. ``take`` is called with its unpacked size before memory is allocated, and may raise.

    Raises InvalidRequestError (field ``body``) for an invalid block. Raises LimitExceededError if the block declares
    more than ``limit`` bytes, before memory is allocated.
    """
    size, at = varint(packed, 0, len(packed))
    if size > limit:
        raise LimitExceededError(f"a body may have {limit} bytes after decompression, this one declares {size}", "body")
    if size == 0 and at == len(packed):
        return b""
    if size > _BEST * len(packed) + _HEAD:
        raise InvalidRequestError(
            "the body is not a Snappy block: it is too short for the size that it declares", "body"
        )
    take(size)
    import pyarrow as pa  # noqa: PLC0415 - 30 MiB, for servers to which nobody writes in this form

    try:
        unpacked: bytes = pa.decompress(packed, size, codec="snappy", asbytes=True)
    except (OSError, pa.ArrowInvalid) as error:
        raise InvalidRequestError("the body is not a Snappy block", "body") from error
    return unpacked


_MOST = 1_000_000
_MOST_BYTES = 64 * 2**20
_LONGEST = 5


class Symbols:
    """A number for each text, the same in every request, so that series are recognised by their numbers.

    Safe for several threads. Too many texts empty the table. A number is never used twice.
    """

    def __init__(self, bound: int = _MOST_BYTES) -> None:
        """``bound``: bytes of all texts together."""
        self._bound = bound
        self._lock = threading.Lock()
        self._table = TextTable()
        self._base = 0

    @property
    def size(self) -> int:
        """Bytes of the texts."""
        return self._table.size

    def numbers(self, symbols: Sequence[bytes]) -> Uint64s:
        """Return the number of each text, uint64[n]."""
        with self._lock:
            if len(self._table) > _MOST or self._table.size > self._bound:
                self._base += len(self._table)
                self._table = TextTable()
            return (self._table.add(Texts.of(symbols)) + self._base).astype(np.uint64)


def references(parts: Sequence[bytes], count: int) -> tuple[Int64s, Int64s]:
    """Decode packed varints of many series: all numbers int64[n], and the start of each series, int64[len(parts) + 1].

    Raises InvalidRequestError for a varint that is cut off, or not below ``count``.
    """
    octets = np.frombuffer(b"".join(parts), np.uint8)
    last = octets < 128
    stops = np.cumsum(np.fromiter((len(part) for part in parts), np.int64, len(parts)))
    if len(octets) and not last[stops[stops > 0] - 1].all():
        raise make_damage_error("it ends inside a reference")
    ends = np.flatnonzero(last) + 1
    begins = np.r_[0, ends[:-1]] if len(ends) else ends
    digits = ends - begins
    if len(digits) and int(digits.max()) > _LONGEST:
        raise make_damage_error("a reference has more than 32 bits")
    refs = np.zeros(len(ends), np.int64)
    for place in range(int(digits.max(initial=0))):
        there = digits > place
        refs[there] |= (octets[begins[there] + place].astype(np.int64) & 127) << (7 * place)
    if len(refs) and int(refs.max()) >= count:
        raise make_damage_error(f"a series refers to symbol {int(refs.max())} of {count}")
    return refs, np.r_[0, np.cumsum(last)][np.r_[0, stops]]


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
    for count, (tag, _, at, end) in enumerate(fields(data, 0, len(data)), 1):
        if count > most:
            raise LimitExceededError(f"a request may have {most} series, symbols and other parts", "body")
        if tag == series:
            _series(found, data, at, end, packed=symbol is not None)
        elif tag == symbol:
            found.symbols[0].append(at)
            found.symbols[1].append(end)
    return found


def _series(into: RequestFields, data: bytes, at: int, end: int, *, packed: bool) -> None:
    name: list[bytes] = []
    for tag, begin, content, stop in fields(data, at, end):
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
    for tag, _, content, _ in fields(data, at, end):
        if tag == _VALUE:
            (value,) = _DOUBLE.unpack_from(data, content)
        elif tag == _TIME:
            time, _ = varint(data, content, end)
    return value, time - 2**64 if time >= 2**63 else time


def label(data: bytes, at: int, end: int) -> tuple[bytes, bytes]:
    """Return the name and the value of a Label."""
    name = value = b""
    for tag, _, content, stop in fields(data, at, end):
        if tag == 0x0A:
            name = data[content:stop]
        elif tag == 0x12:
            value = data[content:stop]
    return name, value


MOST_PARTS = 1_000_000
_SERIES_1, _SYMBOL, _SERIES_2 = 0x0A, 0x22, 0x2A
_HISTOGRAMS_1, _HISTOGRAMS_2 = 0x22, 0x1A

Labels = list[tuple[str, str]]


class WrittenSeries(msgspec.Struct, frozen=True, eq=False):
    """The samples of a request.

    ``keys``: bytes that encode the labels of each series, the same in every request of the same version. ``labels``
    reads the labels of one series, by its position; it raises InvalidRequestError (field ``labels``). ``index``
    uint32[n] is the series of each sample, with its ``value`` float64[n] and its ``time`` int64[n] ms. ``histograms``
    counts native histograms.
    """

    keys: Sequence[bytes]
    labels: Callable[[int], Labels]
    index: Uint32s
    time: Int64s
    value: Float64s
    histograms: int


def decode_1(data: bytes) -> WrittenSeries:
    """Decode a ``prometheus.WriteRequest``. Metadata is skipped. Raises InvalidRequestError."""
    scanned = scan_1(data, MOST_PARTS)
    if scanned is None:
        return reference_1(data)
    names = Texts(data, scanned.begin, scanned.end)
    return _make_written_series(scanned, names, _make_name_reader(names))


def decode_2(data: bytes, symbol_cache: Symbols | None = None) -> WrittenSeries:
    """Decode an ``io.prometheus.write.v2.Request``; ``symbol_cache`` has the texts of earlier requests.

    Metadata is skipped. Raises InvalidRequestError.
    """
    symbol_cache = Symbols() if symbol_cache is None else symbol_cache
    scanned = scan_2(data, MOST_PARTS)
    if scanned is None:
        return reference_2(data, symbol_cache)
    symbols = Texts(data, scanned.begin, scanned.end)
    refs, edges = scanned.refs, scanned.edges
    return _make_written_series(
        scanned, _number_symbols(symbol_cache, symbols, refs, edges), _make_symbol_reader(symbols, refs, edges)
    )


def reference_1(data: bytes) -> WrittenSeries:
    """Decode version 1 in plain Python."""
    found = read(data, _SERIES_1, None, MOST_PARTS)
    return _columns(found, found.names, _make_name_reader(found.names), _HISTOGRAMS_1)


def reference_2(data: bytes, symbol_cache: Symbols) -> WrittenSeries:
    """Decode version 2 in plain Python."""
    found = read(data, _SERIES_2, _SYMBOL, MOST_PARTS)
    symbols = Texts(data, *(np.array(places, np.int64) for places in found.symbols))
    refs, edges = references(found.names, len(symbols))
    keys = _number_symbols(symbol_cache, symbols, refs, edges)
    return _columns(found, keys, _make_symbol_reader(symbols, refs, edges), _HISTOGRAMS_2)


def _number_symbols(symbol_cache: Symbols, symbols: Texts, refs: NDArray[Any], edges: Int64s) -> Texts:
    """Return the keys of series: the numbers of the symbols that they refer to."""
    numbers = symbol_cache.numbers(symbols)[refs]
    bounds = edges * numbers.itemsize
    return Texts(numbers.tobytes(), bounds[:-1], bounds[1:])


def _make_name_reader(names: Sequence[bytes]) -> Callable[[int], Labels]:
    def labels(place: int) -> Labels:
        name = names[place]
        return _texts(label(name, begin, stop) for _, _, begin, stop in fields(name, 0, len(name)))

    return labels


def _make_symbol_reader(symbols: Sequence[bytes], refs: NDArray[Any], edges: Int64s) -> Callable[[int], Labels]:
    def labels(place: int) -> Labels:
        own = [symbols[ref] for ref in refs[edges[place] : edges[place + 1]].tolist()]
        if len(own) % 2:
            raise InvalidRequestError("the references of a series are not in pairs", "labels")
        return _texts(zip(own[::2], own[1::2], strict=True))

    return labels


def _make_written_series(found: ScannedWrite, keys: Texts, labels: Callable[[int], Labels]) -> WrittenSeries:
    return WrittenSeries(keys, labels, found.index, found.time, found.value, found.histograms)


def _columns(
    found: RequestFields, keys: Sequence[bytes], labels: Callable[[int], Labels], histograms: int
) -> WrittenSeries:
    index, time = np.array(found.index, np.uint32), np.array(found.time, np.int64)
    value = np.array(found.value, np.float64)
    return WrittenSeries(keys, labels, index, time, value, found.others[histograms])


def _texts(pairs: Iterable[tuple[bytes, bytes]]) -> Labels:
    try:
        return [(name.decode(), value.decode()) for name, value in pairs]
    except UnicodeDecodeError as error:
        raise InvalidRequestError("a label is not UTF-8", "labels") from error
