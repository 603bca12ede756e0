"""Parses requests of ``/api/query``, from a query string or a body, into one form.

https://opentsdb.net/docs/build/html/api_http/query/index.html
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import msgspec

from jobmeter.dialects.base import MissingFieldError
from jobmeter.dialects.opentsdb.metric_text import MetricText, split_metric, split_tags
from jobmeter.dialects.opentsdb.requests import PRESENT, PostRequest
from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.time import TimeRange
from jobmeter.query.tsdb.body import (
    FilterBody,
    Flag,
    RateBody,
    check_count,
    choose_filters,
    parse_positive,
    parse_rate_options,
    parse_truth,
)
from jobmeter.query.tsdb.compute import PointQuery
from jobmeter.query.tsdb.downsample import parse as parse_downsample
from jobmeter.query.tsdb.filters import parse_tag_filter
from jobmeter.query.tsdb.functions import AGGREGATORS
from jobmeter.query.tsdb.rate import LONG_MAX, RateOptions
from jobmeter.query.tsdb.times import find_zone, parse_moment

MOST_QUERIES = 32
MOST_TSUIDS = 10_000
_TIME = "`1h-ago`, `2012/01/01-00:00:00`, epoch seconds or milliseconds."


class SubQuery(PointQuery, frozen=True, kw_only=True):
    """A sub query. ``metric`` is empty if ``tsuids`` are given."""

    index: int
    metric: str
    tsuids: tuple[str, ...] = ()


class OpenTsdbQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A whole request. ``range`` ends one millisecond after the last included one: OpenTSDB includes both ends."""

    range: TimeRange
    queries: Sequence[SubQuery]
    milliseconds: bool = False
    arrays: bool = False
    show_query: bool = False
    show_tsuids: bool = False
    show_summary: bool = False


class SubQueryBody(msgspec.Struct, frozen=True):
    """A sub query in a body; unknown fields are ignored."""

    aggregator: str | None = None
    metric: str | None = None
    tsuids: list[str] | None = None
    rate: Flag = False
    rateOptions: RateBody | None = None  # noqa: N815
    downsample: str | None = None
    tags: dict[str, str] | None = None
    filters: list[FilterBody] | None = None
    explicitTags: Flag = False  # noqa: N815
    percentiles: list[float] | None = None


class QueryBody(msgspec.Struct, frozen=True):
    """A body; unknown fields are ignored."""

    start: int | float | str | None = None
    end: int | float | str | None = None
    queries: list[SubQueryBody] | None = None
    msResolution: Flag = False  # noqa: N815
    ms: Flag = False
    arrays: Flag = False
    showQuery: Flag = False  # noqa: N815
    showTSUIDs: Flag = False  # noqa: N815
    showSummary: Flag = False  # noqa: N815
    showStats: Flag = False  # noqa: N815
    delete: Flag = False
    timezone: str = ""
    useCalendar: Flag = False  # noqa: N815


class OpenTsdbQueryRequest(PostRequest, frozen=True, kw_only=True):
    """The parameters of ``/api/query``."""

    start: Annotated[str, f"Required: {_TIME}"] = ""
    end: Annotated[str, f"{_TIME} Included. Default: now."] = ""
    m: Annotated[
        str,
        "`<aggregator>:[rate[{counter[,<max>[,<reset>]]}]:][<interval>-<function>[-<fill>]:]"
        "[explicit_tags:]<metric>[{<tag>=<grouping filter>,...}][{<tag>=<filter>,...}]`; may be repeated.",
    ] = ""
    tsuid: Annotated[
        str,
        "`<aggregator>:[rate:]<tsuid>,...`; ids that `show_tsuids` showed. Another name is `tsuids`.",
    ] = ""
    tz: Annotated[str, "Time zone of formatted times and of calendar intervals. Default: UTC."] = ""
    timezone: Annotated[str, "Alias of tz."] = ""
    use_calendar: Annotated[bool, "Present: every downsample interval is one of the calendar.", PRESENT] = False
    ms: Annotated[bool, "Present: times in milliseconds.", PRESENT] = False
    arrays: Annotated[bool, "Present: `dps` is an array of `[time, value]`.", PRESENT] = False
    show_query: Annotated[bool, "Present: each result repeats its sub query.", PRESENT] = False
    show_tsuids: Annotated[bool, "Present: each result has the ids of its series.", PRESENT] = False
    show_summary: Annotated[
        bool, "Present: a last element has the numbers of points that were read and made.", PRESENT
    ] = False
    body: Annotated[
        bytes,
        "With POST: `{start, end, timezone, useCalendar, msResolution, arrays, showQuery, showTSUIDs, "
        "showSummary, queries}`. A query: `{aggregator, metric or tsuids, downsample, rate, rateOptions: {counter, "
        "counterMax, resetValue, dropResets}, filters: [{type, tagk, filter, groupBy}] or tags, explicitTags}`. "
        "`noAnnotations` and `globalAnnotations` change nothing.",
    ] = b""

    def has_flag(self, name: str) -> bool:
        """Return True if a parameter without a field is present."""
        value = self.call.get_parameter(name)
        return value is not None and value.strip().lower() != "false"


