"""Reads the parameters of a call, and writes the token of the next page."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as EncodingError
from hashlib import blake2b
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from jobmeter.dialects.alibaba.common.cloudmonitor.dimensions import MonitoredResource, read
from jobmeter.dialects.alibaba.common.cloudmonitor.names import MEASURES, NAMESPACE, PERIODS, MonitoredMeasure
from jobmeter.dialects.alibaba.common.operation import AlibabaRequest, make_range
from jobmeter.dialects.base.request import ParameterReader, ParameterSlot, Time, list_names
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.model.time import DAY, HOUR, MINUTE, SECOND, TimeRange, parse_time

LONGEST_MS = 31 * DAY
DEFAULT_LENGTH = 1000
_TOKEN_VERSION = 1
_LENGTHS = ((DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes"))


class _PointTime(Time):
    """A time in epoch milliseconds, sent as a number of milliseconds or as a formatted time."""

    def convert(self, reader: ParameterReader, slot: ParameterSlot, value: Any) -> int:  # noqa: ANN401
        """Return epoch milliseconds."""
        return parse_time(reader.read_text(slot, value)[:64], slot.name)


POINT_TIME = _PointTime()


class PointsRequest(AlibabaRequest, frozen=True, kw_only=True):
    """A call for points of one metric."""

    namespace: Annotated[str, f"`{NAMESPACE}`."] = NAMESPACE
    metric_name: Annotated[str, f"One of {list_names(MEASURES)}."]
    dimensions: Annotated[
        str,
        "JSON text: an object, or an array of up to 50, with `jobId`, `pod`, `gpu` and `workspaceId`, "
        "empty for all; `userId` and `regionId` are returned unchanged. A `JOB_` metric of a `pod` is "
        "reported for that pod. Without a `jobId`: every job that ran in the range, if there are at most 50.",
    ] = ""
    period: Annotated[int, f"Seconds: {', '.join(map(str, PERIODS))}.", Meta(ge=1, le=10**9)] = 60
    express: Annotated[str, "Not supported: a value is refused."] = ""
    length: Annotated[int, "Most points of the answer.", Meta(ge=1)] = DEFAULT_LENGTH
    start_time: Annotated[int | None, "The start of the range.", POINT_TIME] = None
    end_time: Annotated[int | None, "The end of the range.", POINT_TIME] = None
    next_token: Annotated[str, "The token of the previous page; the other parameters must stay the same."] = ""

    def check_period(self) -> int:
        """Return the seconds of Period. Raises InvalidRequestError for any other period."""
        if self.period not in PERIODS:
            known = ", ".join(map(str, PERIODS))
            raise InvalidRequestError(f"Period {self.period} is not one of {known} seconds", "Period")
        return self.period


class PointPosition(NamedTuple):
    """The position of a point in the order of an answer."""

    time: int
    job: str
    replica: str
    device: str


class _Token(msgspec.Struct, array_like=True, frozen=True):
    version: int
    question: str
    start: int
    end: int
    place: PointPosition


class MonitoringRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A page. ``after`` is the last point of the previous page, None for the first page."""

    measure: MonitoredMeasure
    resources: tuple[MonitoredResource, ...]
    span: TimeRange
    period: int
    length: int
    after: PointPosition | None = None
    question: str = ""

    @property
    def period_ms(self) -> int:
        """The period in milliseconds."""
        return self.period * SECOND

    def make_next_token(self, place: PointPosition) -> str:
        """Return the token of the page after ``place``. The token is a position and grants no permission."""
        content = _Token(_TOKEN_VERSION, self.question, self.span.start_ms, self.span.end_ms, place)
        return urlsafe_b64encode(msgspec.json.encode(content)).decode().rstrip("=")


def _measure_of(call: PointsRequest) -> MonitoredMeasure:
    """Return the metric of Namespace and MetricName. Raises NotFoundError for an unknown one."""
    namespace, name = call.namespace, call.metric_name
    if namespace != NAMESPACE:
        raise NotFoundError(f"Namespace {namespace[:64]!r} is not found; {NAMESPACE} is served.", "namespace")
    if name not in MEASURES:
        raise NotFoundError(f"MetricName {name[:64]!r} is not found in {NAMESPACE}.", "metric")
    return MEASURES[name]


def read_request(
    call: PointsRequest, operation: str, *, job: str = "", back_ms: int = HOUR, longest_ms: int = LONGEST_MS
) -> MonitoringRequest:
    """Read the request of a call.

    ``back_ms`` is the default length of the range, ``longest_ms`` its greatest length. All pages have the range of the
    first.
    """
    if call.express:
        raise InvalidRequestError("Express is not supported", "Express")
    request = MonitoringRequest(
        measure=_measure_of(call),
        resources=read(call.dimensions, job),
        span=_span(call, back_ms, longest_ms),
        period=call.check_period(),
        length=call.length,
    )
    content = msgspec.json.encode(
        (operation, request.measure.name, request.period, [*map(msgspec.structs.astuple, request.resources)])
    )
    request = replace(request, question=blake2b(content, digest_size=8).hexdigest())
    return _continue_request(request, call.next_token) if call.next_token else request


def _continue_request(request: MonitoringRequest, text: str) -> MonitoringRequest:
    wrong = InvalidRequestError("NextToken does not come from a previous page of this query", "NextToken")
    try:
        raw = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        token = msgspec.json.decode(raw, type=_Token)
        span = TimeRange(token.start, token.end)
    except (EncodingError, UnicodeEncodeError, msgspec.DecodeError, RecursionError, InvalidRequestError) as error:
        raise wrong from error
    if token.version != _TOKEN_VERSION or token.question != request.question or span.length_ms > LONGEST_MS:
        raise wrong
    return replace(request, span=span, after=token.place)


def _span(call: PointsRequest, back_ms: int, longest_ms: int) -> TimeRange:
    end = call.context.now_ms if call.end_time is None else call.end_time
    start = max(0, end - back_ms) if call.start_time is None else call.start_time
    span = make_range(start, end)
    if span.length_ms > longest_ms:
        longest = next(f"{longest_ms // unit} {name}" for unit, name in _LENGTHS if longest_ms % unit == 0)
        raise InvalidRequestError(f"EndTime may be at most {longest} after StartTime", "EndTime")
    return span
