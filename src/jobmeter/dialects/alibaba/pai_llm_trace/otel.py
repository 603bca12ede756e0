"""Traces in the vendor's two forms: its own short one, and OpenTelemetry's ``TracesData`` in JSON."""

from collections.abc import Mapping, Sequence
from typing import Any

from jobmeter.model.span import KINDS, STATUSES, Attributes, Span


def describe_trace(spans: Sequence[Span]) -> dict[str, Any]:
    """Return a trace with its spans, attributes as plain JSON."""
    return {"traceId": spans[0].trace, "spans": [_describe_span(span) for span in spans]}


def _describe_span(span: Span) -> dict[str, Any]:
    return {
        "traceId": span.trace,
        "spanId": span.span,
        "parentSpanId": span.parent or "0",
        "spanName": span.name,
        "kind": span.kind.upper(),
        "startTime": span.start_ns,
        "endTime": span.end_ns,
        "duration": span.end_ns - span.start_ns,
        "statusCode": span.status.upper(),
        "statusMessage": span.message,
        "serviceName": span.service,
        "attributes": span.attributes,
        "resources": span.resource,
        "events": [{"time": one.time_ns, "name": one.name, "attributes": one.attributes} for one in span.events],
        "links": [{"traceId": one.trace, "spanId": one.span, "attributes": one.attributes} for one in span.links],
    }


def convert_trace(spans: Sequence[Span]) -> dict[str, Any]:
    """Return a trace as ``google.protobuf.json_format`` reads ``TracesData``: with bytes in base64."""
    return {"resourceSpans": [_describe_resource(span) for span in spans]}


def _describe_resource(span: Span) -> dict[str, Any]:
    scope = {"name": span.scope.name, "version": span.scope.version, "attributes": _pairs(span.scope.attributes)}
    return {
        "resource": {"attributes": _pairs(span.resource)},
        "scopeSpans": [{"scope": scope, "spans": [_compatible(span)]}],
    }


def _compatible(span: Span) -> dict[str, Any]:
    attributes, events, links = span.dropped
    return {
        "traceId": bytes.fromhex(span.trace),
        "spanId": bytes.fromhex(span.span),
        "parentSpanId": bytes.fromhex(span.parent),
        "traceState": span.state,
        "flags": span.flags,
        "name": span.name,
        "kind": KINDS.index(span.kind),
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(span.end_ns),
        "attributes": _pairs(span.attributes),
        "droppedAttributesCount": attributes,
        "droppedEventsCount": events,
        "droppedLinksCount": links,
        "events": [
            {
                "timeUnixNano": str(one.time_ns),
                "name": one.name,
                "attributes": _pairs(one.attributes),
                "droppedAttributesCount": one.dropped,
            }
            for one in span.events
        ],
        "links": [
            {
                "traceId": bytes.fromhex(one.trace),
                "spanId": bytes.fromhex(one.span),
                "traceState": one.state,
                "attributes": _pairs(one.attributes),
                "droppedAttributesCount": one.dropped,
                "flags": one.flags,
            }
            for one in span.links
        ],
        "status": {"message": span.message, "code": STATUSES.index(span.status)},
    }


def _pairs(attributes: Attributes) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any value of JSON
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
        case list():
            return {"arrayValue": {"values": [_value(one) for one in value]}}
        case dict():
            return {"kvlistValue": {"values": _pairs(value)}}
        case _:
            return {}


def drop_embeddings(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes without the contents of embedding vectors."""
    return {key: _empty_value(value) if "embedding" in key.lower() else value for key, value in attributes.items()}


def _empty_value(value: Any) -> Any:  # noqa: ANN401 - any value of JSON
    if isinstance(value, list):
        return []
    return "[]" if isinstance(value, str) and value.lstrip().startswith("[") else value
