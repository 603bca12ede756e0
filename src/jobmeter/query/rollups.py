"""Question for samples of series as statistics between cuts: from roll-ups, and from raw samples around the cuts.

A window of PromQL may begin and end at any millisecond. The ends of windows are cuts: no row has samples on both sides
of a cut. So the samples between any two cuts are exactly a number of rows.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import msgspec
import numpy as np
from msgspec.structs import replace

from jobmeter.access.principal import Scope
from jobmeter.model.batch import Bools, BucketColumns, Int64s, References, SeriesKeys, mark_first_rows
from jobmeter.model.catalog import METRICS, Kind
from jobmeter.model.question import Question
from jobmeter.model.retention import Retention
from jobmeter.model.series import Series
from jobmeter.model.time import DAY, HOUR, MINUTE, SECOND, TimeRange, ceil_to, floor_to
from jobmeter.query.meter import Meter
from jobmeter.query.reduce import compute_growth, merge
from jobmeter.query.series import check_series, find_keys, measure_milliseconds
from jobmeter.query.source import Source, check_buckets, estimate_rows, read_series_buckets, widen_to_hours
from jobmeter.store.base import Tier
from jobmeter.store.cache import Cache

_ROWS_OF_SEGMENT = 3_000
"""Number of raw samples whose reading takes as long as one more segment of a plan."""
_INTERVAL_MS = 10 * SECOND
_CHECKED_DAYS = 2
"""Age in days from which the number of samples is compared with the roll-ups, unless samples expire earlier."""
_NOISE = 1e-9
"""Largest difference between two sums of the same growth, as a share of the counter's values."""
_COUNTERS = frozenset(one.name for one in METRICS if one.kind is Kind.COUNTER)
"""Metrics whose roll-ups have increases."""
RetentionOf = Callable[[str], Retention]
"""Function that returns the retention of a project."""


class Rollups(msgspec.Struct, frozen=True, eq=False):
    """Statistics of the samples between cuts.

    ``columns.increase`` is the growth of a counter from the first to the last sample of the row, resets counted from
    zero. ``columns`` may have rows outside the range. ``expired``: samples are missing, because the remaining roll-ups
    have samples on both sides of a cut.
    """

    columns: BucketColumns
    expired: bool = False
    milliseconds: int = 0


class RollupsQuestion(msgspec.Struct, Question[Rollups], frozen=True, kw_only=True):
    """Question for statistics of the samples of these series in the range, between ``cuts`` in ascending order.

    A sample at the time of a cut lies behind the cut. ``growth``: rows need the growth of counters.
    """

    of_job = True

    series: tuple[Series, ...]
    range: TimeRange
    cuts: tuple[int, ...]
    growth: bool = False


class _Segment(msgspec.Struct, frozen=True):
    span: TimeRange
    step_ms: int


def read_rollups(
    source: Source, question: RollupsQuestion, scope: Scope, meter: Meter, retention_of: RetentionOf, cache: Cache
) -> Rollups:
    """Answer a ``RollupsQuestion``. Raises LimitExceededError or QueryTimeoutError."""
    check_series(question.series, scope)
    cuts = np.array(question.cuts, np.int64)
    counters = np.array([question.growth and one.metric in _COUNTERS for one in question.series], bool)
    checked_ms = find_expiry(question.series, meter, retention_of)
    parts: list[BucketColumns] = []
    expired = False
    # Roll-ups of other metrics have no increases.
    for rolled in (True, False) if question.growth else (True,):
        rows = np.flatnonzero(counters == rolled) if question.growth else np.arange(len(question.series))
        if not len(rows):
            continue
        keys = find_keys(tuple([question.series[row] for row in rows.tolist()]), cache)
        plan = _plan(question.range, cuts, len(keys), checked_ms) if rolled else [_Segment(question.range, 1)]
        near = _plan_near(question.range, cuts, len(keys), plan) if rolled else None
        columns = None if near is None else _read(source, keys, counters[rows], near, meter)
        if columns is None or _find_divided(columns, cuts).any():
            columns = _read(source, keys, counters[rows], plan, meter)
        elif near is not None:
            plan = near
        if len(plan) > 1 and question.range.start_ms < checked_ms:
            columns = _complete_expired(source, keys, columns, [one.span for one in plan if one.step_ms < HOUR], meter)
        elif len(plan) == 1:
            expired |= has_expired(source, keys, question.range, checked_ms, meter)
        whole, divided = _drop_divided(columns, cuts, question.range)
        expired |= divided
        parts.append(replace(whole, index=rows[whole.index].astype(np.uint32)))
    return Rollups(merge(parts), expired, measure_milliseconds(meter))


