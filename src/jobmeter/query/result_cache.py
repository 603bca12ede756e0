"""Cache of line values for closed hours: for a long range only its ends are recomputed.

Values are valid for one revision of the store (``Store.get_revision``) and one layout of a job's series. Only metrics
computed from their own samples are cached: a derived metric may differ between a part of a range and the whole.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence

import msgspec
import numpy as np

from jobmeter.model.time import HOUR, TimeRange, cut_to_steps
from jobmeter.query.layout import Layout
from jobmeter.query.reduce import merge_order
from jobmeter.query.table import ResultTable
from jobmeter.store.base import Tier
from jobmeter.store.cache import Cache

_STRETCH = 4
"""Largest length of a cached part as a multiple of the query's."""

Tables = Mapping[str, ResultTable]


class CachedPart(msgspec.Struct, frozen=True, eq=False):
    """Tables of a part of a range by metric, computed from ``tiers``; ``fresh``: not from the cache."""

    span: TimeRange
    tables: Tables
    tiers: frozenset[str]
    fresh: bool = True

    @property
    def rows(self) -> int:
        """Number of values."""
        return sum(map(len, self.tables.values()))


class ResultCache:
    """Cached tables by layout and query. Thread-safe.

    A layout is identified by the object: a repeated query gets the identical one.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    def get(
        self, layout: Layout, part_key: Hashable, span: TimeRange, revision: Hashable, make: Callable[[], CachedPart]
    ) -> CachedPart:
        """Return the values of a span of whole steps, from the cache where possible; ``make`` computes missing values.

        ``part_key`` names everything else that the values depend on.
        """
        name, validator = (ResultCache, id(layout), part_key), (layout, revision)
        part: CachedPart | None = self._cache.get(name, validator)
        if part is not None:
            covered = part.span
            inside = covered.start_ms <= span.start_ms and span.end_ms <= covered.end_ms
            if inside and covered.length_ms <= _STRETCH * span.length_ms:
                return _cut(part, span)
        part = make()
        self._cache.put(name, validator, part, _size(part))
        return part


def find_middle(span: TimeRange, step_ms: int, rolled: Sequence[TimeRange]) -> TimeRange | None:
    """Return the longest part of a range in whole steps of rolled-up hours, if worth caching."""
    if not any(step_ms % tier == 0 for tier in Tier):
        return None
    parts = [cut_to_steps(inside, step_ms) for one in rolled if (inside := one.intersect(span)) is not None]
    longest = max(parts, key=lambda part: part.length_ms, default=None)
    return longest if longest is not None and longest.length_ms >= max(HOUR, 2 * step_ms) else None


def cut_ends(span: TimeRange, inside: TimeRange) -> tuple[TimeRange, TimeRange]:
    """Return the ranges before and after a part of a range; either may be empty."""
    return TimeRange(span.start_ms, inside.start_ms), TimeRange(inside.end_ms, span.end_ms)


def interleave(tables: Sequence[ResultTable]) -> ResultTable:
    """Interleave the rows of successive tables by owner; each table is sorted."""
    filled = [table for table in tables if len(table)]
    if len(filled) < 2:
        return filled[0] if filled else tables[0]
    total, places = merge_order([table.owner for table in filled])
    size = sum(map(len, filled))
    time, value = np.empty(size, np.int64), np.empty(size)
    for table, place in zip(filled, places, strict=True):
        time[place], value[place] = table.time, table.value
    return ResultTable(np.repeat(np.arange(len(total)), total), time, value)


def _cut(part: CachedPart, span: TimeRange) -> CachedPart:
    tables = dict(part.tables)
    for name, table in part.tables.items() if part.span != span else ():
        inside = (table.time >= span.start_ms) & (table.time < span.end_ms)
        tables[name] = table.select(inside)
    return CachedPart(span, tables, part.tiers, fresh=False)


def _size(part: CachedPart) -> int:
    return 1_000 + sum(table.owner.nbytes + table.time.nbytes + table.value.nbytes for table in part.tables.values())
