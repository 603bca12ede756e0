"""Builds OTLP messages with the classes generated from the published schema."""

import base64
import json
from collections.abc import Sequence
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as service
from opentelemetry.proto.metrics.v1 import metrics_pb2 as metrics

PROTOBUF = {"Content-Type": "application/x-protobuf"}
JSON = {"Content-Type": "application/json"}
Request = service.ExportMetricsServiceRequest
Response = service.ExportMetricsServiceResponse
CUMULATIVE, DELTA = 2, 1


def as_json(message: Any) -> bytes:
    """Convert a message to OTLP's JSON, in which enumerations are numbers."""
    text: str = json_format.MessageToJson(message, use_integers_for_enums=True, indent=None)
    return text.encode()


def fill(attributes: Any, values: dict[str, Any]) -> None:
    for key, value in values.items():
        pair = attributes.add()
        pair.key = key
        fill_value(pair.value, value)


def fill_value(into: Any, value: Any) -> None:
    match value:
        case bool():
            into.bool_value = value
        case int():
            into.int_value = value
        case float():
            into.double_value = value
        case str():
            into.string_value = value
        case bytes():
            into.bytes_value = value
        case list():
            into.array_value.SetInParent()
            for part in value:
                fill_value(into.array_value.values.add(), part)
        case dict():
            into.kvlist_value.SetInParent()
            fill(into.kvlist_value.values, value)
        case _:
            raise TypeError(value)


def metric(name: str, kind: str = "gauge", unit: str = "", **more: Any) -> Any:
    """Return a metric without data points. ``sum`` and ``histogram`` are cumulative; a sum is monotonic."""
    made = metrics.Metric(name=name, unit=unit)
    data = getattr(made, kind)
    data.SetInParent()
    if kind in {"sum", "histogram", "exponential_histogram"}:
        data.aggregation_temporality = more.get("temporality", CUMULATIVE)
    if kind == "sum":
        data.is_monotonic = more.get("monotonic", True)
    return made


def add(made: Any, time_ns: int, value: Any, flags: int = 0, **attributes: Any) -> Any:
    """Add a data point of a gauge or a sum. Underscores in attribute names become dots."""
    data = made.gauge if made.WhichOneof("data") == "gauge" else made.sum
    point = data.data_points.add(time_unix_nano=time_ns, start_time_unix_nano=1, flags=flags)
    if isinstance(value, int):
        point.as_int = value
    elif value is not None:
        point.as_double = value
    fill(point.attributes, {name.replace("_", "."): one for name, one in attributes.items()})
    return made


def request(resource: dict[str, Any], *made: Any, scope: str = "") -> Any:
    message = Request()
    part = message.resource_metrics.add()
    fill(part.resource.attributes, resource)
    scoped = part.scope_metrics.add()
    scoped.scope.name = scope
    scoped.metrics.extend(made)
    return message


def points_of(message: Any) -> Sequence[Any]:
    """Return every (resource, scope, metric, data point)."""
    return [
        (part.resource, scoped.scope, one, point)
        for part in message.resource_metrics
        for scoped in part.scope_metrics
        for one in scoped.metrics
        if one.WhichOneof("data")
        for point in getattr(one, one.WhichOneof("data")).data_points
    ]


def as_ids(message: Any) -> bytes:
    """Return a request of spans or log records in OTLP's JSON, which has hexadecimal ids instead of base64."""
    found = json.loads(as_json(message))
    _in_digits(found)
    return json.dumps(found).encode()


def _in_digits(part: Any) -> None:
    if isinstance(part, list):
        for one in part:
            _in_digits(one)
    elif isinstance(part, dict):
        for name, value in part.items():
            if name in {"traceId", "spanId", "parentSpanId"} and isinstance(value, str):
                part[name] = base64.b64decode(value).hex()
            elif name not in {"attributes", "body"}:
                _in_digits(value)
