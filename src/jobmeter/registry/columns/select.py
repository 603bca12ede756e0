"""Selects a page of the matching rows in order, without sorting all of them: pure functions over arrays."""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from jobmeter.model.job import JobGroup
from jobmeter.registry.columns.table import JobTable

Rows = NDArray[np.int32]
Key = Callable[[Rows], NDArray[np.int64]]
"""Returns the sort keys of rows, smaller first."""

_DISTINCT = 64
"""Number of distinct values, from 0 on, below which rows are selected value by value."""
_FEW = 2048
"""Number of rows up to which all are sorted."""
_MANY = 50_000
_SAMPLE = 10_000
_MARGIN = 300
"""Tolerance of a quantile in sampled rows: six standard errors of the median of 10,000."""


def cut_page(rows: Rows, keys: Sequence[Key], *, descending: bool, offset: int, limit: int) -> Rows:
    """Return the rows from ``offset`` on, at most ``limit``, sorted by the keys in order of significance.

    ``descending`` reverses every key. Time grows with the number of rows, not with the offset.
    """
    total = len(rows)
    start, stop = min(offset, total), min(offset + limit, total)
    if not descending:
        return _window(rows, keys, start, stop)
    return _window(rows, keys, total - stop, total - start)[::-1]


def _window(rows: Rows, keys: Sequence[Key], start: int, stop: int) -> Rows:
    """Return the rows from ``start`` to before ``stop`` in ascending order."""
    if start >= stop:
        return rows[:0]
    if not keys:
        return rows[start:stop]
    values = keys[0](rows)
    if len(rows) <= _FEW or stop - start > len(rows) // 2:
        return rows[_order(values, rows, keys[1:])][start:stop]
    if values.min() >= 0 and values.max() < _DISTINCT:
        return _select_by_value(rows, values, keys[1:], start, stop)
    if len(rows) > _MANY:
        near, below = _mark_near_window(values, start, stop)
        if near is not None:
            return _window(rows[near], keys, start - below, stop - below)
    placed = np.partition(values, (start, stop - 1))
    first, last = placed[start], placed[stop - 1]
    begin = start - int(np.count_nonzero(values < first))
    lowest = rows[values == first]
    if first == last:
        return _window(lowest, keys[1:], begin, begin + stop - start)
    # Whole rows between the values of the page's ends, which many rows may share.
    head = _window(lowest, keys[1:], begin, len(lowest))
    within = (values > first) & (values < last)
    middle = rows[within]
    middle = middle[_order(values[within], middle, keys[1:])]
    tail = _window(rows[values == last], keys[1:], 0, stop - start - len(head) - len(middle))
    return np.concatenate((head, middle, tail))


def _select_by_value(rows: Rows, values: NDArray[np.int64], keys: Sequence[Key], start: int, stop: int) -> Rows:
    """Return a window of rows with few different values: only rows whose value is in the window are sorted."""
    ends = np.cumsum(np.bincount(values)).tolist()
    found = [
        _window(rows[values == value], keys, max(start - begin, 0), min(stop, end) - begin)
        for value, (begin, end) in enumerate(pairwise((0, *ends)))
        if begin < stop and start < end
    ]
    return np.concatenate(found)


def _mark_near_window(values: NDArray[np.int64], start: int, stop: int) -> tuple[NDArray[np.bool_] | None, int]:
    """Mark the rows that may be in the window, judged by a sample, and count the rows before them.

    None if the sample misleads or leaves too many rows. Comparing all rows with two values takes a tenth of the time of
    a partition.
    """
    step = len(values) // _SAMPLE
    sample = np.sort(values[::step])
    first = sample[max(0, start // step - _MARGIN)] if start // step > _MARGIN else values.min()
    place = stop // step + 1 + _MARGIN
    last = sample[place] if place < len(sample) else values.max()
    near = (values >= first) & (values <= last)
    below = int(np.count_nonzero(values < first))
    within = int(np.count_nonzero(near))
    if below > start or below + within < stop or within > len(values) // 2:
        return None, 0
    return near, below


def _order(values: NDArray[np.int64], rows: Rows, others: Sequence[Key]) -> NDArray[np.intp]:
    return np.lexsort((*(key(rows) for key in reversed(others)), values))


_KEY = ("project", "resource_group", "workspace")


def list_job_groups(table: JobTable, rows: Rows) -> list[JobGroup]:
    """Return the groups that these rows name. See ``Registry.list_job_groups``."""
    columns = [table.texts[name] for name in _KEY]
    code = np.zeros(len(rows), np.int64)
    for column in columns:
        code = code * len(column.values) + column.get_numbers(table.count)[rows]
    _, first, place, counts = np.unique(code, return_index=True, return_inverse=True, return_counts=True)
    created, updated = (table.sort_values(name, rows) for name in ("created_sort", "updated"))
    least, most = created[first], updated[first]
    np.minimum.at(least, place, created)
    np.maximum.at(most, place, updated)
    texts = [[column.values[number] for number in column.get_numbers(table.count)[rows[first]]] for column in columns]
    found: dict[tuple[str, str], list[JobGroup]] = {}
    for project, name, workspace, *rest in zip(*texts, counts.tolist(), least.tolist(), most.tolist(), strict=True):
        one = JobGroup(
            name=name,
            project=project,
            workspaces=(workspace,) if workspace else (),
            jobs=rest[0],
            created=rest[1],
            updated=rest[2],
        )
        found.setdefault((project, name), []).append(one)
    return [_join_parts(parts) for _, parts in sorted(found.items())]


def _join_parts(parts: list[JobGroup]) -> JobGroup:
    """Join the parts of a group, which are one for each workspace."""
    return JobGroup(
        name=parts[0].name,
        project=parts[0].project,
        jobs=sum(one.jobs for one in parts),
        workspaces=tuple(sorted({workspace for one in parts for workspace in one.workspaces})),
        created=min(one.created for one in parts),
        updated=max(one.updated for one in parts),
    )
