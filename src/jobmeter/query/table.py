"""Compute the values of an answer from a frame's buckets: statistics, derivations, and combining members.

A table has one value for each (member or line, bucket) with data. Missing values have no row.
"""

import msgspec
import numpy as np
from numpy.typing import NDArray

from jobmeter.model.batch import Bools, BucketColumns, Float64s, Int64s, find_runs
from jobmeter.model.catalog import CATALOG, Aggregate, Kind, Metric, MetricScope
from jobmeter.query.buckets import BucketedSeries
from jobmeter.query.reduce import is_sorted, relabel
from jobmeter.query.request import Statistic, is_own

Labels = tuple[tuple[str, str], ...]


class ResultTable(msgspec.Struct, frozen=True, eq=False):
    """Values: ``owner`` int64[n] (a member or line), ``time`` int64[n] bucket starts in ms, ``value`` float64[n].

    Sorted by (owner, time), each pair once, unless stated otherwise.
    """

    owner: Int64s
    time: Int64s
    value: Float64s

    def __len__(self) -> int:
        return len(self.time)

    def select(self, rows: Bools | NDArray[np.intp]) -> "ResultTable":
        """Select rows."""
        return ResultTable(self.owner[rows], self.time[rows], self.value[rows])

    def assign_lines(self, line: Int64s) -> "ResultTable":
        """Assign the rows of each owner to ``line[owner]``. The result is unsorted and may repeat pairs."""
        return ResultTable(line[self.owner], self.time, self.value)


