"""The range of a call that names neither end of it, one, or both."""

from jobmeter.dialects.alibaba.arguments import Arguments
from jobmeter.errors import InvalidRequestError
from jobmeter.model.time import TimeRange


def requested_range(arguments: Arguments, now_ms: int, back_ms: int) -> TimeRange:
    """From StartTime (by default ``back_ms`` ago) to EndTime (by default now).

    An EndTime that lies before the default StartTime leaves only the time just before it as a sensible start.
    """
    end = arguments.time("EndTime")
    end = now_ms if end is None else end
    start = arguments.time("StartTime")
    if start is None:
        start = max(0, (end if end <= now_ms - back_ms else now_ms) - back_ms)
    return ordered_range(start, end)


def times(arguments: Arguments) -> tuple[int | None, int | None]:
    """StartTime and EndTime, each None where it is not given. Raises as ``ordered_range``."""
    start, end = arguments.time("StartTime"), arguments.time("EndTime")
    if start is not None and end is not None:
        ordered_range(start, end)
    return start, end


def ordered_range(start_ms: int, end_ms: int) -> TimeRange:
    """From the one to the other. Raises InvalidRequestError (EndTime) when they are the wrong way round."""
    if end_ms < start_ms:
        raise InvalidRequestError("EndTime must not be earlier than StartTime", "EndTime")
    return TimeRange(start_ms, end_ms)
