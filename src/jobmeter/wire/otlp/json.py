"""``ExportMetricsServiceRequest`` in JSON to columns.

Names of fields are in lowerCamelCase, numbers of 64 bits texts or numbers.

https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding

Attributes are written as protocol buffers, so that a series has one key whichever encoding its samples come in.
"""

from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.wire.otlp import metric, values
from jobmeter.wire.otlp.metric import Named, Point
from jobmeter.wire.otlp.shapes import Shapes
from jobmeter.wire.otlp.written import ATTRIBUTES, Builder, Header, Kind, Owner, Written, check_signed, check_unsigned

_ATTRIBUTE, _NAME, _VERSION, _SCOPE_ATTRIBUTE = 0x0A, 0x0A, 0x12, 0x1A


class _Part(msgspec.Struct, rename="camel", gc=False):
    """Unknown fields are ignored; ``null`` counts as absent."""


class AnyValue(_Part):
    """The value of an attribute: one of these."""

    string_value: str | None = None
    bool_value: bool | None = None
    int_value: int | None = None
    double_value: float | None = None
    array_value: "Values | None" = None
    kvlist_value: "KeyValues | None" = None
    bytes_value: bytes | None = None


class Values(_Part):
    """A list of values."""

    values: list[AnyValue] | None = None


class KeyValue(_Part):
    """An attribute."""

    key: str | None = None
    value: AnyValue | None = None


class KeyValues(_Part):
    """A map of values."""

    values: list[KeyValue] | None = None


class Attributed(_Part):
    """What has attributes: a resource."""

    attributes: list[KeyValue] | None = None


class Scope(Attributed):
    """An instrumentation scope."""

    name: str | None = None
    version: str | None = None


class DataPoint(Attributed):
    """The common fields of data points."""

    time_unix_nano: int | None = None
    flags: int | None = None


class NumberPoint(DataPoint):
    """A data point of a gauge or a sum."""

    as_double: float | None = None
    as_int: int | None = None


class HistogramPoint(DataPoint):
    """A data point of a histogram."""

    count: int | None = None
    sum: float | None = None
    bucket_counts: list[int] | None = None
    explicit_bounds: list[float] | None = None


class Quantile(_Part):
    """A quantile of a summary."""

    quantile: float | None = None
    value: float | None = None


class SummaryPoint(DataPoint):
    """A data point of a summary."""

    count: int | None = None
    sum: float | None = None
    quantile_values: list[Quantile] | None = None


P = TypeVar("P")


class Points(_Part, Generic[P]):
    """The data points of a metric."""

    data_points: list[P] | None = None
    aggregation_temporality: int | None = None
    is_monotonic: bool | None = None


class Metric(_Part):
    """A metric: one of its kinds."""

    name: str | None = None
    unit: str | None = None
    gauge: Points[NumberPoint] | None = None
    sum: Points[NumberPoint] | None = None
    histogram: Points[HistogramPoint] | None = None
    exponential_histogram: Points[DataPoint] | None = None
    summary: Points[SummaryPoint] | None = None


class ScopeMetrics(_Part):
    """The metrics of a scope."""

    scope: Scope | None = None
    metrics: list[Metric] | None = None


class ResourceMetrics(_Part):
    """The metrics of a resource."""

    resource: Attributed | None = None
    scope_metrics: list[ScopeMetrics] | None = None


class Request(_Part):
    """The whole of a request."""

    resource_metrics: list[ResourceMetrics] | None = None


_MOST_BYTES = 64 * 2**20
MOST_OBJECTS = 2_000_000
# Numbers may be texts ("1767225600000000000", "NaN"), as the JSON of protocol buffers has them.
_DECODER = msgspec.json.Decoder(Request, strict=False)


def decode(data: bytes, shapes: Shapes | None = None) -> Written:
    """The columns of a request. Raises as ``jobmeter.wire.otlp.protobuf.decode``."""
    # The decoded objects take much more memory than the text.
    if len(data) > _MOST_BYTES or data.count(b"{") > MOST_OBJECTS:
        raise LimitExceededError(f"a request may have {_MOST_BYTES} bytes and {MOST_OBJECTS} objects of JSON", "body")
    try:
        request = _DECODER.decode(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"the body is not the message that Content-Type says: {error}", "body") from error
    into = Builder(numbers=None if shapes is None else shapes.numbers)
    for part in request.resource_metrics or ():
        resource = b"".join(_fields(part.resource, _ATTRIBUTE))
        number = into.resource(resource)
        for scoped in part.scope_metrics or ():
            into.count()
            owner = into.owner(number, resource, _scope(scoped.scope))
            for one in scoped.metrics or ():
                into.count()
                _metric(into, owner, one)
    return into.written()


