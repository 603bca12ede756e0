"""``metricJson``: the metrics, range, steps and number of lines of a request.

https://help.aliyun.com/document_detail/107111.html (GetInstanceMetric), which refers to OpenTSDB's query
(http://opentsdb.net/docs/build/html/api_http/query/index.html) for the details. The readings chosen are in SPEC.md.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any

import msgspec

from jobmeter.dialects.alibaba.operation import missing
from jobmeter.dialects.foas.bodies import json_object
from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.time import DAY, HOUR, MAX_TIME_MS, MINUTE, SECOND, TimeRange
from jobmeter.query.request import Statistic, bucket_count

FIELD = "metricJson"
MAX_QUERIES = 50
MAX_POINTS = 50_000
MOST_NAMED = 50
"""How many names a refusal lists."""
DEFAULT_STEP_MS = 20 * SECOND
FUNCTIONS: Mapping[str, Statistic] = MappingProxyType(
    {"avg": Statistic.MEAN, "max": Statistic.MAX, "min": Statistic.MIN, "sum": Statistic.SUM}
)

_TIME = re.compile(r"[1-9][0-9]{12}")
_STEP = re.compile(r"([0-9]{1,9})(ms|[smhdw]?)")
_STEP_UNITS = {"ms": 1, "": SECOND, "s": SECOND, "m": MINUTE, "h": HOUR, "d": DAY, "w": 7 * DAY}
_LIMIT = re.compile(r"(max|min|avg):(bottom|above|sample):([0-9]{1,9})")
_UNSUPPORTED = ("rate", "filters", "percentiles", "explicitTags", "tsuids")


TEXT = (
    '`{"start", "end", "limit", "queries": [{"metric", "downsample", "granularity", "aggregator", "tags"}]}`, in a '
    "form, a JSON object or an XML element. `start` and `end`: 13 digits, milliseconds; the end (default: now) is "
    "included. `downsample`: `20s-avg`, of each series; `avg`, `max`, `min` or `sum`. `granularity`: `20s`, from point "
    "to point of the answer. `aggregator`: `avg`, `max`, `min` or `sum`, makes one point of what the series have in "
    'one `granularity`. `tags`: `{"replica": "*"}` gives a line for each replica (or `node`, or any label), `a|b` for '
    "those; without tags one line joins all. `limit`: `avg:above:5` takes the 5 lines of each query whose `max`, `min` "
    "or `avg` is largest (`above`), smallest (`bottom`), or spread evenly (`sample`). At most "
    f"{MAX_QUERIES} queries and {MAX_POINTS} points."
)
"""What the document says, for the reference."""


class Take(StrEnum):
    """How lines are selected by their value."""

    BOTTOM = "bottom"
    ABOVE = "above"
    SAMPLE = "sample"


class LineLimit(msgspec.Struct, frozen=True):
    """At most ``count`` lines of each query; ``judged_by`` is ``max``, ``min`` or ``avg`` of a line's points."""

    judged_by: str
    take: Take
    count: int


class MetricRequest(msgspec.Struct, frozen=True):
    """One query: ``metric`` as it was written and ``name`` as the table has it.

    Each series is brought to steps of ``downsample_ms`` by ``downsample``; what then falls into one step of
    ``granularity_ms`` becomes one point by ``aggregator``. ``tags`` are (tag, wanted values), no values meaning any.
    """

    metric: str
    name: str
    downsample_ms: int
    downsample: Statistic
    granularity_ms: int
    aggregator: Statistic
    tags: tuple[tuple[str, tuple[str, ...]], ...] = ()


class MetricJson(msgspec.Struct, frozen=True):
    """The whole document."""

    span: TimeRange
    limit: LineLimit | None
    queries: tuple[MetricRequest, ...]


def read(text: str, prefix: str, names: Mapping[str, str], now_ms: int) -> MetricJson:
    """The questions of a ``metricJson``. ``prefix`` may stand before each of ``names``.

    Raises InvalidRequestError naming what is wrong, LimitExceededError where too many points are requested.
    """
    given = json_object(text, FIELD, FIELD)
    queries = given.get("queries")
    if queries is None or queries == []:
        raise missing(f"{FIELD}.queries")
    if not isinstance(queries, list) or not all(isinstance(query, dict) for query in queries):
        raise _wrong("queries", "is not an array of objects")
    if len(queries) > MAX_QUERIES:
        raise LimitExceededError(f"{FIELD}.queries has {len(queries)} members, {MAX_QUERIES} are taken", "queries")
    span = _span(given, now_ms)
    requests = tuple(_query(query, f"queries[{at}]", prefix, names) for at, query in enumerate(queries))
    _check_points(span, requests)
    return MetricJson(span, _limit(given.get("limit")), requests)


