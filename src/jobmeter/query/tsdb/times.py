"""Times and durations of OpenTSDB.

https://opentsdb.net/docs/build/html/user_guide/query/dates.html.
"""

import re
from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from jobmeter.errors import InvalidRequestError
from jobmeter.model.time import DAY, HOUR, MAX_TIME_MS, MINUTE, SECOND

_UNITS = {"ms": 1, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY, "n": 30 * DAY, "y": 365 * DAY}
_DURATION = re.compile(r"([0-9]{1,15})(ms|s|m|h|d|w|n|y)")
_NUMBER = re.compile(r"([0-9]{1,20})(?:\.([0-9]{1,3}))?")
_FORMATS = ("%Y/%m/%d-%H:%M:%S", "%Y/%m/%d %H:%M:%S", "%Y/%m/%d-%H:%M", "%Y/%m/%d %H:%M", "%Y/%m/%d")
_SECONDS_DIGITS = 10


def parse_duration(text: str, field: str) -> int:
    """Parse ``10s``, ``5m``, ``1n`` (30 days), ``1y`` (365 days) to milliseconds. Raises InvalidRequestError."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise InvalidRequestError(f"Invalid duration (number or suffix): {text[:64]}", field)
    length = int(found[1]) * _UNITS[found[2]]
    if not 0 < length <= 200 * 365 * DAY:
        raise InvalidRequestError(f"Zero or too long duration: {text[:64]}", field)
    return length


def find_zone(name: str) -> ZoneInfo:
    """Find a time zone by name. Raises InvalidRequestError (field ``timezone``)."""
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidRequestError(f"Invalid timezone name: {name[:64]}", "timezone") from error


def parse_moment(value: object, field: str, now_ms: int, zone: ZoneInfo) -> int:
    """Parse a start or end to milliseconds: relative, absolute, or a number. Raises InvalidRequestError."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidRequestError(f"Invalid {field} time: it must be a text or a number", field)
    text = str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()
    if text.endswith("-ago"):
        found = max(0, now_ms - parse_duration(text.removesuffix("-ago"), field))
    else:
        found = now_ms if text == "now" else _parse_absolute(text, field, zone)
    if not 0 <= found <= MAX_TIME_MS:
        raise InvalidRequestError(f"Invalid {field} time: {text[:64]} is not between 1970 and 2100", field)
    return found


def _parse_absolute(text: str, field: str, zone: ZoneInfo) -> int:
    number = _NUMBER.fullmatch(text)
    if number is not None:
        whole, rest = number.groups()
        if rest is not None or len(whole) <= _SECONDS_DIGITS:
            return int(whole) * 1000 + int((rest or "0").ljust(3, "0"))
        return int(whole)
    for form in _FORMATS:
        try:
            return round(datetime.strptime(text, form).replace(tzinfo=zone).timestamp() * 1000)
        except (ValueError, OverflowError):
            continue
    raise InvalidRequestError(f"Invalid {field} time: {text[:64]}", field)
