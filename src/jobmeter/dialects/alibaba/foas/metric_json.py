"""Parses ``metricJson``: the metrics, range, steps and number of lines of a request.

https://help.aliyun.com/document_detail/107111.html (GetInstanceMetric), which refers to OpenTSDB's query
(http://opentsdb.net/docs/build/html/api_http/query/index.html) for the details. SPEC.md has the interpretations chosen.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

import msgspec

from jobmeter.dialects.alibaba.common.operation import make_missing_error
from jobmeter.dialects.alibaba.foas.requests import decode_object
from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.time import MAX_TIME_MS, SECOND, TimeRange
from jobmeter.query.request import count_buckets
from jobmeter.query.tsdb.body import FilterBody, Flag, RateBody, choose_filters, parse_rate_options, parse_truth
from jobmeter.query.tsdb.compute import PointQuery
from jobmeter.query.tsdb.downsample import Downsample
from jobmeter.query.tsdb.downsample import parse as parse_downsample
from jobmeter.query.tsdb.filters import Filter
from jobmeter.query.tsdb.functions import AGGREGATORS
from jobmeter.query.tsdb.times import find_zone, parse_duration, parse_moment

FIELD = "metricJson"
MAX_QUERIES = 50
MAX_POINTS = 50_000
MOST_NAMED = 50
"""Most names in an error message."""
DEFAULT_STEP_MS = 20 * SECOND

_NAMES = {name.casefold(): name for name in AGGREGATORS}
_LIMIT = re.compile(r"(max|min|avg):(bottom|above|sample):([0-9]{1,9})")
_UNSUPPORTED = {
    "percentiles": "needs histograms, which are not stored here: use an aggregator such as p95",
    "tsuids": "names series by ids that no answer here has: use filters",
}
_TIMES = " (milliseconds, seconds, 10m-ago, now or 2019/11/20-10:50:00)"
_LENGTHS = " (a length is such as 20s, 5m or 1h)"

TEXT = (
    '`{"start", "end", "limit", "queries": [{"metric", "downsample", "granularity", "aggregator", "tags", "filters", '
    '"rate", "rateOptions", "explicitTags"}], "timezone", "useCalendar"}`, in a form, a JSON object or an XML element; '
    "all but `limit` and `granularity` is OpenTSDB's query. `start` and `end`: milliseconds, seconds, `10m-ago` or "
    "`2019/11/20-10:50:00`; the end (default: now) is included. `downsample`: `20s-avg`, of each series, with any "
    "function of OpenTSDB's and a fill policy (`20s-sum-zero`). `granularity`: `20s`, from point to point of the "
    "answer. `aggregator`: any of OpenTSDB's (`avg`, `max`, `min`, `sum`, `count`, `p95`, ...) makes one point of what "
    "the series have in one `granularity`; `none` gives each series by itself. `filters` and `tags` select series by "
    '`replica`, `node`, `cluster`, `device` and any label: `{"replica": "*"}` gives a line for each replica, `a|b` for '
    "those, `tm-*` for those that fit; without grouping one line joins all. `rate`: the change a second. `limit`: "
    "`avg:above:5` takes the 5 lines of each query whose `max`, `min` or `avg` is largest (`above`), smallest "
    f"(`bottom`), or spread evenly (`sample`). At most {MAX_QUERIES} queries and {MAX_POINTS} points."
)
"""The description of ``metricJson`` for the reference."""


class Take(StrEnum):
    """Selection of lines by their value."""

    BOTTOM = "bottom"
    ABOVE = "above"
    SAMPLE = "sample"


class LineLimit(msgspec.Struct, frozen=True):
    """At most ``count`` lines of each query; ``judged_by`` is ``max``, ``min`` or ``avg`` of a line's points."""

    judged_by: str
    take: Take
    count: int


class MetricRequest(PointQuery, frozen=True, kw_only=True):
    """A query: ``metric`` as it was written and ``name`` as the table has it.

    The points of each series are joined in the steps of ``downsample``. Then ``aggregator`` joins the series in each
    step of ``granularity_ms``; 0 leaves points at their times.
    """

    metric: str
    name: str
    downsample: Downsample
    granularity_ms: int


class MetricJson(msgspec.Struct, frozen=True):
    """The whole document."""

    span: TimeRange
    limit: LineLimit | None
    queries: tuple[MetricRequest, ...]