def _span(given: Mapping[str, Any], now_ms: int) -> TimeRange:
    if given.get("start") in (None, ""):
        raise missing(f"{FIELD}.start")
    start = _time(given["start"], "start")
    end = now_ms if given.get("end") in (None, "") else _time(given["end"], "end")
    if end < start:
        raise _wrong("end", "is earlier than start")
    # As in OpenTSDB, a point at the end itself belongs to the answer.
    return TimeRange(start, min(end + 1, MAX_TIME_MS))


def _time(value: object, name: str) -> int:
    text = str(value) if isinstance(value, int | str) else ""
    if not _TIME.fullmatch(text) or int(text) > MAX_TIME_MS:
        raise _wrong(name, f"{str(value)[:32]!r} is not a time before 2100 in milliseconds (13 digits)")
    return int(text)


def _query(query: Mapping[str, Any], where: str, prefix: str, names: Mapping[str, str]) -> MetricRequest:
    metric = query.get("metric")
    if not metric:
        raise missing(f"{FIELD}.{where}.metric")
    for name in _UNSUPPORTED:
        if query.get(name):
            raise _wrong(f"{where}.{name}", "is not taken here")
    granularity = _step(query.get("granularity"), f"{where}.granularity")
    downsample_ms, downsample = _downsample(query.get("downsample"), f"{where}.downsample")
    downsample_ms = downsample_ms or granularity or DEFAULT_STEP_MS
    return MetricRequest(
        metric=str(metric),
        name=_name(str(metric), where, prefix, names),
        downsample_ms=downsample_ms,
        downsample=downsample,
        granularity_ms=granularity or downsample_ms,
        aggregator=_function(query.get("aggregator") or "avg", f"{where}.aggregator"),
        tags=_tags(query.get("tags") or {}, f"{where}.tags"),
    )


def _name(metric: str, where: str, prefix: str, names: Mapping[str, str]) -> str:
    name = metric.removeprefix(prefix)
    if name in names:
        return name
    if name == metric and metric.startswith(f"{prefix.partition('.')[0]}."):
        raise _wrong(f"{where}.metric", f"{metric[:200]!r} does not begin with {prefix!r}, which this path names")
    names_text = f"one of {', '.join(names)}" if len(names) <= MOST_NAMED else "the name of a metric that is known here"
    raise _wrong(f"{where}.metric", f"{name[:200]!r} is not {names_text}")


def _downsample(value: object, where: str) -> tuple[int, Statistic]:
    """The interval (0 where it names none, as in ``avg``) and the function of ``20s-avg``."""
    if value in (None, ""):
        return 0, Statistic.MEAN
    parts = str(value).split("-")
    if len(parts) == 3 and parts[2] == "none":
        parts.pop()
    if len(parts) > 2:
        raise _wrong(where, f"{str(value)[:64]!r} is not of the form 20s-avg")
    return (_step(parts[0], where) if len(parts) == 2 else 0), _function(parts[-1], where)


def _step(value: object, where: str) -> int:
    """Milliseconds of ``20s``; a bare number counts seconds. 0 for none."""
    if value in (None, ""):
        return 0
    found = _STEP.fullmatch(str(value))
    step = int(found[1]) * _STEP_UNITS[found[2]] if found else 0
    # Points are named by whole seconds.
    if not 0 < step <= MAX_TIME_MS or step % SECOND:
        raise _wrong(where, f"{str(value)[:64]!r} is not a whole number of seconds such as 20s, or of m, h, d or w")
    return step


def _function(value: object, where: str) -> Statistic:
    function = FUNCTIONS.get(str(value).lower())
    if function is None:
        raise _wrong(where, f"{str(value)[:64]!r} is not one of {', '.join(FUNCTIONS)}")
    return function


def _tags(value: object, where: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not isinstance(value, dict) or not all(isinstance(part, str) and part for part in value.values()):
        raise _wrong(where, "is not an object of texts")
    return tuple((name, () if part == "*" else tuple(part.split("|"))) for name, part in value.items())


def _limit(value: object) -> LineLimit | None:
    if value in (None, ""):
        return None
    found = _LIMIT.fullmatch(str(value))
    if found is None or not int(found[3]):
        form = "(max|avg|min):(bottom|above|sample):(a number above 0)"
        raise _wrong("limit", f"{str(value)[:64]!r} is not of the form {form}")
    return LineLimit(found[1], Take(found[2]), int(found[3]))


def _check_points(span: TimeRange, queries: tuple[MetricRequest, ...]) -> None:
    points = sum(bucket_count(span, query.downsample_ms) for query in queries)
    if points > MAX_POINTS:
        raise LimitExceededError(
            f"{FIELD} asks for {points} points, {MAX_POINTS} are answered: take a longer granularity (and downsample),"
            " a shorter range or fewer queries",
            "granularity",
        )


def _wrong(name: str, problem: str) -> InvalidRequestError:
    field = f"{FIELD}.{name}"
    return InvalidRequestError(f"{field} {problem}", field)
