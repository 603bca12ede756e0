"""How series are laid out in the lines of an answer; cached for the next query."""

from collections.abc import Hashable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from jobmeter.kernel import window as kernel
from jobmeter.model.batch import Int64s, SeriesKeys
from jobmeter.model.catalog import Aggregate, Metric, find
from jobmeter.model.job import JobView
from jobmeter.query.gather import devices_of
from jobmeter.query.lines import Head, Ranks, assign, joined_by, sort_key
from jobmeter.query.request import By, LineName, MetricQuery, Statistic
from jobmeter.query.shape import Member, Shape
from jobmeter.store.base import Memory
from jobmeter.store.cache import Cache

MOST_SERIES = 2_000
MOST_SAMPLES = 100_000
MOST_POINTS = 5_000
"""What the event loop answers from memory at most: more than that would delay other requests."""
_ENTRY_BYTES = 500
"""Memory that an entry of a layout takes, about."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """A shape and the lines of its answer.

    ``line`` int64[members] is the line of each member, ``heads`` the lines' names, ``order`` the lines as they are
    listed. ``lasting`` is True when it answers any range: nothing in it is clipped to a part of one. ``apart`` are the
    metrics of which each entry has a line of its own, and the next entry a later one: nothing is joined or sorted.
    """

    shape: Shape
    line: Int64s
    heads: Sequence[Head]
    order: Sequence[int]
    lasting: bool
    apart: frozenset[str] = frozenset()
    grid: "Grid | None" = None

    def means(self, query: MetricQuery, memory: Memory) -> kernel.LineColumns | None:
        """The values of plain gauges, lines by the names of the grid; None without a grid, or where not in memory.

        No metric of the query is derived from others.
        """
        grid = self.grid
        if grid is None or query.statistic is not Statistic.MEAN:
            return None
        return memory.lines(grid.keys, grid.joined(query.aggregate, query.by), query.range, query.step_ms, MOST_SAMPLES)


class Grid:
    """Series that the window can join by itself: gauges, each of them the only one of its member.

    ``keys`` are those of the shape's entries in their order; ``names`` the lines of each metric, the metrics in the
    order of their names and the lines as they are listed.
    """

    __slots__ = ("_cell", "_joins", "_metrics", "keys", "names")

    def __init__(self, keys: SeriesKeys, cell: Int64s, metrics: Sequence[Metric], heads: Sequence[Head]) -> None:
        """``cell`` int64[k] is the position in ``names`` of the line of each series; ``heads`` are as listed."""
        self.keys = keys
        self.names = [LineName(one.name, one.answer_unit, *head) for one in metrics for head in heads]
        self._cell = cell
        self._metrics = metrics
        self._joins: dict[tuple[Aggregate | None, By], kernel.Grid] = {}

    def joined(self, how: Aggregate | None, by: By) -> kernel.Grid:
        """How the series become lines; ``how`` None joins them as the catalogue says."""
        found = self._joins.get((how, by))
        if found is None:
            ways = [_JOINS[_way(metric, how, by)] for metric in self._metrics]
            lines = len(self.names) // len(ways)
            found = self._joins[how, by] = kernel.Grid(self._cell, np.repeat(np.array(ways, np.uint8), lines))
        return found


def _way(metric: Metric, how: Aggregate | None, by: By) -> Aggregate:
    """As ``jobmeter.query.table.lines_of`` joins the members of a line."""
    how = how or joined_by(metric, by)
    return (metric.on_node if how is Aggregate.WHOLE else how) or metric.over


_JOINS = {
    Aggregate.MEAN: kernel.MEAN,
    Aggregate.RATIO: kernel.MEAN,
    Aggregate.SUM: kernel.SUM,
    Aggregate.MIN: kernel.MIN,
    Aggregate.MAX: kernel.MAX,
}


def lay_out(shape: Shape, by: By, ranks: Ranks, *, lasting: bool) -> Layout:
    """The layout of a shape in lines of one kind."""
    line, heads = assign(shape, by, ranks)
    order = sorted(range(len(heads)), key=lambda at: sort_key(heads[at]))
    apart = frozenset(name for name in shape.metrics if _is_apart(shape, name, line))
    return Layout(shape, line, heads, order, lasting, apart, _grid(shape, line, heads, order) if lasting else None)


def _grid(shape: Shape, line: Int64s, heads: Sequence[Head], order: Sequence[int]) -> Grid | None:
    names = sorted(shape.metrics)
    metrics = [metric for name in names if (metric := find(name)) is not None]
    whole = bool(shape.of_job.all() or not shape.of_job.any())
    if shape.keys is None or not all(map(shape.alone, names)) or not whole or not 0 < len(metrics) == len(names):
        return None
    if len(shape.entries) > MOST_SERIES:
        return None
    place = np.argsort(np.array(order, np.int64))
    cell: Int64s = place[line[shape.member]]
    for number, name in enumerate(names):
        first, end = shape.range_of(name)
        cell[first:end] += number * len(heads)
    keys = SeriesKeys.of([entry.series for entry in shape.entries])
    return Grid(keys, cell, metrics, [heads[at] for at in order])


def _is_apart(shape: Shape, metric: str, line: Int64s) -> bool:
    first, end = shape.range_of(metric)
    return bool(np.all(np.diff(line[shape.member[first:end]]) > 0))


@dataclass(slots=True, eq=False)
class _Entry:
    """A layout, and what the registry said of the job's ranks and devices when it was made.

    ``unassigned`` is the revision of series without a job, None where the layout does not depend on them.
    """

    view: JobView
    ranks: Ranks
    devices: AbstractSet[Member]
    unassigned: Hashable | None
    layout: Layout


class Layouts:
    """Cached layouts by job and query. Thread safe.

    A lasting one is valid while the job's series are the same (``validator``), while there are no other series without
    a job (``unassigned``) where it depends on them, and while the registry has the same devices and ranks, at whatever
    times.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def get(self, key: Hashable, view: JobView, validator: object, unassigned: Hashable | None) -> Layout | None:
        """The layout of a job's series for what ``key`` stands for; None where it has to be made."""
        found: _Entry | None = self._cache.get((Layouts, key), validator)
        if found is None or found.unassigned not in (None, unassigned):
            return None
        if found.view is not view:
            if (found.ranks, found.devices) != (Ranks.of(view), devices_of(view)):
                return None
            found.view = view  # the next comparison is one of identity
        return found.layout

    def put(
        self,
        key: Hashable,
        view: JobView,
        validator: object,
        layout: Layout,
        ranks: Ranks,
        unassigned: Hashable | None,
    ) -> None:
        """Cache a layout that lasts, made with these ranks. ``validator`` and ``unassigned`` were taken before."""
        if layout.lasting:
            entry = _Entry(view, ranks, devices_of(view), unassigned, layout)
            self._cache.put((Layouts, key), validator, entry, _ENTRY_BYTES * len(layout.shape.entries))
