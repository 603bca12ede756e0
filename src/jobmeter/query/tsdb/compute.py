"""Compute the points of one sub query from samples: downsample, rate, aggregate.

In that order, as every 2.x server does. (The page on queries names the rate last; a server computes it per series,
before they are aggregated: RateSpan and AggregationIterator.).
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from jobmeter.model.batch import Float64s, Int64s, find_runs
from jobmeter.model.grouping import group_pairs
from jobmeter.model.time import HOUR, SECOND, TimeRange
from jobmeter.query.tsdb.aggregate import aggregate
from jobmeter.query.tsdb.columns import SeriesColumns
from jobmeter.query.tsdb.downsample import Downsample, downsample, fill
from jobmeter.query.tsdb.filters import Filter, choose
from jobmeter.query.tsdb.functions import AGGREGATORS, NONE, Aggregator, Missing
from jobmeter.query.tsdb.rate import RateOptions, compute_rates
from jobmeter.query.tsdb.tags import Tagged

MARGIN_MS = HOUR
"""Margin in milliseconds beyond either end of the range, in which samples are read for interpolation and rates."""

# Functions that change a single value: within one second, values are averaged instead.
_NOT_OF_ONE = frozenset({"count", "dev", "diff", "squareSum"})
_SECOND_BY_MEAN = AGGREGATORS["avg"]


class PointQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Steps from the samples of series to the points of an answer; ``aggregator`` is a key of ``AGGREGATORS``."""

    aggregator: str
    rate: RateOptions | None = None
    downsample: Downsample | None = None
    filters: tuple[Filter, ...] = ()
    explicit_tags: bool = False


class SeriesGroups:
    """Groups of series to aggregate: ``owner`` int64[k] is the group of each of k series."""

    def __init__(self, owner: Sequence[int]) -> None:
        self.owner: Int64s = np.array(owner, np.int64)

    @property
    def joined(self) -> bool:
        """True if any two series share a group."""
        return len(np.unique(self.owner)) < len(self.owner)

    def split(self, columns: SeriesColumns) -> Mapping[int, SeriesColumns]:
        """Return the columns of each group that has points."""
        if not len(columns):
            return {}
        owner = self.owner[columns.index]
        order = np.lexsort((columns.time, columns.index, owner))
        owner = owner[order]
        index, time, value = columns.index[order], columns.time[order], columns.value[order]
        starts = find_runs(owner)
        ends = np.r_[starts[1:], len(owner)]
        return {
            int(owner[start]): SeriesColumns(index[start:end], time[start:end], value[start:end])
            for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        }


def compute_margin(query: PointQuery, groups: SeriesGroups) -> int:
    """Return the margin to read beyond the range, in milliseconds."""
    return MARGIN_MS if query.rate is not None or groups.joined else 0


def prepare(
    columns: SeriesColumns, query: PointQuery, span: TimeRange, *, milliseconds: bool, stepped: bool
) -> SeriesColumns:
    """Compute the points of each series in the answer, including points around ``span``.

    ``columns`` are samples or, with ``stepped``, already points of the downsample's function.
    """
    if query.downsample is not None:
        columns = columns if stepped else downsample(columns, query.downsample, span)
    elif not milliseconds:
        columns = _reduce_to_seconds(columns, AGGREGATORS[query.aggregator])
    return _taking_part(columns, query, span)


def _taking_part(columns: SeriesColumns, query: PointQuery, span: TimeRange) -> SeriesColumns:
    """Drop series that ended before the span or began after it: they contribute neither values nor fill nor tags.

    https://github.com/OpenTSDB/opentsdb/blob/v2.4.0/src/core/SpanGroup.java (``add``), which takes the row of an hour
    around either end for the span. With a fill policy a series must have a point inside.
    """
    starts = find_runs(columns.index)
    if not len(starts):
        return columns
    ends = np.r_[starts[1:], len(columns)]
    if _fills(query):
        inside = (columns.time >= span.start_ms) & (columns.time < span.end_ms)
        part = np.add.reduceat(inside, starts) > 0
    else:
        part = (columns.time[starts] < span.end_ms) & (columns.time[ends - 1] >= span.start_ms)
    return columns if part.all() else columns.filter(np.repeat(part, ends - starts))