def find_expiry(series: Sequence[Series], meter: Meter, retention_of: RetentionOf) -> int:
    """Return the time before which samples of the series may have expired, in ms."""
    days = min((retention_of(project).raw_days for project in {one.project for one in series}), default=_CHECKED_DAYS)
    return meter.clock.now_ms() - min(days, _CHECKED_DAYS) * DAY


def has_expired(source: Source, keys: SeriesKeys, span: TimeRange, checked_ms: int, meter: Meter) -> bool:
    """Return True if the oldest rolled-up hour of the range has lost samples."""
    if span.start_ms >= checked_ms or not len(keys):
        return False
    around = widen_to_hours(TimeRange(span.start_ms, min(span.end_ms, checked_ms)))
    hours = source.store.read_buckets(keys, around, Tier.HOUR, meter.make_budget(estimate_rows(keys, around, HOUR)))
    meter.count(len(hours), Tier.HOUR)
    inside = (hours.first_time < span.end_ms) & (hours.last_time >= span.start_ms)
    if not inside.any():
        return False
    oldest = int(hours.time[inside].min())
    hour = TimeRange(oldest, oldest + HOUR)
    found = sum(len(block) for block in source.store.read(keys, hour, meter.make_budget(estimate_rows(keys, hour))))
    meter.count(found, None)
    return bool(found < int(hours.count[hours.time == oldest].sum()))


