"""Alertmanager's ``time_intervals``: a route is muted in them, or active only in them.

https://prometheus.io/docs/alerting/latest/configuration/#time_interval
"""

import re
from calendar import monthrange
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from jobmeter.alerts.yaml_file import Field
from jobmeter.model.time import SECOND

MOST_INTERVALS, MOST_RANGES = 1_000, 1_000
_WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_FIELDS = ("times", "weekdays", "days_of_month", "months", "years", "location")
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)|24:00")
_HOUR = 60
_DAY = 24 * _HOUR
_LONGEST_MONTH = 31
Bounds = tuple[int, int]
"""First and last member of a range."""


class TimeInterval(msgspec.Struct, frozen=True, kw_only=True):
    """Times that match every list; an empty list matches any. ``location`` is a time zone, empty for the server's."""

    times: tuple[Bounds, ...] = ()
    """Minutes of the day; the second bound is not included."""
    weekdays: tuple[Bounds, ...] = ()
    """Sunday is 0."""
    days_of_month: tuple[Bounds, ...] = ()
    """From 1; negative days count from the end of the month."""
    months: tuple[Bounds, ...] = ()
    years: tuple[Bounds, ...] = ()
    location: str = "UTC"

    def contains(self, now_ms: int) -> bool:
        """Return True for a time in epoch ms that lies in the interval."""
        zone = ZoneInfo(self.location) if self.location else None
        local = datetime.fromtimestamp(now_ms / SECOND, UTC).astimezone(zone)
        minute = local.hour * _HOUR + local.minute
        days = monthrange(local.year, local.month)[1]
        return (
            (not self.times or any(start <= minute < end for start, end in self.times))
            and _has(self.weekdays, local.isoweekday() % 7)
            and _has([_count_from_month_start(bounds, days) for bounds in self.days_of_month], local.day)
            and _has(self.months, local.month)
            and _has(self.years, local.year)
        )


def _has(ranges: Sequence[Bounds], value: int) -> bool:
    return not ranges or any(first <= value <= last for first, last in ranges)


def _count_from_month_start(bounds: Bounds, days: int) -> Bounds:
    """Convert days of a month to days from its start. ``days`` is the length of the month."""
    first, last = (day if day > 0 else days + day + 1 for day in bounds)
    return first, last


def read_intervals(entries: Sequence[Field]) -> Iterator[tuple[str, tuple[TimeInterval, ...]]]:
    """Yield the name and the parts of each interval. A time belongs to the interval if any part contains it."""
    if len(entries) > MOST_INTERVALS:
        entries[0].fail(f"there are {len(entries)} time intervals; the limit is {MOST_INTERVALS}")
    for entry in entries:
        fields = entry.read_fields(("name", "time_intervals"))
        if "name" not in fields or not (name := fields["name"].read_text(200)):
            entry.fail("a time interval needs a name")
        parts = fields["time_intervals"].read_items() if "time_intervals" in fields else []
        if not parts or len(parts) > MOST_RANGES:
            entry.fail(f"time_intervals needs 1 to {MOST_RANGES} entries")
        yield name, tuple(map(_interval, parts))


def _interval(entry: Field) -> TimeInterval:
    fields = entry.read_fields(_FIELDS)
    location = fields["location"].read_text(100) if "location" in fields else "UTC"
    location = "" if location == "Local" else location
    try:
        ZoneInfo(location or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        fields["location"].fail(f"{location!r} is not a time zone such as Europe/Berlin, UTC or Local")
    return TimeInterval(
        times=tuple(map(_times, _entries(fields, "times"))),
        weekdays=tuple(_range(one, _weekday) for one in _entries(fields, "weekdays")),
        days_of_month=tuple(_range(one, _day) for one in _entries(fields, "days_of_month")),
        months=tuple(_range(one, _month) for one in _entries(fields, "months")),
        years=tuple(_range(one, _year) for one in _entries(fields, "years")),
        location=location,
    )


def _entries(fields: Mapping[str, Field], name: str) -> list[Field]:
    found = fields[name].read_items() if name in fields else []
    if len(found) > MOST_RANGES:
        fields[name].fail(f"it has {len(found)} entries; the limit is {MOST_RANGES}")
    return found


def _times(entry: Field) -> Bounds:
    fields = entry.read_fields(("start_time", "end_time"))
    if len(fields) < 2:
        entry.fail("start_time and end_time are needed")
    start, end = (_minute(fields[name]) for name in ("start_time", "end_time"))
    if start >= end:
        entry.fail("end_time must come after start_time; write a range over midnight as two")
    return start, end


def _minute(field: Field) -> int:
    text = field.read_text(8)
    if not _TIME.fullmatch(text):
        field.fail("a time from 00:00 to 24:00 is needed, as HH:MM in quotes")
    hour, minute = map(int, text.split(":"))
    return min(hour * _HOUR + minute, _DAY)


def _range(field: Field, read: Callable[[Field, str], int]) -> Bounds:
    """Read ``VALUE`` or ``START:END``."""
    parts = field.read_text(64).lower().split(":")
    if len(parts) > 2:
        field.fail("VALUE or START:END is needed")
    first, last = read(field, parts[0].strip()), read(field, parts[-1].strip())
    if first < 0 < last:
        field.fail("the end counts from the start of the month, but the start from its end; write two ranges")
    start, end = _count_from_month_start((first, last), _LONGEST_MONTH) if last < 0 else (first, last)
    if start > end:
        field.fail("the end comes before the start; write two ranges")
    return first, last


def _weekday(field: Field, text: str) -> int:
    if text not in _WEEKDAYS:
        field.fail(f"{text!r} is not one of {', '.join(_WEEKDAYS)}")
    return _WEEKDAYS.index(text)


def _month(field: Field, text: str) -> int:
    if text in _MONTHS:
        return _MONTHS.index(text) + 1
    return _number(field, text, range(1, 13), f"1 to 12, or one of {', '.join(_MONTHS)}")


def _day(field: Field, text: str) -> int:
    days = [*range(-31, 0), *range(1, 32)]
    return _number(field, text, days, "1 to 31, or -31 to -1 from the end of the month")


def _year(field: Field, text: str) -> int:
    return _number(field, text, range(1, 10_000), "1 to 9999")


def _number(field: Field, text: str, allowed: Sequence[int], choices: str) -> int:
    if not re.fullmatch("-?[0-9]{1,4}", text) or int(text) not in allowed:
        field.fail(f"{text!r} is not {choices}")
    return int(text)
