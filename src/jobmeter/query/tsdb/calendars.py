"""Calendar intervals: days, weeks, months and years in a time zone.

https://opentsdb.net/docs/build/html/user_guide/query/downsampling.html#calendar-boundaries.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

import numpy as np

from jobmeter.model.batch import Int64s
from jobmeter.model.time import DAY, HOUR, MINUTE, SECOND
from jobmeter.query.tsdb.columns import MOST_POINTS, make_points_error


class Unit(StrEnum):
    """Unit of an interval."""

    SECOND = "s"
    MINUTE = "m"
    HOUR = "h"
    DAY = "d"
    WEEK = "w"
    MONTH = "n"
    YEAR = "y"


_FIXED = {Unit.SECOND: SECOND, Unit.MINUTE: MINUTE, Unit.HOUR: HOUR}
_LEAST = {Unit.DAY: DAY, Unit.WEEK: 7 * DAY, Unit.MONTH: 28 * DAY, Unit.YEAR: 365 * DAY}
_FIRST_YEAR = 1970
_END_MS = 253_370_764_800_000
"""Start of the year 9999, the last of these calendars: an interval that would end later ends there."""


def compute_edges(start_ms: int, end_ms: int, every: int, unit: Unit, zone: ZoneInfo) -> Int64s:
    """Return starts of intervals in ms: from the last one up to ``start_ms`` to the first from ``end_ms`` on.

    They are counted from the first of January of the year of ``start_ms``; weeks begin on Sunday. Raises
    LimitExceededError.
    """
    length = every * (_FIXED.get(unit) or _LEAST[unit])
    if (end_ms - start_ms) // length >= MOST_POINTS:
        raise make_points_error()
    year = datetime.fromtimestamp(max(start_ms, 0) / 1000, zone).year
    while True:
        origin = datetime(max(year, _FIRST_YEAR - 1), 1, 1, tzinfo=zone)
        found = _list_boundaries(origin, start_ms, end_ms, every, unit)
        if found[0] <= start_ms or year < _FIRST_YEAR:
            return _cut_around(found, start_ms, end_ms)
        year -= 1


def _list_boundaries(origin: datetime, start_ms: int, end_ms: int, every: int, unit: Unit) -> Int64s:
    fixed = _FIXED.get(unit)
    first = _ms(origin)
    if fixed is not None:
        begin = first + max(0, (start_ms - first) // (every * fixed)) * every * fixed
        return np.arange(begin, end_ms + every * fixed, every * fixed, dtype=np.int64)
    found: list[int] = []
    step = 0
    while not found or found[-1] < end_ms:
        try:
            found.append(_ms(_step(origin, step, unit)))
        except (OverflowError, ValueError):
            found.append(_END_MS)
        step += every
    return np.array(found, np.int64)


def _step(origin: datetime, count: int, unit: Unit) -> datetime:
    """Return the wall clock time of an interval. Raises OverflowError or ValueError after the year 9999."""
    if unit is Unit.DAY:
        return origin + timedelta(days=count)
    if unit is Unit.WEEK:
        return origin - timedelta(days=(origin.weekday() + 1) % 7) + timedelta(weeks=count)
    months = count if unit is Unit.MONTH else 12 * count
    return origin.replace(year=origin.year + months // 12, month=months % 12 + 1)


def _cut_around(found: Int64s, start_ms: int, end_ms: int) -> Int64s:
    first = max(0, int(np.searchsorted(found, start_ms, side="right")) - 1)
    last = int(np.searchsorted(found, end_ms)) + 1
    return found[first:last]


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
