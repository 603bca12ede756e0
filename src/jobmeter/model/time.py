"""Time: milliseconds since the epoch, half-open ranges, steps, and the clock as an argument."""

import re
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Protocol

import msgspec

from jobmeter.errors import InvalidRequestError

NS_PER_MS = 1_000_000
SECOND = 1_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

MAX_TIME_MS = 4_102_444_800_000
"""2100-01-01: a later time is a unit mistake (microseconds, say), not a date."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {"ms": 1, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")


_LASTING_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def read_clock() -> float:
    """Return the seconds of a clock that all processes of the machine share. It also counts suspended time."""
    return time.clock_gettime(_LASTING_CLOCK)


class Clock(Protocol):
    """Source of time, replaceable in tests."""

    def now_ms(self) -> int:
        """Return the wall-clock time in milliseconds since the epoch (UTC)."""
        ...

    def monotonic(self) -> float:
        """Return the seconds of a clock that never goes back."""
        ...


class SystemClock:
    """Clock of the machine."""

    def now_ms(self) -> int:
        """Return the wall-clock time in milliseconds since the epoch (UTC)."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Return the seconds of a clock that never goes back."""
        return time.monotonic()


class TimeRange(msgspec.Struct, frozen=True):
    """Range ``[start_ms, end_ms)`` in milliseconds since the epoch; ``start_ms == end_ms`` is legal and empty."""

    start_ms: int
    end_ms: int

    def __post_init__(self) -> None:
        if 0 <= self.start_ms <= self.end_ms <= MAX_TIME_MS:
            return
        for field, value in (("start", self.start_ms), ("end", self.end_ms)):
            if not 0 <= value <= MAX_TIME_MS:
                raise InvalidRequestError(f"{field} {value} is not a time between 1970 and 2100 in milliseconds", field)
        if self.end_ms < self.start_ms:
            raise InvalidRequestError(
                f"end ({format_iso(self.end_ms)}) is before start ({format_iso(self.start_ms)})", "end"
            )

    @property
    def length_ms(self) -> int:
        """Length in milliseconds."""
        return self.end_ms - self.start_ms

    def intersect(self, other: "TimeRange") -> "TimeRange | None":
        """Return the overlap of both ranges, or None."""
        start, end = max(self.start_ms, other.start_ms), min(self.end_ms, other.end_ms)
        return TimeRange(start, end) if start < end else None


def intersect_ranges(ranges: Iterable[TimeRange], others: Sequence[TimeRange]) -> list[TimeRange]:
    """Return the parts of some ranges that lie in other ranges. Both are in order of time, ``others`` disjoint."""
    found: list[TimeRange] = []
    at = 0
    for one in ranges:
        while at < len(others) and others[at].end_ms <= one.start_ms:
            at += 1
        for other in islice(others, at, None):
            common = one.intersect(other)
            if common is None:
                break
            found.append(common)
    return found


def floor_to(time_ms: int, step_ms: int) -> int:
    """Return the start of the epoch-aligned step that contains ``time_ms``."""
    return time_ms - time_ms % step_ms


def ceil_to(time_ms: int, step_ms: int) -> int:
    """Return the first epoch-aligned step boundary at or after ``time_ms``."""
    return -(-time_ms // step_ms) * step_ms


def cut_to_steps(span: TimeRange, step_ms: int) -> TimeRange:
    """Return the range of epoch-aligned steps inside a range; an empty one at its start without any."""
    start, end = ceil_to(span.start_ms, step_ms), floor_to(span.end_ms, step_ms)
    return TimeRange(start, end) if start < end else TimeRange(span.start_ms, span.start_ms)


def format_iso(time_ms: int) -> str:
    """Format as ``2026-11-20T15:33:56Z``, with milliseconds unless they are 0."""
    moment = datetime.fromtimestamp(time_ms / 1000, tz=UTC)
    timespec = "seconds" if time_ms % 1000 == 0 else "milliseconds"
    return moment.isoformat(timespec=timespec).replace("+00:00", "Z")


def parse_duration(text: str, field: str = "duration", bare_unit: str = "") -> int:
    """Parse ``10s``, ``1.5h``, ``1h30m`` to milliseconds; a bare number counts in ``bare_unit`` if given.

    Raises InvalidRequestError naming ``field`` for anything else and for values not above zero.
    """
    stripped = text.strip()
    if bare_unit and re.fullmatch(r"\d+(?:\.\d+)?", stripped):
        stripped += bare_unit
    parts = _DURATION.findall(stripped)
    if not parts or stripped != "".join(map("".join, parts)):
        raise InvalidRequestError(f"{field} {text!r} is not a duration such as 30s, 5m, 1h or 7d", field)
    total = sum([float(number) * _UNITS[unit] for number, unit in parts])
    if not 1 <= total <= 100 * 365 * DAY:
        raise InvalidRequestError(f"{field} {text!r} must be between 1ms and 100 years", field)
    return round(total)


def parse_time_ns(text: str | int, field: str = "time") -> int:
    """Parse a time like ``parse_time``, to nanoseconds."""
    value = str(text).strip()
    fraction = re.search(r"[.,](\d{1,9})", value)
    if fraction is None:
        return parse_time(value, field) * 1_000_000
    whole = value[: fraction.start()] + value[fraction.end() :]
    return parse_time(whole, field) * 1_000_000 + int(fraction[1].ljust(9, "0"))


def parse_time(text: str | int, field: str = "time") -> int:
    """Parse an ISO 8601 text (UTC without a zone) or a number of epoch milliseconds to milliseconds.

    Raises InvalidRequestError naming ``field``.
    """
    value = str(text).strip()
    if value.isdecimal() or re.fullmatch(r"-?\d+", value):
        moment = int(value)
    else:
        try:
            parsed = datetime.fromisoformat(value)
        except ValueError as error:
            raise InvalidRequestError(
                f"{field} {value!r} is neither ISO 8601 (2026-11-20T15:00:00Z) nor epoch milliseconds", field
            ) from error
        parsed = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
        moment = round((parsed - _EPOCH).total_seconds() * 1000)
    if not 0 <= moment <= MAX_TIME_MS:
        raise InvalidRequestError(f"{field} {value!r} is not between 1970 and 2100 (is it in milliseconds?)", field)
    return moment


def clamp_to_int64(time: int) -> int:
    """Clamp the time to 64 bits; as a bound it has equal effect."""
    return max(-(2**63), min(time, 2**63 - 1))
