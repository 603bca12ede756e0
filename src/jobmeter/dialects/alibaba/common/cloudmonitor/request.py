"""Reads the parameters of a call, and writes the token of the next page."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as EncodingError
from hashlib import blake2b
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from jobmeter.dialects.alibaba.common.cloudmonitor.dimensions import FIELD, Resource, read
from jobmeter.dialects.alibaba.common.cloudmonitor.names import MEASURES, NAMESPACE, PERIODS, Measure
from jobmeter.dialects.alibaba.common.operation import Arguments, in_query, listed, ordered_range
from jobmeter.errors import InvalidRequestError, NotFoundError
from jobmeter.model.time import DAY, HOUR, MINUTE, SECOND, TimeRange, parse_time

LONGEST_MS = 31 * DAY
DEFAULT_PERIOD = 60
DEFAULT_LENGTH = 1000
_TOKEN_VERSION = 1
_LENGTHS = ((DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes"))

METRIC_NAME = in_query("MetricName", f"One of {listed(MEASURES)}.", required=True)
PERIOD = in_query("Period", f"Seconds: {', '.join(map(str, PERIODS))}. Default: {DEFAULT_PERIOD}.")
NEXT_TOKEN = in_query("NextToken", "The token of the previous page; the other parameters must stay the same.")


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


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A page. ``after`` is the last point of the previous page, None for the first page."""

    measure: Measure
    resources: tuple[Resource, ...]
    span: TimeRange
    period: int
    length: int
    after: PointPosition | None = None
    question: str = ""

    @property
    def period_ms(self) -> int:
        """The period in milliseconds."""
        return self.period * SECOND

    def next_token(self, place: PointPosition) -> str:
        """Return the token of the page after ``place``: a position without any permission."""
        content = _Token(_TOKEN_VERSION, self.question, self.span.start_ms, self.span.end_ms, place)
        return urlsafe_b64encode(msgspec.json.encode(content)).decode().rstrip("=")


def measure_of(arguments: Arguments) -> Measure:
    """Return the metric of Namespace and MetricName. Raises NotFoundError for an unknown one."""
    namespace = arguments.text("Namespace", NAMESPACE)
    if namespace != NAMESPACE:
        raise NotFoundError(f"Namespace {namespace[:64]!r} is not found; {NAMESPACE} is served.", "namespace")
    name = arguments.required("MetricName")
    if name not in MEASURES:
        raise NotFoundError(f"MetricName {name[:64]!r} is not found in {NAMESPACE}.", "metric")
    return MEASURES[name]


def request_of(
    arguments: Arguments,
    operation: str,
    *,
    most: int,
    length: int = DEFAULT_LENGTH,
    job: str = "",
    back_ms: int = HOUR,
    longest_ms: int = LONGEST_MS,
) -> Request:
    """Read the request of a call.

    ``length`` is the default page, ``most`` the longest one; ``back_ms`` is the default length of the range,
    ``longest_ms`` the greatest. Further pages have the range of the first one.
    """
    if arguments.text("Express"):
        raise InvalidRequestError("Express is not supported", "Express")
    request = Request(
        measure=measure_of(arguments),
        resources=read(arguments.text(FIELD), job),
        span=_span(arguments, back_ms, longest_ms),
        period=period_of(arguments),
        length=arguments.integer("Length", min(length, most), 1, most),
    )
    content = msgspec.json.encode(
        (operation, request.measure.name, request.period, [*map(msgspec.structs.astuple, request.resources)])
    )
    request = replace(request, question=blake2b(content, digest_size=8).hexdigest())
    token = arguments.text("NextToken")
    return _continued(request, token) if token else request


def _continued(request: Request, text: str) -> Request:
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


def period_of(arguments: Arguments) -> int:
    """Return the seconds of Period."""
    period = arguments.integer("Period", DEFAULT_PERIOD, 1, 10**9)
    if period not in PERIODS:
        raise InvalidRequestError(f"Period {period} is not one of {', '.join(map(str, PERIODS))} seconds", "Period")
    return period


def _span(arguments: Arguments, back_ms: int, longest_ms: int) -> TimeRange:
    start, end = (_time(arguments, name) for name in ("StartTime", "EndTime"))
    end = arguments.context.now_ms if end is None else end
    start = max(0, end - back_ms) if start is None else start
    span = ordered_range(start, end)
    if span.length_ms > longest_ms:
        longest = next(f"{longest_ms // unit} {name}" for unit, name in _LENGTHS if longest_ms % unit == 0)
        raise InvalidRequestError(f"EndTime may be at most {longest} after StartTime", "EndTime")
    return span


def _time(arguments: Arguments, name: str) -> int | None:
    text = arguments.text(name)
    return parse_time(text[:64], name) if text else None
