"""How a question's series are told in lines; cached for the next asking."""

from collections.abc import Callable, Hashable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np

from jobmeter.model.batch import Int64s, SeriesKeys
from jobmeter.model.job import JobView
from jobmeter.model.series import Series
from jobmeter.query.gather import devices_of
from jobmeter.query.lines import Head, Ranks, assign, sort_key
from jobmeter.query.request import By
from jobmeter.query.shape import Member, Shape
from jobmeter.store.cache import Cache

_ENTRY_BYTES = 500
"""Memory that an entry of a layout takes, about."""


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """A shape and the lines that it is told in.

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


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """Series that the window can join by itself: gauges, each of them the only one of its member.

    ``keys`` are those of the shape's entries in their order. Cell ``metric * lines + line`` stands for a line of a
    metric: ``cell`` int64[k] is that of each series, ``metrics`` are in the order of their names.
    """

    keys: SeriesKeys
    cell: Int64s
    metrics: Sequence[str]


def lay_out(shape: Shape, by: By, ranks: Ranks, *, lasting: bool) -> Layout:
    """The layout of a shape in lines of one kind."""
    line, heads = assign(shape, by, ranks)
    order = sorted(range(len(heads)), key=lambda at: sort_key(heads[at]))
    apart = frozenset(name for name in shape.metrics if _is_apart(shape, name, line))
    return Layout(shape, line, heads, order, lasting, apart, _grid(shape, line, len(heads)) if lasting else None)


def _grid(shape: Shape, line: Int64s, lines: int) -> Grid | None:
    metrics = sorted(shape.metrics)
    if shape.keys is None or not all(map(shape.alone, metrics)) or not (shape.of_job.all() or not shape.of_job.any()):
        return None
    cell = line[shape.member]
    for number, metric in enumerate(metrics):
        first, end = shape.range_of(metric)
        cell[first:end] += number * lines
    return Grid(SeriesKeys.of([entry.series for entry in shape.entries]), cell, metrics)


def _is_apart(shape: Shape, metric: str, line: Int64s) -> bool:
    first, end = shape.range_of(metric)
    return bool(np.all(np.diff(line[shape.member[first:end]]) > 0))


@dataclass(slots=True, eq=False)
class _Entry:
    """A layout, and what the registry said of the job's ranks and devices when it was made."""

    view: JobView
    ranks: Ranks
    devices: AbstractSet[Member]
    layout: Layout


class Layouts:
    """The layouts of jobs by what was asked, in the cache. Safe to use from any thread.

    One that lasts holds for the same list of the job's series and while the registry tells of the same devices and
    ranks, whatever it says of times.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def get(self, key: Hashable, view: JobView, own: Sequence[Series], make: Callable[[Ranks], Layout]) -> Layout:
        """The layout of that job's series for what ``key`` stands for, made by ``make`` where it is not cached."""
        found = self.cached(key, view, own)
        if found is not None:
            return found
        ranks = Ranks.of(view)
        layout = make(ranks)
        if layout.lasting:
            entry = _Entry(view, ranks, devices_of(view), layout)
            self._cache.put((Layouts, key), own, entry, _ENTRY_BYTES * len(layout.shape.entries))
        return layout

    def cached(self, key: Hashable, view: JobView, own: Sequence[Series]) -> Layout | None:
        """As ``get``; None where it has to be made."""
        found: _Entry | None = self._cache.get((Layouts, key), own)
        if found is None:
            return None
        if found.view is not view:
            if (found.ranks, found.devices) != (Ranks.of(view), devices_of(view)):
                return None
            found.view = view  # the next comparison is one of identity
        return found.layout
