"""Reads the numbers of ``ExportMetricsServiceRequest`` one by one, in JSON or protocol buffers.

For agents, which have neither numpy nor the compiled kernel; the server reads columns (``wire.otlp.protobuf``).
https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/metrics/v1/metrics.proto
"""

import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.wire.otlp.values import convert_text, decode_text, parse_attributes
from jobmeter.wire.protobuf import iterate_fields, make_damage_error, read_varint

MOST_POINTS = 10_000
"""Most data points of a request."""
MOST_OBJECTS = 200_000
CUMULATIVE, _NO_VALUE = 2, 1
_UNSIGNED, _SIGNED, _DOUBLE = struct.Struct("<Q"), struct.Struct("<q"), struct.Struct("<d")
_FIRST, _SECOND, _NAME = 0x0A, 0x12, 0x0A
_GAUGE, _SUM, _HISTOGRAM, _OTHERS = 0x2A, 0x3A, 0x4A, frozenset({0x52, 0x5A})
_TEMPORALITY, _TIME, _AS_DOUBLE, _AS_INT, _FLAGS, _ATTRIBUTES = 0x10, 0x19, 0x21, 0x31, 0x40, 0x3A
_COUNT, _TOTAL, _HISTOGRAM_ATTRIBUTES, _HISTOGRAM_FLAGS = 0x21, 0x29, 0x4A, 0x50


class MetricNumber(NamedTuple):
    """Number of a data point. A histogram has two: ``NAME_count`` and ``NAME_sum``."""

    name: str
    time_ns: int
    value: float
    attributes: Mapping[str, str]


class MetricNumbers(NamedTuple):
    """Numbers of a request, and the count of data points that cannot be stored: deltas, summaries, no value."""

    numbers: list[MetricNumber]
    refused: int


def decode(data: bytes, *, json: bool) -> MetricNumbers:
    """Return the numbers of a request.

    Raises InvalidRequestError (field ``body``) for another message, LimitExceededError for too many data points.
    """
    if json and data.count(b"{") > MOST_OBJECTS:
        raise LimitExceededError(f"a request may have at most {MOST_OBJECTS} objects of JSON", "body")
    found, refused = list[MetricNumber](), 0
    for one in _read_json(data) if json else _read_protobuf(data):
        if one is None:
            refused += 1
        else:
            found.append(one)
        if len(found) + refused > MOST_POINTS:
            raise LimitExceededError(f"a request may have at most {MOST_POINTS} data points", "body")
    return MetricNumbers(found, refused)


def _read_protobuf(data: bytes) -> Iterator[MetricNumber | None]:
    for resource in _parts(data, 0, len(data), _FIRST):
        for scope in _parts(data, *resource, _SECOND):
            for metric in _parts(data, *scope, _SECOND):
                yield from _metric(data, *metric)


def _parts(data: bytes, at: int, end: int, wanted: int) -> Iterator[tuple[int, int]]:
    return ((content, stop) for tag, _, content, stop in iterate_fields(data, at, end) if tag == wanted)


def _metric(data: bytes, at: int, end: int) -> Iterator[MetricNumber | None]:
    name, bodies = "", []
    for tag, _, content, stop in iterate_fields(data, at, end):
        if tag == _NAME:
            name = decode_text(data[content:stop], "body")
        elif tag in {_GAUGE, _SUM, _HISTOGRAM} or tag in _OTHERS:
            bodies.append((tag, content, stop))
    for kind, content, stop in bodies:
        temporality = [read_varint(data, at, end)[0] for at, end in _parts(data, content, stop, _TEMPORALITY)]
        storable = kind == _GAUGE or (kind in {_SUM, _HISTOGRAM} and temporality[-1:] == [CUMULATIVE])
        for point in _parts(data, content, stop, _FIRST):
            if not storable:
                yield None
            elif kind == _HISTOGRAM:
                yield from _histogram(name, data[slice(*point)])
            else:
                yield _number(name, data[slice(*point)])


def _number(name: str, point: bytes) -> MetricNumber | None:
    time_ns = flags = 0
    value: float | None = None
    for tag, _, content, stop in iterate_fields(point, 0, len(point)):
        if tag == _TIME:
            (time_ns,) = _UNSIGNED.unpack_from(point, content)
        elif tag == _AS_DOUBLE:
            (value,) = _DOUBLE.unpack_from(point, content)
        elif tag == _AS_INT:
            value = float(_SIGNED.unpack_from(point, content)[0])
        elif tag == _FLAGS:
            flags, _ = read_varint(point, content, stop)
    if value is None or flags & _NO_VALUE:
        return None
    return MetricNumber(name, time_ns, value, parse_attributes(point, _ATTRIBUTES))


def _histogram(name: str, point: bytes) -> Iterator[MetricNumber | None]:
    time_ns = count = flags = 0
    total: float | None = None
    for tag, _, content, stop in iterate_fields(point, 0, len(point)):
        if tag == _TIME:
            (time_ns,) = _UNSIGNED.unpack_from(point, content)
        elif tag == _COUNT:
            (count,) = _UNSIGNED.unpack_from(point, content)
        elif tag == _TOTAL:
            (total,) = _DOUBLE.unpack_from(point, content)
        elif tag == _HISTOGRAM_FLAGS:
            flags, _ = read_varint(point, content, stop)
    if flags & _NO_VALUE:
        yield None
        return
    own = parse_attributes(point, _HISTOGRAM_ATTRIBUTES)
    yield MetricNumber(f"{name}_count", time_ns, float(count), own)
    if total is not None:
        yield MetricNumber(f"{name}_sum", time_ns, total, own)


def _read_json(data: bytes) -> Iterator[MetricNumber | None]:
    try:
        request = msgspec.json.decode(data)
        for resource in request.get("resourceMetrics") or ():
            for scope in resource.get("scopeMetrics") or ():
                for metric in scope.get("metrics") or ():
                    yield from _metric_of_json(metric)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"the body is not the message that Content-Type says: {error}", "body") from error
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise make_damage_error("a field has another type") from error


def _metric_of_json(metric: dict[str, Any]) -> Iterator[MetricNumber | None]:
    name = str(metric.get("name") or "")
    for kind in ("gauge", "sum", "histogram", "exponentialHistogram", "summary"):
        body = metric.get(kind)
        if body is None:
            continue
        temporality = body.get("aggregationTemporality")
        cumulative = temporality in {CUMULATIVE, "AGGREGATION_TEMPORALITY_CUMULATIVE"}
        for point in body.get("dataPoints") or ():
            time_ns, own = int(point.get("timeUnixNano") or 0), _attributes_of_json(point)
            value = point.get("asDouble", point.get("asInt"))
            if int(point.get("flags") or 0) & _NO_VALUE:
                yield None
            elif kind == "histogram" and cumulative:
                yield MetricNumber(f"{name}_count", time_ns, float(point.get("count") or 0), own)
                if (total := point.get("sum")) is not None:
                    yield MetricNumber(f"{name}_sum", time_ns, float(total), own)
            elif value is not None and (kind == "gauge" or (kind == "sum" and cumulative)):
                yield MetricNumber(name, time_ns, float(value), own)
            else:
                yield None


def _attributes_of_json(point: dict[str, Any]) -> dict[str, str]:
    found = {}
    for pair in (point.get("attributes") or ())[:128]:
        value = next(iter((pair.get("value") or {"": None}).values()), None)
        found[str(pair.get("key") or "")] = convert_text(value)
    return {key: text for key, text in found.items() if text}