def _plan(span: TimeRange, cuts: Int64s, series: int, checked_ms: int) -> list[_Segment]:
    """Return the parts of a range with the longest step that no cut divides; one part if raw samples are cheaper."""
    parts = _split(span, cuts)
    if span.start_ms < checked_ms or _estimate_cost(parts, series) < series * (span.length_ms // _INTERVAL_MS):
        return parts
    return [_Segment(span, 1)]


def _plan_near(span: TimeRange, cuts: Int64s, series: int, plan: Sequence[_Segment]) -> list[_Segment] | None:
    """Return a cheaper plan for cuts a millisecond behind a whole minute; None without one.

    Such a cut divides a row if a sample lies exactly on the minute, which is rare: then the plan cannot be used. The
    last segment is the last millisecond of the range.
    """
    end_ms = span.end_ms - 1
    near = cuts - (cuts % MINUTE == 1)
    if end_ms % MINUTE or span.start_ms >= end_ms or (near == cuts).all():
        return None
    found = [_Segment(TimeRange(end_ms, span.end_ms), 1)]
    for one in reversed(_split(TimeRange(span.start_ms - (span.start_ms % MINUTE == 1), end_ms), near)):
        inside = near[(near >= one.span.start_ms) & (near < one.span.end_ms)]
        step = int(np.gcd.reduce([HOUR, one.span.start_ms, one.span.end_ms, *inside]))
        found.insert(0, _Segment(one.span, step if one.step_ms == MINUTE else one.step_ms))
    return found if _estimate_cost(found, series) < _estimate_cost(plan, series) else None


def _split(span: TimeRange, cuts: Int64s) -> list[_Segment]:
    """Return the parts of a range, in whole minutes, with the longest step that no cut divides."""
    around = TimeRange(floor_to(span.start_ms, MINUTE), ceil_to(span.end_ms, MINUTE))
    parts: list[_Segment] = []
    for hours, is_divided in _tiles(around, cuts, HOUR):
        if not is_divided:
            parts.append(_Segment(hours, HOUR))
        else:
            parts += [_Segment(minutes, 1 if cut else MINUTE) for minutes, cut in _tiles(hours, cuts, MINUTE)]
    return parts


def _estimate_cost(plan: Sequence[_Segment], series: int) -> int:
    rows = sum(one.span.length_ms // max(one.step_ms, _INTERVAL_MS) for one in plan)
    return len(plan) * _ROWS_OF_SEGMENT + series * rows


def _tiles(span: TimeRange, cuts: Int64s, length: int) -> Iterator[tuple[TimeRange, bool]]:
    """Yield the parts of a span that cuts or its ends divide at intervals of ``length``, and the parts between them."""
    first, end = span.start_ms // length, ceil_to(span.end_ms, length) // length
    marked = np.zeros(end - first, bool)
    at = np.append(cuts, (span.start_ms, span.end_ms))
    places = at[at % length != 0] // length - first
    marked[places[(places >= 0) & (places < len(marked))]] = True
    edges = [0, *(np.flatnonzero(marked[1:] != marked[:-1]) + 1).tolist(), len(marked)]
    for low, high in pairwise(edges):
        part = TimeRange((first + low) * length, (first + high) * length).intersect(span)
        if part is not None:
            yield part, bool(marked[low])


def _read(source: Source, keys: SeriesKeys, counters: Bools, plan: Sequence[_Segment], meter: Meter) -> BucketColumns:
    references = References.make_empty(len(keys))
    start = plan[0].span.start_ms
    parts: list[BucketColumns] = []
    for one in plan:
        parts.append(
            read_series_buckets(
                source, keys, counters, one.span, one.step_ms, owned_ms=start, meter=meter, references=references
            )
        )
        check_buckets(sum(map(len, parts)), meter)
    return _keep_inner_growth(merge(parts), counters)


def _keep_inner_growth(columns: BucketColumns, counters: Bools) -> BucketColumns:
    """Return the columns with the growth from the first to the last sample of each row; NaN where it is unknown."""
    if not counters.any() or not len(columns):
        return columns
    first = mark_first_rows(columns.index)
    before = np.concatenate(([0.0], columns.last[:-1]))
    lasted = columns.last_time - columns.first_time
    jump = np.where(first, np.nan, compute_growth(before, columns.first))
    plain = columns.last - columns.first
    found = np.where(columns.elapsed > lasted, columns.increase - jump, columns.increase)
    # Without a reset the difference of the ends is the growth, free of the noise of sums.
    noise = _NOISE * (np.abs(columns.first) + np.abs(columns.last))
    found = np.where(np.abs(found - plain) <= noise, plain, found)
    found = np.where(columns.elapsed < lasted, np.nan, found)
    inner = np.where(counters[columns.index], np.where(columns.count == 1, 0.0, found), 0.0)
    return replace(columns, increase=inner, elapsed=np.where(columns.count == 1, 0, lasted))


def _complete_expired(
    source: Source, keys: SeriesKeys, columns: BucketColumns, spans: Sequence[TimeRange], meter: Meter
) -> BucketColumns:
    """Replace rows whose samples have expired by roll-ups, in the hours of some spans."""
    hours = sorted({hour for span in spans for hour in range(floor_to(span.start_ms, HOUR), span.end_ms, HOUR)})
    for hour in hours:
        span = TimeRange(hour, hour + HOUR)
        whole = source.store.read_buckets(keys, span, Tier.HOUR, meter.make_budget(len(keys)))
        inside = (columns.time >= span.start_ms) & (columns.time < span.end_ms)
        counts = _counts(columns.select(inside), len(keys))
        lacking = whole.count > counts[whole.index]
        if not lacking.any():
            continue
        whole = whole.select(lacking)
        minutes = source.store.read_buckets(
            keys, span, Tier.MINUTE, meter.make_budget(estimate_rows(keys, span, MINUTE))
        )
        meter.count(len(whole) + len(minutes), Tier.MINUTE)
        wanted = np.zeros(len(keys), np.uint64)
        wanted[whole.index] = whole.count
        by_minute = (_counts(minutes, len(keys)) == wanted) & (wanted > 0)
        gone = inside & (wanted[columns.index] > 0)
        rows = [columns.select(~gone)]
        counters = np.ones(len(keys), bool) if columns.elapsed.any() else np.zeros(len(keys), bool)
        for part, chosen in ((minutes, by_minute), (whole, ~by_minute)):
            rows.append(_keep_inner_growth(part.select(chosen[part.index]), counters))
        columns = merge(rows)
    return columns


def _counts(columns: BucketColumns, series: int) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    return np.bincount(columns.index, weights=columns.count, minlength=series).astype(np.uint64)


def _find_divided(columns: BucketColumns, cuts: Int64s) -> Bools:
    """Return True for each row with samples on both sides of a cut."""
    first, last = (np.searchsorted(cuts, times, "right") for times in (columns.first_time, columns.last_time))
    return np.not_equal(first, last)


def _drop_divided(columns: BucketColumns, cuts: Int64s, span: TimeRange) -> tuple[BucketColumns, bool]:
    """Return the rows without those that a cut divides or whose growth is unknown, and whether the range had any."""
    if not len(columns):
        return BucketColumns.make_empty(), False
    divided = _find_divided(columns, cuts) | np.isnan(columns.increase)
    if not divided.any():
        return columns, False
    lost = divided & (columns.first_time < span.end_ms) & (columns.last_time >= span.start_ms)
    return columns.select(~divided), bool(lost.any())