def parse_body(request: OpenTsdbQueryRequest) -> OpenTsdbQuery:
    """Parse the query of a POST. Raises InvalidRequestError."""
    body = request.decode_content(QueryBody)
    if parse_truth(body.delete):
        raise InvalidRequestError("Deleting data is not enabled", "delete")
    zone, calendar = find_zone(body.timezone), parse_truth(body.useCalendar)
    return OpenTsdbQuery(
        range=_range(body.start, body.end, request.context.now_ms, zone),
        queries=_some([_parse_body(at, one, zone, calendar=calendar) for at, one in enumerate(body.queries or ())]),
        milliseconds=parse_truth(body.msResolution) or parse_truth(body.ms),
        arrays=parse_truth(body.arrays) or request.arrays,
        show_query=parse_truth(body.showQuery),
        show_tsuids=parse_truth(body.showTSUIDs),
        show_summary=parse_truth(body.showSummary) or parse_truth(body.showStats),
    )


def parse_string(request: OpenTsdbQueryRequest) -> OpenTsdbQuery:
    """Parse the query of a GET. Raises InvalidRequestError."""
    zone = find_zone(request.tz or request.timezone)
    if request.has_flag("delete"):
        raise InvalidRequestError("Deleting data is not enabled", "delete")
    calendar = request.use_calendar or request.has_flag("useCalendar")
    texts = [(name, value) for name, value in request.call.parameters if name in {"m", "tsuid", "tsuids"}]
    queries = [
        _parse_metric(at, split_metric(text), zone, calendar=calendar) if name == "m" else _parse_tsuids(at, text)
        for at, (name, text) in enumerate(texts)
    ]
    return OpenTsdbQuery(
        range=_range(request.start, request.end, request.context.now_ms, zone),
        queries=_some(queries),
        milliseconds=request.ms,
        arrays=request.arrays,
        show_query=request.show_query,
        show_tsuids=request.show_tsuids,
        show_summary=request.show_summary or request.has_flag("show_stats"),
    )


def _range(start: object, end: object, now_ms: int, zone: ZoneInfo) -> TimeRange:
    if start in {None, ""}:
        raise MissingFieldError("Missing start time", "start")
    first = parse_moment(start, "start", now_ms, zone)
    last = now_ms if end in {None, "", 0} else parse_moment(end, "end", now_ms, zone)
    if last <= first:
        raise InvalidRequestError(f"End time [{last}] must be greater than the start time [{first}]", "end")
    return TimeRange(first, last + 1)


def _some(queries: Sequence[SubQuery]) -> Sequence[SubQuery]:
    if not queries:
        raise MissingFieldError("Missing sub queries", "queries")
    if len(queries) > MOST_QUERIES:
        raise LimitExceededError(f"a query may have at most {MOST_QUERIES} sub queries, not {len(queries)}", "queries")
    return queries


def _aggregator(name: str | None) -> str:
    if not name:
        raise MissingFieldError("Missing the aggregation function", "aggregator")
    if name not in AGGREGATORS:
        raise InvalidRequestError(f"No such aggregator: {name[:64]}", "aggregator")
    return name


