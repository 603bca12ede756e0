"""Joins the points of series to the lines of an answer, by pure functions over arrays."""

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from jobmeter.dialects.alibaba.foas.metric_json import LineLimit, MetricRequest, Take
from jobmeter.model.batch import Float64s, Int64s, find_runs
from jobmeter.model.time import SECOND, TimeRange
from jobmeter.query.tsdb.columns import SeriesColumns
from jobmeter.query.tsdb.compute import SeriesGroups, group_tagged, prepare_series
from jobmeter.query.tsdb.downsample import Fill
from jobmeter.query.tsdb.functions import AGGREGATORS, NONE, Function
from jobmeter.query.tsdb.tags import Tagged


class Drawn(msgspec.Struct, frozen=True, eq=False):
    """A line: ``seconds`` int64[k] since the epoch, ascending; ``values`` float64[k]; k is above 0.

    A value is NaN if a fill policy set it. ``null`` is True if that policy answers null.
    """

    metric: str
    tags: dict[str, str]
    seconds: Int64s
    values: Float64s
    null: bool = False

    @property
    def summary(self) -> float:
        """Mean of the points; NaN if no point has a value."""
        return compute_mean(self.values)


def draw(
    query: MetricRequest, series: Sequence[Tagged], columns: SeriesColumns, span: TimeRange, limit: LineLimit | None
) -> list[Drawn]:
    """Return the lines of one query: one for each combination of values of its group-by tags, else one.

    ``columns`` are the points of ``series``, by their position, in steps of the query's downsample. They may begin
    before ``span``. Lines are in the order of their first series.
    """
    around = extend_to_step(query, span)
    columns = prepare_series(columns, query, around)
    columns = columns.filter((columns.time >= around.start_ms) & (columns.time < around.end_ms))
    place = {id(one): at for at, one in enumerate(series)}
    members = sorted(group_tagged(series, query), key=lambda group: place[id(group[0])])
    owner = np.empty(len(series), np.int64)
    for number, group in enumerate(members):
        owner[[place[id(one)] for one in group]] = number
    names = list(dict.fromkeys(one.tag for one in query.filters if one.group_by))
    drawn = []
    for number, part in sorted(SeriesGroups(owner.tolist()).split(columns).items()):
        first = members[number][0]
        tags = dict(first.tags) if query.aggregator == NONE else {name: first.tag(name) or "" for name in names}
        drawn.append(_join_points(query, part, tags))
    drawn = [line for line in drawn if len(line.seconds)]
    return drawn if limit is None else limit_lines(drawn, limit)


def extend_to_step(query: MetricRequest, span: TimeRange) -> TimeRange:
    """Return the range, extended back to the start of its first step."""
    return TimeRange(query.downsample.reach(span.start_ms, span.end_ms - 1, 0)[0], span.end_ms)


def limit_lines(lines: Sequence[Drawn], limit: LineLimit) -> list[Drawn]:
    """Return at most ``limit.count`` lines, in their original order.

    ``above`` selects the lines with the largest values, ``bottom`` those with the smallest. ``sample`` selects lines
    evenly from all of them, ordered by value. Lines without any value count as the smallest.
    """
    if len(lines) <= limit.count:
        return list(lines)
    judged = [_judge(line.values, limit.judged_by) for line in lines]
    order = sorted(range(len(lines)), key=judged.__getitem__)
    if limit.take is Take.BOTTOM:
        taken = order[: limit.count]
    elif limit.take is Take.ABOVE:
        taken = order[-limit.count :]
    elif limit.count == 1:
        taken = [order[(len(order) - 1) // 2]]
    else:
        last = len(order) - 1
        taken = [order[at * last // (limit.count - 1)] for at in range(limit.count)]
    return [lines[at] for at in sorted(taken)]


def compute_mean(values: Float64s) -> float:
    """Return the mean of the values that are not NaN, rounded once; NaN without any."""
    there = values[~np.isnan(values)]
    if not len(there):
        return math.nan
    try:
        return math.fsum(there) / len(there)
    except OverflowError:
        return math.fsum(there / len(there))


def _join_points(query: MetricRequest, part: SeriesColumns, tags: dict[str, str]) -> Drawn:
    """Join the points of all series in one step of the granularity to one point, without interpolation."""
    step = query.granularity_ms or 1
    order = np.argsort(part.time, kind="stable")
    time, value = part.time[order] // step * step, part.value[order]
    times, which = np.unique(time, return_inverse=True)
    joined = np.full(len(times), np.nan)
    there = ~np.isnan(value)
    starts = find_runs(time[there])
    if len(starts):
        joined[which[there][starts]] = _apply(AGGREGATORS[query.aggregator].function, value[there], starts)
    finite = ~np.isinf(joined)
    null = query.downsample.fill is Fill.NULL
    return Drawn(query.metric, tags, times[finite] // SECOND, joined[finite], null)


def _apply(function: Function, values: Float64s, starts: Int64s) -> Float64s:
    with np.errstate(over="ignore", invalid="ignore"):
        return function(values, starts)


_JUDGES: dict[str, Callable[[Float64s], float]] = {
    "avg": compute_mean,
    "max": lambda values: float(values.max()),
    "min": lambda values: float(values.min()),
}


def _judge(values: Float64s, name: str) -> float:
    there = values[~np.isnan(values)]
    return _JUDGES[name](there) if len(there) else -math.inf