EMPTY = ResultTable(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


def compute_lines(
    frame: BucketedSeries,
    metric: Metric,
    statistic: Statistic,
    how: Aggregate | None,
    line: Int64s,
    *,
    one_line_per_series: bool = False,
) -> ResultTable:
    """Compute the values of a metric by line; ``line`` int64[members] assigns members to lines.

    ``how`` None combines the members of a line as in the catalogue, ``WHOLE`` as members of one job.
    ``one_line_per_series``: see ``jobmeter.query.layout.Layout``.
    """
    if how is Aggregate.WHOLE:
        how = metric.on_node
    measured = _compute_measured(frame, metric, statistic)
    if one_line_per_series and is_own(metric):
        return measured.assign_lines(line)
    if metric.ratio is None:
        return join(measured.assign_lines(line), how or metric.over, frame.step_ms)
    usage, limit = _pairs(frame, metric.ratio, statistic, measured)
    if how is None and metric.over is Aggregate.RATIO and not len(measured):
        upper, lower = (join(one.assign_lines(line), Aggregate.SUM, frame.step_ms) for one in (usage, limit))
        return ResultTable(upper.owner, upper.time, upper.value / lower.value)
    values = _concatenate(measured, ResultTable(usage.owner, usage.time, usage.value / limit.value))
    plain = Aggregate.MEAN if metric.over is Aggregate.RATIO else metric.over
    return join(values.assign_lines(line), how or plain, frame.step_ms)


def join(table: ResultTable, how: Aggregate, step_ms: int = 0) -> ResultTable:
    """Combine the rows of each (owner, time), in any order, into one row.

    ``step_ms``: every time is a multiple of it; 0 if unknown.
    """
    if not len(table):
        return table
    owner, time, value = table.owner, table.time, table.value
    if not is_sorted(owner, time):
        if step_ms and how in _ADDED:
            on_grid = _aggregate_on_grid(table, step_ms, mean=how is not Aggregate.SUM)
            if on_grid is not None:
                return on_grid
        order = np.lexsort((time, owner))
        owner, time, value = owner[order], time[order], value[order]
    starts = find_runs(owner, time)
    if len(starts) == len(time):
        return ResultTable(owner, time, value)
    joined = _REDUCE[how].reduceat(value, starts)
    if how in (Aggregate.MEAN, Aggregate.RATIO):
        joined = joined / np.diff(np.r_[starts, len(time)])
    return ResultTable(owner[starts], time[starts], joined)


def _aggregate_on_grid(table: ResultTable, step_ms: int, *, mean: bool) -> ResultTable | None:
    """Sum or average the rows of each (owner, time) in a dense field of all possible pairs.

    None if the field would be so sparse that sorting is faster.
    """
    first, owners = int(table.time.min()), int(table.owner.max()) + 1
    width = (int(table.time.max()) - first) // step_ms + 1
    if owners * width > _SPARSE * len(table) + _SMALL:
        return None
    field = table.owner * width + (table.time - first) // step_ms
    count = np.bincount(field, minlength=owners * width)
    total = np.bincount(field, table.value, owners * width).astype(np.float64, copy=False)
    there = np.flatnonzero(count)
    owner, place = np.divmod(there, width)
    value: Float64s = total[there] / count[there] if mean else total[there]
    return ResultTable(owner, first + place * step_ms, value)


_ADDED = frozenset({Aggregate.SUM, Aggregate.MEAN, Aggregate.RATIO})
_SPARSE, _SMALL = 4, 10_000
_REDUCE: dict[Aggregate, np.ufunc] = {
    Aggregate.SUM: np.add,
    Aggregate.MEAN: np.add,
    Aggregate.RATIO: np.add,
    Aggregate.MIN: np.minimum,
    Aggregate.MAX: np.maximum,
}


def _compute_measured(frame: BucketedSeries, metric: Metric, statistic: Statistic) -> ResultTable:
    """Return the metric by member, without using limits: its own samples, else a counter's rate, else a difference."""
    own = _compute_direct(frame, metric, statistic)
    if metric.rate_of:
        derived = _rate(frame, CATALOG[metric.rate_of], statistic, metric.rate_but)
    elif metric.difference:
        derived = _difference(frame, metric.difference, statistic)
    else:
        return own
    return _concatenate(own, _select_other_owners(derived, own))


def _rate(frame: BucketedSeries, counter: Metric, statistic: Statistic, but: Labels) -> ResultTable:
    """Return a counter's rate as a gauge: a bucket has one rate, which is its mean, its least and its last."""
    if statistic is Statistic.COUNT:
        return _compute_direct(frame, counter, Statistic.COUNT, but)
    rates = _compute_direct(frame, counter, Statistic.MEAN, but)
    if statistic is not Statistic.SUM or not len(rates):
        return rates
    counts = _compute_direct(frame, counter, Statistic.COUNT, but)
    mine, theirs = _meet(rates, counts)
    return ResultTable(rates.owner[mine], rates.time[mine], rates.value[mine] * counts.value[theirs])


def _difference(frame: BucketedSeries, pair: tuple[str, str], statistic: Statistic) -> ResultTable:
    """Return the whole less the rest: the least uses the rest's greatest.

    The whole is the bucket's mean, except for a sum.
    """
    whole_metric, rest_metric = (CATALOG[name] for name in pair)
    rest = _compute_direct(frame, rest_metric, _OPPOSITE.get(statistic, statistic))
    if statistic is Statistic.COUNT:
        return rest
    whole = _compute_direct(frame, whole_metric, statistic if statistic is Statistic.SUM else Statistic.MEAN)
    mine, theirs = _meet(rest, whole)
    return ResultTable(rest.owner[mine], rest.time[mine], whole.value[theirs] - rest.value[mine])


_OPPOSITE = {Statistic.MIN: Statistic.MAX, Statistic.MAX: Statistic.MIN}


def _compute_direct(frame: BucketedSeries, metric: Metric, statistic: Statistic, but: Labels = ()) -> ResultTable:
    """Return the metric's own samples by member: attempts merged, labelled parts combined as in the catalogue.

    Parts with a label of ``but`` are left out.
    """
    rows = frame.select_rows(metric.name)
    if but and len(rows):
        selected = np.array([not set(but) & set(entry.series.labels) for entry in frame.shape.entries])
        rows = rows.select(selected[rows.index])
    if metric.scope is MetricScope.DEVICE:
        rows = _drop_disputed(frame, rows)
    if not len(rows):
        return EMPTY
    shape, alone = frame.shape, frame.shape.has_single_entries(metric.name)
    columns = rows if alone else relabel(rows, shape.part[rows.index].astype(np.uint32))
    value, valid = _statistic(columns, metric.kind, statistic)
    table = ResultTable(shape.member[rows.index] if alone else shape.part_member[columns.index], columns.time, value)
    if not valid.all():
        table = table.select(valid)
    return table if alone else join(table, metric.parts)


def _statistic(columns: BucketColumns, kind: Kind, statistic: Statistic) -> tuple[Float64s, Bools]:
    """Return the statistic of each bucket, and a mask of valid ones (a counter's first sample has no rate)."""
    valid = np.ones(len(columns), np.bool_)
    if statistic is Statistic.INCREASE or (statistic is Statistic.MEAN and kind is Kind.COUNTER):
        valid = columns.elapsed > 0
        if statistic is Statistic.INCREASE:
            return columns.increase, valid
        return columns.increase * 1000.0 / np.where(valid, columns.elapsed, 1), valid
    if statistic is Statistic.MEAN:
        return columns.sum / columns.count, valid
    column: NDArray[np.generic] = getattr(columns, _COLUMN[statistic])
    return column.astype(np.float64), valid


_COLUMN = {
    Statistic.MIN: "minimum",
    Statistic.MAX: "maximum",
    Statistic.COUNT: "count",
    Statistic.SUM: "sum",
    Statistic.FIRST: "first",
    Statistic.LAST: "last",
}


def _drop_disputed(frame: BucketedSeries, rows: BucketColumns) -> BucketColumns:
    """Drop a job's rows of a shared device if the device was also measured as a whole."""
    ours = frame.shape.of_job[rows.index]
    if ours.all() or not ours.any():
        return rows
    device = frame.shape.devices[rows.index]
    numbers = _numbers(device, rows.time, device, rows.time)[0]
    return rows.select(~ours | ~np.isin(numbers, numbers[~ours]))


def _pairs(
    frame: BucketedSeries, pair: tuple[str, str], statistic: Statistic, measured: ResultTable
) -> tuple[ResultTable, ResultTable]:
    """Return usage and limit, row by row, of members without a measured ratio; a limit is the mean of its bucket."""
    usage_metric, limit_metric = (CATALOG[name] for name in pair)
    usage = _select_other_owners(_compute_measured(frame, usage_metric, statistic), measured)
    if statistic is Statistic.COUNT:
        return usage, ResultTable(usage.owner, usage.time, np.ones(len(usage)))
    limit = _compute_measured(frame, limit_metric, Statistic.MEAN)
    lower = np.full(len(usage), frame.limits.get(limit_metric.name, 0.0))
    mine, theirs = _meet(usage, limit)
    lower[mine] = limit.value[theirs]
    valid = lower > 0
    return usage.select(valid), ResultTable(usage.owner, usage.time, lower).select(valid)


def _meet(one: ResultTable, other: ResultTable) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the positions of rows with equal (owner, time) in both tables."""
    if not len(one) or not len(other):
        return np.empty(0, np.intp), np.empty(0, np.intp)
    mine, theirs = _numbers(one.owner, one.time, other.owner, other.time)
    _, at, there = np.intersect1d(mine, theirs, assume_unique=True, return_indices=True)
    return at, there


def _numbers(owner: Int64s, time: Int64s, other_owner: Int64s, other_time: Int64s) -> tuple[Int64s, Int64s]:
    """Number each (owner, time) equally in both tables."""
    _, place = np.unique(np.r_[time, other_time], return_inverse=True)
    width = int(place.max()) + 1 if len(place) else 1
    numbers = np.r_[owner, other_owner] * width + place
    return numbers[: len(owner)], numbers[len(owner) :]


def _select_other_owners(table: ResultTable, one: ResultTable) -> ResultTable:
    """Select rows whose owners are missing in the other table."""
    return table.select(~np.isin(table.owner, one.owner)) if len(table) and len(one) else table


def _concatenate(one: ResultTable, other: ResultTable) -> ResultTable:
    """Concatenate tables of different owners; the result is unsorted."""
    if not len(other):
        return one
    return ResultTable(np.r_[one.owner, other.owner], np.r_[one.time, other.time], np.r_[one.value, other.value])
