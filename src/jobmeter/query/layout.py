"""Layouts: assignment of series to the lines of an answer, cached for later queries."""

from collections.abc import Hashable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from jobmeter.kernel import window as kernel
from jobmeter.model.batch import Int64s, SeriesKeys
from jobmeter.model.catalog import Aggregate, Metric, find
from jobmeter.model.job import JobView
from jobmeter.query.lines import LineLabels, Ranks, assign, find_aggregate, sort_key
from jobmeter.query.request import By, LineName, MetricQuery, Statistic
from jobmeter.query.selected_series import SelectedSeries, SubjectKey
from jobmeter.query.selection import list_devices
from jobmeter.store.base import StoreMemory
from jobmeter.store.cache import Cache

MOST_SERIES = 2_000
MOST_SAMPLES = 100_000
MOST_POINTS = 5_000
"""Most points that the event loop may answer from memory: more would delay other requests."""
_ENTRY_BYTES = 500
"""Approximate memory of an entry in a layout, in bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Selected series with the lines of their answer.

    ``line`` int64[members] is the line of each member, ``heads`` the lines' names, ``order`` the listing order of the
    lines. ``range_independent`` is True if the layout is valid for any range, because no entry is clipped.
    ``one_line_per_series`` are the metrics in which each entry is one line, in ascending order: nothing has to be
    combined or sorted.
    """

    shape: SelectedSeries
    line: Int64s
    heads: Sequence[LineLabels]
    order: Sequence[int]
    range_independent: bool
    one_line_per_series: frozenset[str] = frozenset()
    grid: "Grid | None" = None

    def read_means(self, query: MetricQuery, memory: StoreMemory) -> kernel.LineColumns | None:
        """Read the means of plain gauges from memory, in the order of the grid's names.

        None without a grid, or if some data is not in memory. No metric of the query may be derived.
        """
        grid = self.grid
        if grid is None or query.statistic is not Statistic.MEAN:
            return None
        return memory.average_lines(
            grid.keys, grid.join(query.aggregate, query.by), query.range, query.step_ms, MOST_SAMPLES
        )


class Grid:
    """Series that the window can combine directly: gauges, one per member.

    ``keys`` belong to the shape's entries in order. ``names`` are the lines of each metric: metrics by name, lines in
    listing order.
    """

    __slots__ = ("_cell", "_joins", "_metrics", "keys", "names")

    def __init__(self, keys: SeriesKeys, cell: Int64s, metrics: Sequence[Metric], heads: Sequence[LineLabels]) -> None:
        """``cell`` int64[k] is the position in ``names`` of each series' line; ``heads`` are in listing order."""
        self.keys = keys
        self.names = [LineName(one.name, one.answer_unit, *head) for one in metrics for head in heads]
        self._cell = cell
        self._metrics = metrics
        self._joins: dict[tuple[Aggregate | None, By], kernel.WindowGrid] = {}

    def join(self, how: Aggregate | None, by: By) -> kernel.WindowGrid:
        """Return the grid for combining series into lines; ``how`` None uses the catalogue's way."""
        found = self._joins.get((how, by))
        if found is None:
            ways = [_JOINS[_way(metric, how, by)] for metric in self._metrics]
            lines = len(self.names) // len(ways)
            found = self._joins[how, by] = kernel.WindowGrid(self._cell, np.repeat(np.array(ways, np.uint8), lines))
        return found


def _way(metric: Metric, how: Aggregate | None, by: By) -> Aggregate:
    """Return the way to combine the members of a line, as in ``jobmeter.query.table.compute_lines``."""
    how = how or find_aggregate(metric, by)
    return (metric.on_node if how is Aggregate.WHOLE else how) or metric.over


_JOINS = {
    Aggregate.MEAN: kernel.MEAN,
    Aggregate.RATIO: kernel.MEAN,
    Aggregate.SUM: kernel.SUM,
    Aggregate.MIN: kernel.MIN,
    Aggregate.MAX: kernel.MAX,
}


def lay_out(shape: SelectedSeries, by: By, ranks: Ranks, *, range_independent: bool) -> Layout:
    """Assign the entries of a shape to lines of one kind."""
    line, heads = assign(shape, by, ranks)
    order = sorted(range(len(heads)), key=lambda at: sort_key(heads[at]))
    one_line_per_series = frozenset(name for name in shape.metrics if _has_one_line_per_series(shape, name, line))
    return Layout(
        shape,
        line,
        heads,
        order,
        range_independent,
        one_line_per_series,
        _grid(shape, line, heads, order) if range_independent else None,
    )


def _grid(shape: SelectedSeries, line: Int64s, heads: Sequence[LineLabels], order: Sequence[int]) -> Grid | None:
    names = sorted(shape.metrics)
    metrics = [metric for name in names if (metric := find(name)) is not None]
    whole = bool(shape.of_job.all() or not shape.of_job.any())
    if (
        shape.keys is None
        or not all(map(shape.has_single_entries, names))
        or not whole
        or not 0 < len(metrics) == len(names)
    ):
        return None
    if len(shape.entries) > MOST_SERIES:
        return None
    place = np.argsort(np.array(order, np.int64))
    cell: Int64s = place[line[shape.member]]
    for number, name in enumerate(names):
        first, end = shape.find_range(name)
        cell[first:end] += number * len(heads)
    keys = SeriesKeys.from_series([entry.series for entry in shape.entries])
    return Grid(keys, cell, metrics, [heads[at] for at in order])


def _has_one_line_per_series(shape: SelectedSeries, metric: str, line: Int64s) -> bool:
    first, end = shape.find_range(metric)
    return bool(np.all(np.diff(line[shape.member[first:end]]) > 0))


@dataclass(slots=True, eq=False)
class CachedLayout:
    """Layout with the registry's ranks and devices at its creation; None for a layout that depends on the range.

    ``unassigned`` is the revision of series without a job, None if the layout does not depend on them.
    """

    view: JobView
    ranks: Ranks
    devices: AbstractSet[SubjectKey]
    unassigned: Hashable | None
    layout: Layout | None


class Layouts:
    """Cached layouts by job and query. Thread-safe.

    A range-independent layout is valid while the job's series (``validator``), its series without a job
    (``unassigned``, if it depends on them), and the registry's devices and ranks are unchanged.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def get(self, key: Hashable, view: JobView, validator: object, unassigned: Hashable | None) -> CachedLayout | None:
        """Return what is cached of a job's series under ``key``; None if it has to be built."""
        found: CachedLayout | None = self._cache.get((Layouts, key), validator)
        if found is None or found.unassigned not in (None, unassigned):
            return None
        if found.view is not view:
            if (found.ranks, found.devices) != (Ranks.from_view(view), list_devices(view)):
                return None
            found.view = view  # the next comparison is then by identity
        return found

    def put(
        self,
        key: Hashable,
        view: JobView,
        validator: object,
        layout: Layout,
        ranks: Ranks,
        unassigned: Hashable | None,
    ) -> None:
        """Cache a layout made with these ranks, or that it depends on the range.

        Read ``validator`` and ``unassigned`` before building it.
        """
        found = layout if layout.range_independent else None
        entry = CachedLayout(view, ranks, list_devices(view), unassigned, found)
        entries = 1 if found is None else len(found.shape.entries)
        self._cache.put((Layouts, key), validator, entry, _ENTRY_BYTES * entries)