def read(text: str, prefix: str, names: Mapping[str, str], now_ms: int) -> MetricJson:
    """Parse a ``metricJson``. ``prefix`` may stand before each of ``names``.

    Raises InvalidRequestError naming the invalid part, LimitExceededError for too many points.
    """
    given = decode_object(text, FIELD, FIELD)
    queries = given.get("queries")
    if queries is None or queries == []:
        raise make_missing_error(f"{FIELD}.queries")
    if not isinstance(queries, list) or not all(isinstance(query, dict) for query in queries):
        raise _make_member_error("queries", "is not an array of objects")
    if len(queries) > MAX_QUERIES:
        raise LimitExceededError(f"{FIELD}.queries has {len(queries)} members of at most {MAX_QUERIES}", "queries")
    with _name_member_in_errors("timezone"):
        zone = find_zone(_convert(given.get("timezone"), str, "", "timezone"))
    span = _span(given, now_ms, zone)
    calendar = parse_truth(_convert(given.get("useCalendar"), Flag, False, "useCalendar"))
    reader = _Reader(prefix, names, zone, calendar)
    requests = tuple(reader.query(query, f"queries[{at}]") for at, query in enumerate(queries))
    _check_points(span, requests)
    return MetricJson(span, _limit(given.get("limit")), requests)


def _span(given: Mapping[str, Any], now_ms: int, zone: ZoneInfo) -> TimeRange:
    if given.get("start") in (None, ""):
        raise make_missing_error(f"{FIELD}.start")
    with _name_member_in_errors("start", _TIMES):
        start = parse_moment(given["start"], "start", now_ms, zone)
    with _name_member_in_errors("end", _TIMES):
        end = now_ms if given.get("end") in (None, "") else parse_moment(given["end"], "end", now_ms, zone)
    if end < start:
        raise _make_member_error("end", "is earlier than start")
    # A point at the end itself belongs to the answer, as in OpenTSDB.
    return TimeRange(start, min(end + 1, MAX_TIME_MS))


class _Reader(msgspec.Struct, frozen=True):
    """Reads queries. ``prefix`` may stand before each of ``names``; ``zone`` and ``calendar`` are the document's."""

    prefix: str
    names: Mapping[str, str]
    zone: ZoneInfo
    calendar: bool

    def query(self, query: Mapping[str, Any], where: str) -> MetricRequest:
        metric = query.get("metric")
        if not metric:
            raise make_missing_error(f"{FIELD}.{where}.metric")
        for name, reason in _UNSUPPORTED.items():
            if query.get(name):
                raise _make_member_error(f"{where}.{name}", reason)
        granularity = _step(query.get("granularity"), f"{where}.granularity")
        steps = self._downsample(query.get("downsample"), granularity or DEFAULT_STEP_MS, f"{where}.downsample")
        rate = parse_truth(_convert(query.get("rate"), Flag, False, f"{where}.rate"))
        options = _convert(query.get("rateOptions"), RateBody, RateBody(), f"{where}.rateOptions")
        with _name_member_in_errors(f"{where}.rateOptions"):
            rates = parse_rate_options(options) if rate else None
        return MetricRequest(
            metric=str(metric),
            name=self._name(str(metric), where),
            downsample=steps,
            granularity_ms=granularity or (0 if steps.unit is not None else steps.interval_ms),
            aggregator=_function(query.get("aggregator") or "avg", f"{where}.aggregator"),
            rate=rates,
            filters=_filters(query, where),
            explicit_tags=parse_truth(_convert(query.get("explicitTags"), Flag, False, f"{where}.explicitTags")),
        )

    def _name(self, metric: str, where: str) -> str:
        name = metric.removeprefix(self.prefix)
        if name in self.names:
            return name
        if name == metric and metric.startswith(f"{self.prefix.partition('.')[0]}."):
            raise _make_member_error(
                f"{where}.metric", f"{metric[:200]!r} does not begin with {self.prefix!r}, which this path names"
            )
        few = len(self.names) <= MOST_NAMED
        known = f"one of {', '.join(self.names)}" if few else "the name of a metric that is known here"
        raise _make_member_error(f"{where}.metric", f"{name[:200]!r} is not {known}")

    def _downsample(self, value: object, default_ms: int, where: str) -> Downsample:
        """Parse ``20s-avg``; a function without an interval (``avg``, ``avg-zero``) has steps of ``default_ms``."""
        text = "avg" if value in (None, "") else str(value)
        first, *rest = text.split("-", 2)
        if first != "all" and not first[:1].isdigit():
            first, rest = f"{default_ms // SECOND}s", text.split("-", 1)
        interval = f"{first}s" if first.isdigit() else first
        function = _function(rest[0], where, calendar=True) if rest else ""
        with _name_member_in_errors(where, _LENGTHS):
            spec = parse_downsample("-".join([interval, *filter(None, [function, *rest[1:]])]), self.zone,
                                    calendar=self.calendar)  # fmt: skip
        if spec.interval_ms % SECOND:
            raise _make_member_error(
                where, f"{text[:64]!r} is not a whole number of seconds, by which points are named"
            )
        return spec


