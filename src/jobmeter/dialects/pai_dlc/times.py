"""Times as PAI-DLC writes and reads them."""

from datetime import UTC, datetime

from jobmeter.dialects.alibaba.arguments import Arguments
from jobmeter.errors import InvalidRequestError
from jobmeter.model.time import DAY, SECOND, TimeRange

TIME = "UTC, ISO 8601 (`2020-11-08T16:00:00Z`)."
WEEK = 7 * DAY


def stamp(time_ms: int | None) -> str:
    """``2026-11-20T15:33:56Z``; empty for no time."""
    return "" if time_ms is None else f"{datetime.fromtimestamp(time_ms // SECOND, tz=UTC):%Y-%m-%dT%H:%M:%SZ}"


def plain(time_ms: int) -> str:
    """``2026-11-20 15:33:56`` (UTC), as events are written."""
    return f"{datetime.fromtimestamp(time_ms // SECOND, tz=UTC):%Y-%m-%d %H:%M:%S}"


def seconds(start: int | None, end: int | None, now_ms: int) -> float:
    """From start to end, or until now; 0 before the start."""
    return 0.0 if start is None else max(0, (now_ms if end is None else end) - start) / SECOND


def asked_range(arguments: Arguments, now_ms: int, back_ms: int) -> TimeRange:
    """From StartTime (by default ``back_ms`` ago) to EndTime (by default now).

    An EndTime that lies before the default StartTime leaves only the time just before it as a sensible start.
    """
    end = arguments.time("EndTime")
    end = now_ms if end is None else end
    start = arguments.time("StartTime")
    if start is None:
        start = max(0, (end if end <= now_ms - back_ms else now_ms) - back_ms)
    if end < start:
        raise InvalidRequestError("EndTime must not be earlier than StartTime", "EndTime")
    return TimeRange(start, end)
