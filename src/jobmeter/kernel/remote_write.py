"""Finds the parts of a Prometheus remote-write request in one pass (``remote_write.c``)."""

import msgspec
import numpy as np
from numpy.typing import NDArray

from jobmeter.kernel.bind import DATA, PLACE, SIZE, Function, bind
from jobmeter.kernel.library import point_to
from jobmeter.kernel.scratch import borrow_scratch

Int64s = NDArray[np.int64]

_READ, _NO_ROOM = 0, 2
_SERIES, _ROWS, _HISTOGRAMS, _EXEMPLARS, _SYMBOLS, _REFERENCES = range(6)
_LEAST = 64
_USUAL, _SHORTEST = 16, 2
"""Fewest bytes of a usual sample, and of any sample. A reference takes at least half of that."""

_SCAN_1 = bind("jobmeter_remote_write_1", [DATA, *[SIZE] * 2, *[PLACE] * 2, SIZE, *[PLACE] * 3, SIZE, PLACE], SIZE)
_SCAN_2 = bind(
    "jobmeter_remote_write_2",
    [DATA, *[SIZE] * 2, *[PLACE] * 2, SIZE, PLACE, SIZE, PLACE, SIZE, *[PLACE] * 3, SIZE, PLACE],
    SIZE,
)


class ScannedWrite(msgspec.Struct, frozen=True, eq=False):
    """The samples of a request.

    ``index`` uint32[n] is the series of each sample, ``time`` int64[n], ``value`` float64[n]. Version 1: the label
    fields of series i lie at ``begin[i]:end[i]`` (int64). Version 2: symbol i lies there, and series i refers to the
    symbols ``refs[edges[i]:edges[i + 1]]`` (uint32, all of them below the number of symbols).
    """

    series: int
    begin: Int64s
    end: Int64s
    index: NDArray[np.uint32]
    time: Int64s
    value: NDArray[np.float64]
    histograms: int
    exemplars: int
    edges: Int64s
    refs: NDArray[np.uint32]


def scan_1(data: bytes, most: int) -> ScannedWrite | None:
    """Scan a ``prometheus.WriteRequest`` of at most ``most`` parts. None if it is unusual."""
    return _scan_with_larger_buffers(data, most, _SCAN_1, second=False)


def scan_2(data: bytes, most: int) -> ScannedWrite | None:
    """Scan an ``io.prometheus.write.v2.Request``. None if it is unusual."""
    return _scan_with_larger_buffers(data, most, _SCAN_2, second=True)


def _scan_with_larger_buffers(data: bytes, most: int, scan: Function, *, second: bool) -> ScannedWrite | None:
    """Scan with buffers for usual messages, then for the worst case of that size; None if the scan fails."""
    result, scanned = _scan(data, most, _USUAL, scan, second=second)
    if result == _NO_ROOM:
        result, scanned = _scan(data, most, _SHORTEST, scan, second=second)
    return scanned if result == _READ else None


def _scan(data: bytes, most: int, least: int, scan: Function, *, second: bool) -> tuple[int, ScannedWrite]:
    size = len(data)
    parts = rows = size // least + _LEAST
    begin, end = borrow_scratch("begin", np.int64, parts), borrow_scratch("end", np.int64, parts)
    edges = borrow_scratch("edges", np.int64, parts + 1 if second else 0)
    refs = borrow_scratch("refs", np.uint32, 2 * rows if second else 0)
    index = borrow_scratch("index", np.uint32, rows)
    time, value = borrow_scratch("time", np.int64, rows), borrow_scratch("value", np.float64, rows)
    counts = np.zeros(6, np.int64)
    names = (data, size, most, point_to(begin), point_to(end), parts)
    samples = (point_to(index), point_to(time), point_to(value), rows, point_to(counts))
    between = (point_to(edges), parts, point_to(refs), 2 * rows) if second else ()
    result = int(scan(*names, *between, *samples))
    numbers = counts.tolist()
    named, rows = numbers[_SYMBOLS if second else _SERIES], numbers[_ROWS]
    # Copy: the scratch buffers are used again.
    scanned = ScannedWrite(
        series=numbers[_SERIES],
        begin=begin[:named].copy(),
        end=end[:named].copy(),
        index=index[:rows].copy(),
        time=time[:rows].copy(),
        value=value[:rows].copy(),
        histograms=numbers[_HISTOGRAMS],
        exemplars=numbers[_EXEMPLARS],
        edges=edges[: numbers[_SERIES] + 1].copy(),
        refs=refs[: numbers[_REFERENCES]].copy(),
    )
    return result, scanned
