"""Decodes requests of both versions, also in Snappy, to columns: by the compiled scan, else in plain Python.

https://prometheus.io/docs/specs/prw/remote_write_spec/ and https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from jobmeter.errors import InvalidRequestError
from jobmeter.kernel.remote_write import ScannedWrite, scan_1, scan_2
from jobmeter.kernel.text_table import Texts
from jobmeter.model.batch import Float64s, Int64s, Uint32s
from jobmeter.wire.protobuf import iterate_fields
from jobmeter.wire.remote_write.reference import RequestFields, parse_label, read
from jobmeter.wire.remote_write.symbols import Symbols, decode_references

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
        return decode_reference_1(data)
    names = Texts(data, scanned.begin, scanned.end)
    return _make_written_series(scanned, names, _make_name_reader(names))


def decode_2(data: bytes, symbol_cache: Symbols | None = None) -> WrittenSeries:
    """Decode an ``io.prometheus.write.v2.Request``; ``symbol_cache`` has the texts of earlier requests.

    Metadata is skipped. Raises InvalidRequestError.
    """
    symbol_cache = Symbols() if symbol_cache is None else symbol_cache
    scanned = scan_2(data, MOST_PARTS)
    if scanned is None:
        return decode_reference_2(data, symbol_cache)
    symbols = Texts(data, scanned.begin, scanned.end)
    refs, edges = scanned.refs, scanned.edges
    return _make_written_series(
        scanned, _number_symbols(symbol_cache, symbols, refs, edges), _make_symbol_reader(symbols, refs, edges)
    )


def decode_reference_1(data: bytes) -> WrittenSeries:
    """Decode version 1 in plain Python."""
    found = read(data, _SERIES_1, None, MOST_PARTS)
    return _columns(found, found.names, _make_name_reader(found.names), _HISTOGRAMS_1)


def decode_reference_2(data: bytes, symbol_cache: Symbols) -> WrittenSeries:
    """Decode version 2 in plain Python."""
    found = read(data, _SERIES_2, _SYMBOL, MOST_PARTS)
    symbols = Texts(data, *(np.array(places, np.int64) for places in found.symbols))
    refs, edges = decode_references(found.names, len(symbols))
    keys = _number_symbols(symbol_cache, symbols, refs, edges)
    return _columns(found, keys, _make_symbol_reader(symbols, refs, edges), _HISTOGRAMS_2)


def _number_symbols(symbol_cache: Symbols, symbols: Texts, refs: NDArray[Any], edges: Int64s) -> Texts:
    """Return the keys of series: the numbers of the symbols that they refer to."""
    numbers = symbol_cache.find_numbers(symbols)[refs]
    bounds = edges * numbers.itemsize
    return Texts(numbers.tobytes(), bounds[:-1], bounds[1:])


def _make_name_reader(names: Sequence[bytes]) -> Callable[[int], Labels]:
    def labels(place: int) -> Labels:
        name = names[place]
        return _texts(parse_label(name, begin, stop) for _, _, begin, stop in iterate_fields(name, 0, len(name)))

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