def prepare_series(columns: SeriesColumns, query: PointQuery, span: TimeRange) -> SeriesColumns:
    """Fill in missing points and compute rates for each series as the query requests, from ``prepare``'s result."""
    spec = query.downsample
    if spec is not None and _fills(query):
        columns = fill(columns, spec, _grid(spec, query, span))
    return columns if query.rate is None else compute_rates(columns, query.rate)


def compute_points(
    columns: SeriesColumns, query: PointQuery, groups: SeriesGroups, span: TimeRange
) -> Mapping[int, tuple[Int64s, Float64s]]:
    """Return times and values of each group with points inside ``span``, from ``prepare``'s result."""
    columns = prepare_series(columns, query, span)
    aggregator = AGGREGATORS[query.aggregator]
    missing = _choose_missing(query, aggregator)
    found: dict[int, tuple[Int64s, Float64s]] = {}
    for owner, part in groups.split(columns).items():
        time, value = aggregate(part, aggregator, missing)
        inside = (time >= span.start_ms) & (time < span.end_ms)
        if inside.any():
            found[owner] = time[inside], value[inside]
    return found


def _grid(spec: Downsample, query: PointQuery, span: TimeRange) -> Int64s:
    """Return the answered intervals and, for rates, one more before them."""
    grid = spec.make_grid(span.start_ms, span.end_ms - 1)
    if query.rate is None or not spec.interval_ms:
        return grid
    before = spec.make_grid(max(0, span.start_ms - 2 * spec.interval_ms), span.start_ms - 1)
    return np.concatenate([before[-1:], grid])


def _choose_missing(query: PointQuery, aggregator: Aggregator) -> Missing:
    # The previous rate replaces a missing one, even after a fill policy: for a dropped reset.
    # https://github.com/OpenTSDB/opentsdb/blob/v2.4.0/src/core/AggregationIterator.java (``nextDoubleValue``)
    if query.rate is not None:
        return Missing.PREVIOUS
    return Missing.SKIP if _fills(query) else aggregator.missing


def _fills(query: PointQuery) -> bool:
    """Return True if an interval without a sample gets a point."""
    return query.downsample is not None and query.downsample.fill != "none"


def _reduce_to_seconds(columns: SeriesColumns, aggregator: Aggregator) -> SeriesColumns:
    """Reduce to one point per second: several points of a series are aggregated."""
    time = columns.time - columns.time % SECOND
    starts = find_runs(columns.index, time)
    if len(starts) == len(columns):
        return SeriesColumns(columns.index, time, columns.value)
    function = _SECOND_BY_MEAN if aggregator.name in _NOT_OF_ONE else aggregator
    return SeriesColumns(columns.index[starts], time[starts], function.function(columns.value, starts))


def select_tagged(series: Sequence[Tagged], query: PointQuery, implied: frozenset[str]) -> list[Tagged]:
    """Return the series that match the query's filters and, if required, have no other tags than ``implied`` ones.

    Raises InvalidRequestError for an invalid pattern.
    """
    matching = choose(series, query.filters)
    if not query.explicit_tags:
        return matching
    keys = {one.tag for one in query.filters if one.kind != "not_key"} - implied
    return [one for one in matching if set(one.tags) - implied == keys]


def group_tagged(series: Sequence[Tagged], query: PointQuery) -> list[list[Tagged]]:
    """Group the series by values of the tags to group by, in the order of their tags."""
    if query.aggregator == NONE:
        return [[one] for one in series]
    keys = sorted({one.tag for one in query.filters if one.group_by})
    groups = group_pairs((tuple(one.tag(key) for key in keys), one) for one in series)
    return [groups[values] for values in sorted(groups, key=lambda values: [value or "" for value in values])]
