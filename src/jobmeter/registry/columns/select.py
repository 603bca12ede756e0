"""A page out of the rows that match, in order, without sorting the others: pure functions over arrays."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int32]
Key = Callable[[Rows], NDArray[np.int64]]
"""What rows are sorted by: their numbers, smaller first."""

_FEW = 2048
"""So many rows are sorted whole."""


def page(rows: Rows, keys: Sequence[Key], *, descending: bool, offset: int, limit: int) -> Rows:
    """The rows from ``offset`` on, ``limit`` at most, in the order of the keys, the first one first.

    ``descending`` turns the order of every key. Time grows with the number of rows, not with the offset.
    """
    total = len(rows)
    start, stop = min(offset, total), min(offset + limit, total)
    if not descending:
        return _window(rows, keys, start, stop)
    return _window(rows, keys, total - stop, total - start)[::-1]


def _window(rows: Rows, keys: Sequence[Key], start: int, stop: int) -> Rows:
    """Those rows that stand from ``start`` to before ``stop`` in ascending order."""
    if start >= stop:
        return rows[:0]
    if not keys:
        return rows[start:stop]
    values = keys[0](rows)
    if len(rows) <= _FEW or stop - start > len(rows) // 2:
        return rows[_order(values, rows, keys[1:])][start:stop]
    placed = np.partition(values, (start, stop - 1))
    first, last = placed[start], placed[stop - 1]
    begin = start - int(np.count_nonzero(values < first))
    lowest = rows[values == first]
    if first == last:
        return _window(lowest, keys[1:], begin, begin + stop - start)
    # Whole between the values of the page's ends, which many rows may share.
    head = _window(lowest, keys[1:], begin, len(lowest))
    within = (values > first) & (values < last)
    middle = rows[within]
    middle = middle[_order(values[within], middle, keys[1:])]
    tail = _window(rows[values == last], keys[1:], 0, stop - start - len(head) - len(middle))
    return np.concatenate((head, middle, tail))


def _order(values: NDArray[np.int64], rows: Rows, others: Sequence[Key]) -> NDArray[np.intp]:
    return np.lexsort((*(key(rows) for key in reversed(others)), values))
