"""Requests of both versions to columns, without an object for each sample.

https://prometheus.io/docs/specs/prw/remote_write_spec/ and https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from jobmeter.errors import InvalidRequestError
from jobmeter.model.batch import Float64s, Int64s, Uint32s
from jobmeter.wire.remote_write.samples import read
from jobmeter.wire.remote_write.scalar import Field, fields, label
from jobmeter.wire.remote_write.symbols import SYMBOLS, references
from jobmeter.wire.remote_write.walk import Octets, Walked, padded, split, walk

MOST_PARTS = 1_000_000
STALE = 0x7FF0000000000002
"""The bits of the NaN that ends a series."""
_SERIES_1, _SYMBOL, _SERIES_2 = 0x0A, 0x22, 0x2A
_HISTOGRAMS_1, _EXEMPLARS_1 = 0x22, 0x1A
_HISTOGRAMS_2, _EXEMPLARS_2 = 0x1A, 0x22

Labels = list[tuple[str, str]]


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """What a request brought.

    ``keys``: what stands for the labels of each series: the same bytes are the same labels, in every request of the
    same version. ``labels`` reads those of one series, by its position; it raises InvalidRequestError (field
    ``labels``). ``index`` uint32[n]: which series a sample is of, each with its finite ``value`` float64[n] and its
    ``time`` int64[n] ms. ``stale`` counts markers of a series' end, ``not_finite`` other values that are no number.
    """

    keys: list[bytes]
    labels: Callable[[int], Labels]
    index: Uint32s
    time: Int64s
    value: Float64s
    stale: int
    not_finite: int
    histograms: int
    exemplars: int


def decode_1(data: bytes) -> Written:
    """A ``prometheus.WriteRequest``. Metadata is passed over. Raises InvalidRequestError."""
    ((starts, ends),) = split(data, (_SERIES_1,), MOST_PARTS)
    octets = padded(data)
    walked = walk(data, octets, starts, ends, packed=False)
    names = walked.names

    def labels(place: int) -> Labels:
        return _texts(label(names[place], begin, stop) for _, _, begin, stop in _parts(names[place]))

    return _written(data, octets, walked, names, labels, _HISTOGRAMS_1, _EXEMPLARS_1)


def decode_2(data: bytes) -> Written:
    """An ``io.prometheus.write.v2.Request``. Metadata is passed over. Raises InvalidRequestError."""
    (froms, untils), (starts, ends) = split(data, (_SYMBOL, _SERIES_2), MOST_PARTS)
    symbols = [data[begin:stop] for begin, stop in zip(froms, untils, strict=True)]
    octets = padded(data)
    walked = walk(data, octets, starts, ends, packed=True)
    refs, edges = references(walked.names, len(symbols))
    numbers = SYMBOLS.numbers(symbols)[refs].tobytes()
    width = len(numbers) // len(refs) if len(refs) else 1
    cuts = (edges * width).tolist()
    keys = [numbers[begin:stop] for begin, stop in itertools.pairwise(cuts)]

    def labels(place: int) -> Labels:
        own = [symbols[ref] for ref in refs[edges[place] : edges[place + 1]].tolist()]
        if len(own) % 2:
            raise InvalidRequestError("the references of a series are not in pairs", "labels")
        return _texts(zip(own[::2], own[1::2], strict=True))

    return _written(data, octets, walked, keys, labels, _HISTOGRAMS_2, _EXEMPLARS_2)


def _parts(name: bytes) -> Iterator[Field]:
    return fields(name, 0, len(name))


def _written(
    data: bytes,
    octets: Octets,
    walked: Walked,
    keys: list[bytes],
    labels: Callable[[int], Labels],
    histograms: int,
    exemplars: int,
) -> Written:
    value, time = read(data, octets, walked.at, walked.end)
    index = walked.index.astype(np.uint32)
    finite = np.isfinite(value)
    stale = odd = 0
    if not finite.all():
        stale = int(np.count_nonzero(value.view(np.uint64) == STALE))
        odd = int(np.count_nonzero(~finite)) - stale
        index, time, value = index[finite], time[finite], value[finite]
    others = walked.others
    return Written(keys, labels, index, time, value, stale, odd, others.get(histograms, 0), others.get(exemplars, 0))


def _texts(pairs: Iterable[tuple[bytes, bytes]]) -> Labels:
    try:
        return [(name.decode(), value.decode()) for name, value in pairs]
    except UnicodeDecodeError as error:
        raise InvalidRequestError("a label is not UTF-8", "labels") from error