def _parse_body(index: int, body: SubQueryBody, zone: ZoneInfo, *, calendar: bool) -> SubQuery:
    aggregator = _aggregator(body.aggregator)
    if body.percentiles:
        raise InvalidRequestError("percentiles need histograms, which are not stored here", "percentiles")
    tsuids = _tsuids(body.tsuids or ())
    if not tsuids and not body.metric:
        raise MissingFieldError("Missing the metric or tsuids, provide at least one", "metric")
    options = body.rateOptions or RateBody()
    return SubQuery(
        index=index,
        metric="" if tsuids else body.metric or "",
        tsuids=tsuids,
        aggregator=aggregator,
        rate=parse_rate_options(options) if parse_truth(body.rate) else None,
        downsample=parse_downsample(body.downsample, zone, calendar=calendar) if body.downsample else None,
        filters=() if tsuids else choose_filters(body.filters, body.tags),
        explicit_tags=parse_truth(body.explicitTags),
    )


def _parse_metric(index: int, text: MetricText, zone: ZoneInfo, *, calendar: bool) -> SubQuery:
    groups = [parse_tag_filter(tag, value, group_by=True) for tag, value in split_tags(text.tags)]
    others = [parse_tag_filter(tag, value, group_by=False) for tag, value in split_tags(text.filters)]
    return SubQuery(
        index=index,
        metric=text.metric,
        aggregator=_aggregator(text.aggregator),
        rate=None if text.rate is None else _rate_text(text.rate),
        downsample=parse_downsample(text.downsample, zone, calendar=calendar) if text.downsample else None,
        filters=check_count([*groups, *others]),
        explicit_tags=text.explicit_tags,
    )


def _rate_text(text: str) -> RateOptions:
    """Parse the options in the braces of ``rate{counter,max,reset}``; ``dropcounter`` drops resets."""
    parts = [part.strip() for part in text.split(",")] if text else [""]
    if parts[0] not in {"", "counter", "dropcounter"} or len(parts) > 3:
        raise InvalidRequestError(f"Invalid rate options: {text[:64]}", "m")
    return RateOptions(
        counter=parts[0] in {"counter", "dropcounter"},
        drop_resets=parts[0] == "dropcounter",
        counter_max=parse_positive(parts[1] if len(parts) > 1 else None, LONG_MAX, "counterMax"),
        reset_value=parse_positive(parts[2] if len(parts) > 2 else None, 0, "resetValue"),
    )


def _parse_tsuids(index: int, text: str) -> SubQuery:
    aggregator, colon, rest = text.partition(":")
    if not colon:
        raise InvalidRequestError("Invalid tsuid parameter: it is <aggregator>:<tsuid>,...", "tsuid")
    rate, colon, listed = rest.partition(":")
    if colon and rate != "rate":
        raise InvalidRequestError(f"Invalid tsuid parameter: {rate[:64]} is not rate", "tsuid")
    return SubQuery(
        index=index,
        metric="",
        aggregator=_aggregator(aggregator),
        tsuids=_tsuids((listed if colon else rest).split(",")),
        rate=RateOptions() if colon else None,
    )


def _tsuids(texts: Sequence[str]) -> tuple[str, ...]:
    if len(texts) > MOST_TSUIDS:
        raise LimitExceededError(f"a sub query may have at most {MOST_TSUIDS} TSUIDs", "tsuids")
    return tuple(dict.fromkeys(text.strip().upper() for text in texts))


def describe_query(query: SubQuery) -> Mapping[str, Any]:
    """Return the sub query in the form in which answers repeat it."""
    return {
        "aggregator": query.aggregator,
        "metric": query.metric or None,
        "tsuids": list(query.tsuids) or None,
        "downsample": query.downsample.text if query.downsample else None,
        "rate": query.rate is not None,
        "filters": [
            {"tagk": one.tag, "filter": one.pattern, "group_by": one.group_by, "type": one.kind}
            for one in query.filters
        ],
        "rateOptions": _describe_rate(query.rate),
        "explicitTags": query.explicit_tags,
        "index": query.index,
        "tags": {one.tag: f"{one.kind}({one.pattern})" for one in query.filters if one.group_by},
    }


def _describe_rate(options: RateOptions | None) -> Mapping[str, Any] | None:
    if options is None or options == RateOptions():
        return None
    return {
        "counter": options.counter,
        "counterMax": int(options.counter_max),
        "resetValue": int(options.reset_value),
        "dropResets": options.drop_resets,
    }
