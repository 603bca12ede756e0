"""Members of a sub query in a JSON body.

https://opentsdb.net/docs/build/html/api_http/query/index.html#sub-queries
"""

from collections.abc import Mapping, Sequence

import msgspec

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.query.tsdb.filters import MOST_FILTERS, Filter, make_filter, parse_tag_filter
from jobmeter.query.tsdb.rate import LONG_MAX, RateOptions

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


def parse_truth(value: Flag) -> bool:
    """Parse a truth value of a body, which may also be a text, as in OpenTSDB's own examples."""
    return value.lower() == "true" if isinstance(value, str) else bool(value)


def choose_filters(filters: Sequence[FilterBody] | None, tags: Mapping[str, str] | None) -> tuple[Filter, ...]:
    """Return the filters, else the tags of the older form: OpenTSDB uses one of the two. Raises InvalidRequestError."""
    if filters:
        return check_count(
            [
                make_filter(
                    one.tagk, one.type, one.filter or "", group_by=parse_truth(one.groupBy) or parse_truth(one.group_by)
                )
                for one in filters
            ]
        )
    return check_count([parse_tag_filter(tag, value, group_by=True) for tag, value in (tags or {}).items()])


def check_count(filters: Sequence[Filter]) -> tuple[Filter, ...]:
    """Return the filters. Raises LimitExceededError for too many."""
    if len(filters) > MOST_FILTERS:
        raise LimitExceededError(f"a sub query may have {MOST_FILTERS} filters, this one has {len(filters)}", "filters")
    return tuple(filters)


def parse_rate_options(body: RateBody) -> RateOptions:
    """Parse the options of a rate. Raises InvalidRequestError (``rateOptions``)."""
    return RateOptions(
        counter=parse_truth(body.counter),
        counter_max=parse_positive(body.counterMax, LONG_MAX, "counterMax"),
        reset_value=parse_positive(body.resetValue, 0, "resetValue"),
        drop_resets=parse_truth(body.dropResets),
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