def _metric(into: Builder, owner: Owner, one: Metric) -> None:
    named = Named(owner, values.encode_text(one.name, "body"), values.encode_text(one.unit, "body"))
    if one.gauge is not None:
        _numbers(into, named.header(into, Kind.GAUGE), _counted(into, one.gauge))
    elif one.sum is not None:
        points = _summed(into, one.sum)
        _numbers(into, named.header(into, Kind.COUNTER if one.sum.is_monotonic else Kind.GAUGE), points)
    elif one.histogram is not None:
        for point in _summed(into, one.histogram):
            counts = [check_unsigned(count, "bucketCounts") for count in point.bucket_counts or ()]
            bounds = point.explicit_bounds or ()
            metric.histogram(into, named, _point(point, point.count, point.sum), counts, bounds)
    elif one.exponential_histogram is not None:
        into.refuse("exponential-histogram", len(_counted(into, one.exponential_histogram)))
    elif one.summary is not None:
        for each in _counted(into, one.summary):
            quantiles = [(at.quantile or 0.0, at.value or 0.0) for at in each.quantile_values or ()]
            metric.summary(into, named, _point(each, each.count, each.sum), quantiles)


def _counted(into: Builder, points: Points[P]) -> list[P]:
    found = points.data_points or []
    into.count(len(found))
    return found


def _summed(into: Builder, points: Points[P]) -> list[P]:
    """The data points, unless they are refused for their temporality."""
    found = _counted(into, points)
    reason = metric.refusal(points.aggregation_temporality or 0)
    if reason:
        into.refuse(reason, len(found))
        return []
    return found


def _numbers(into: Builder, header: Header, points: Sequence[NumberPoint]) -> None:
    for point in points:
        value = point.as_double
        if point.as_int is not None:
            value = float(check_signed(point.as_int, "asInt"))
        metric.number(into, header, _own(point), _time(point), point.flags or 0, value)


def _point(point: DataPoint, count: int | None, total: float | None) -> Point:
    return Point(_own(point), _time(point), point.flags or 0, check_unsigned(count or 0, "count"), total)


def _time(point: DataPoint) -> int:
    return check_unsigned(point.time_unix_nano or 0, "timeUnixNano")


def _own(point: DataPoint) -> bytes:
    return b"".join(_fields(point, ATTRIBUTES)) if point.attributes else b""


def _scope(scope: Scope | None) -> bytes:
    if scope is None:
        return b""
    texts = ((_NAME, scope.name), (_VERSION, scope.version))
    named = [values.part(tag, values.encode_text(text, "body")) for tag, text in texts if text]
    return b"".join([*named, *_fields(scope, _SCOPE_ATTRIBUTE)])


def _fields(of: Attributed | None, tag: int) -> list[bytes]:
    pairs = of.attributes or () if of is not None else ()
    return [values.part(tag, values.encode_pair(pair.key or "", _value(pair.value))) for pair in pairs]


def _value(value: AnyValue | None) -> bytes:
    """The content of an AnyValue."""
    if value is None:
        return b""
    if value.string_value is not None:
        return values.encode_string(value.string_value)
    if value.array_value is not None:
        return values.encode_array([_value(one) for one in value.array_value.values or ()])
    if value.kvlist_value is not None:
        return values.encode_map({one.key or "": _value(one.value) for one in value.kvlist_value.values or ()})
    return _plain(value)


def _plain(value: AnyValue) -> bytes:
    if value.int_value is not None:
        return values.encode_int(value.int_value)
    if value.bool_value is not None:
        return values.encode_bool(value.bool_value)
    if value.double_value is not None:
        return values.encode_float(value.double_value)
    return values.encode_bytes(value.bytes_value) if value.bytes_value is not None else b""
