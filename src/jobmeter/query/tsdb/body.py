"""Members of a sub query in a JSON body.

https://opentsdb.net/docs/build/html/api_http/query/index.html#sub-queries
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.time import DAY, HOUR, MAX_TIME_MS, MINUTE, SECOND
from jobmeter.query.tsdb.filters import MOST_FILTERS, Filter, make_filter, parse_tag_filter
from jobmeter.query.tsdb.functions import LONG_MAX, RateOptions

_UNITS = {"ms": 1, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY, "n": 30 * DAY, "y": 365 * DAY}
_DURATION = re.compile(r"([0-9]{1,15})(ms|s|m|h|d|w|n|y)")
_NUMBER = re.compile(r"([0-9]{1,20})(?:\.([0-9]{1,3}))?")
_FORMATS = ("%Y/%m/%d-%H:%M:%S", "%Y/%m/%d %H:%M:%S", "%Y/%m/%d-%H:%M", "%Y/%m/%d %H:%M", "%Y/%m/%d")
_SECONDS_DIGITS = 10


def duration(text: str, field: str) -> int:
    """Parse ``10s``, ``5m``, ``1n`` (30 days), ``1y`` (365 days) to milliseconds. Raises InvalidRequestError."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise InvalidRequestError(f"Invalid duration (number or suffix): {text[:64]}", field)
    length = int(found[1]) * _UNITS[found[2]]
    if not 0 < length <= 200 * 365 * DAY:
        raise InvalidRequestError(f"Zero or too long duration: {text[:64]}", field)
    return length


def zone_of(name: str) -> ZoneInfo:
    """Find a time zone by name. Raises InvalidRequestError (field ``timezone``)."""
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidRequestError(f"Invalid timezone name: {name[:64]}", "timezone") from error


def moment(value: object, field: str, now_ms: int, zone: ZoneInfo) -> int:
    """Parse a start or end to milliseconds: relative, absolute, or a number. Raises InvalidRequestError."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidRequestError(f"Invalid {field} time: it must be a text or a number", field)
    text = str(int(value) if isinstance(value, float) and value.is_integer() else value).strip()
    if text.endswith("-ago"):
        found = max(0, now_ms - duration(text.removesuffix("-ago"), field))
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


Flag = bool | str | int


class FilterBody(msgspec.Struct, frozen=True):
    """A filter in a body."""

    type: str = ""
    tagk: str = ""
    filter: str | None = ""
    groupBy: Flag = False  # noqa: N815 - the name on the wire
    group_by: Flag = False


class RateBody(msgspec.Struct, frozen=True):
    """Rate options in a body."""

    counter: Flag = False
    counterMax: float | str | None = None  # noqa: N815
    resetValue: float | str | None = None  # noqa: N815
    dropResets: Flag = False  # noqa: N815


def truth(value: Flag) -> bool:
    """Parse a truth value of a body, which may also be a text, as in OpenTSDB's own examples."""
    return value.lower() == "true" if isinstance(value, str) else bool(value)


def filters_of(filters: Sequence[FilterBody] | None, tags: Mapping[str, str] | None) -> tuple[Filter, ...]:
    """Return the filters, else the tags of the older form: OpenTSDB uses one of the two. Raises InvalidRequestError."""
    if filters:
        return few(
            [
                make_filter(one.tagk, one.type, one.filter or "", group_by=truth(one.groupBy) or truth(one.group_by))
                for one in filters
            ]
        )
    return few([parse_tag_filter(tag, value, group_by=True) for tag, value in (tags or {}).items()])


def few(filters: Sequence[Filter]) -> tuple[Filter, ...]:
    """Return the filters. Raises LimitExceededError for too many."""
    if len(filters) > MOST_FILTERS:
        raise LimitExceededError(f"a sub query may have {MOST_FILTERS} filters, this one has {len(filters)}", "filters")
    return tuple(filters)


def rate_options(body: RateBody) -> RateOptions:
    """Parse the options of a rate. Raises InvalidRequestError (``rateOptions``)."""
    return RateOptions(
        counter=truth(body.counter),
        counter_max=parse_positive(body.counterMax, LONG_MAX, "counterMax"),
        reset_value=parse_positive(body.resetValue, 0, "resetValue"),
        drop_resets=truth(body.dropResets),
    )


def parse_positive(value: float | str | None, default: float, name: str) -> float:
    """Parse a number, 0 or more, as text or number. Raises InvalidRequestError (``rateOptions``)."""
    if value in {None, ""}:
        return default
    try:
        found = float(value or 0)
    except ValueError:
        found = -1.0
    if not 0 <= found < float("inf"):
        raise InvalidRequestError(f"{name} must be a positive number", "rateOptions")
    return found