def _step(value: object, where: str) -> int:
    """Return milliseconds of ``20s``; a bare number counts seconds. 0 if absent."""
    if value in (None, ""):
        return 0
    text = str(value)
    with _name_member_in_errors(where, _LENGTHS):
        step = parse_duration(f"{text}s" if text.isdigit() else text, where)
    # Points are named by whole seconds.
    if step > MAX_TIME_MS or step % SECOND:
        raise _make_member_error(
            where, f"{text[:64]!r} is not a whole number of seconds such as 20s, or of m, h, d or w"
        )
    return step


def _function(value: object, where: str, *, calendar: bool = False) -> str:
    """Return the name of an aggregator, in any letter case; ``calendar`` also allows a ``c`` after it."""
    text = str(value)
    name = _NAMES.get(text.casefold())
    if name is None and calendar and text[-1:] == "c" and text[:-1].casefold() in _NAMES:
        name = f"{_NAMES[text[:-1].casefold()]}c"
    if name is None:
        raise _make_member_error(where, f"{text[:64]!r} is not one of {', '.join(AGGREGATORS)}")
    return name


def _filters(query: Mapping[str, Any], where: str) -> tuple[Filter, ...]:
    filters = _convert(query.get("filters"), list[FilterBody], [], f"{where}.filters")
    tags = query.get("tags") or {}
    if not isinstance(tags, dict) or not all(isinstance(part, str) and part for part in tags.values()):
        raise _make_member_error(f"{where}.tags", "is not an object of texts")
    with _name_member_in_errors(f"{where}.{'filters' if filters else 'tags'}"):
        return choose_filters(filters, tags)


def _limit(value: object) -> LineLimit | None:
    if value in (None, ""):
        return None
    found = _LIMIT.fullmatch(str(value))
    if found is None or not int(found[3]):
        form = "(max|avg|min):(bottom|above|sample):(a number above 0)"
        raise _make_member_error("limit", f"{str(value)[:64]!r} is not of the form {form}")
    return LineLimit(found[1], Take(found[2]), int(found[3]))


def _check_points(span: TimeRange, queries: tuple[MetricRequest, ...]) -> None:
    points = sum(step_count(span, query) for query in queries)
    if points > MAX_POINTS:
        raise LimitExceededError(
            f"{FIELD} requests {points} points of at most {MAX_POINTS}: choose a longer granularity (and downsample),"
            " a shorter range or fewer queries",
            "granularity",
        )


def step_count(span: TimeRange, query: MetricRequest) -> int:
    """Estimate the steps of a series of the query in the range; exact except for calendar steps."""
    return count_buckets(span, query.downsample.interval_ms) if query.downsample.interval_ms else 1


def _convert(value: object, shape: Any, default: Any, name: str) -> Any:  # noqa: ANN401 - msgspec's own types
    """Convert the value to that type; the default if it is absent. Raises InvalidRequestError."""
    try:
        return default if value in (None, "") else msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise _make_member_error(name, f"is not valid in OpenTSDB: {error}") from error


@contextmanager
def _name_member_in_errors(name: str, hint: str = "") -> Iterator[None]:
    """Add the name of the document's invalid member to errors of OpenTSDB's arithmetic."""
    try:
        yield
    except InvalidRequestError as error:
        raise _make_member_error(name, f"is invalid: {error.message}{hint}") from error


def _make_member_error(name: str, problem: str) -> InvalidRequestError:
    field = f"{FIELD}.{name}"
    return InvalidRequestError(f"{field} {problem}", field)
