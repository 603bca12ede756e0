"""Reads ``ExportTraceServiceRequest`` in protocol buffers to spans.

https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/trace/v1/trace.proto
"""

from typing import TypeVar

from jobmeter.model.span import KINDS, STATUSES, Attributes, Span, SpanEvent, SpanLink, SpanScope
from jobmeter.wire.otlp.telemetry import Sent, TelemetryFields, TelemetryRefusedError, check_many, collect, list_scopes

T = TypeVar("T")

_TRACE, _SPAN, _STATE, _PARENT, _NAME, _KIND = 0x0A, 0x12, 0x1A, 0x22, 0x2A, 0x30
_START, _END, _ATTRIBUTES, _DROPPED = 0x39, 0x41, 0x4A, 0x50
_EVENTS, _DROPPED_EVENTS, _LINKS, _DROPPED_LINKS, _STATUS, _FLAGS = 0x5A, 0x60, 0x6A, 0x70, 0x7A, 0x85
_STATUS_MESSAGE, _STATUS_CODE = 0x12, 0x18
_EVENT_TIME, _EVENT_NAME, _EVENT_ATTRIBUTES, _EVENT_DROPPED = 0x09, 0x12, 0x1A, 0x20
_LINK_STATE, _LINK_ATTRIBUTES, _LINK_DROPPED, _LINK_FLAGS = 0x1A, 0x22, 0x28, 0x35
_TRACE_BYTES, _SPAN_BYTES = 16, 8


def decode(data: bytes, most: int) -> Sent[Span]:
    """Return the spans of a request, at most ``most``. Later steps find job, replica and service.

    Raises InvalidRequestError (field ``body``) for any other message, LimitExceededError for too much content.
    """
    sent: Sent[Span] = Sent(most)
    return collect(sent, list_scopes(data, sent), parse_span, repeated=True)


def parse_span(data: bytes, resource: Attributes, scope: SpanScope) -> Span:
    """Parse the message of a span. Raises TelemetryRefusedError."""
    found = TelemetryFields(data)
    status, events, links = (
        TelemetryFields(found.read_message(_STATUS)),
        found.read_messages(_EVENTS),
        found.read_messages(_LINKS),
    )
    check_many(max(len(events), len(links)))
    parent = found.read_content(_PARENT)
    return Span(
        trace=_id(found.read_content(_TRACE), _TRACE_BYTES),
        span=_id(found.read_content(_SPAN), _SPAN_BYTES),
        parent=_id(parent, _SPAN_BYTES) if any(parent) else "",
        name=found.read_text(_NAME),
        kind=_choose_member(KINDS, found.count(_KIND)),
        start_ns=found.read_fixed(_START),
        end_ns=found.read_fixed(_END),
        status=_choose_member(STATUSES, status.count(_STATUS_CODE)),
        message=status.read_text(_STATUS_MESSAGE),
        attributes=found.read_attributes(_ATTRIBUTES),
        resource=resource,
        scope=scope,
        events=tuple(_event(TelemetryFields(one)) for one in events),
        links=tuple(_link(TelemetryFields(one)) for one in links),
        state=found.read_text(_STATE),
        flags=found.read_fixed(_FLAGS),
        dropped=(found.count(_DROPPED), found.count(_DROPPED_EVENTS), found.count(_DROPPED_LINKS)),
    )


def _event(found: TelemetryFields) -> SpanEvent:
    return SpanEvent(
        time_ns=found.read_fixed(_EVENT_TIME),
        name=found.read_text(_EVENT_NAME),
        attributes=found.read_attributes(_EVENT_ATTRIBUTES),
        dropped=found.count(_EVENT_DROPPED),
    )


def _link(found: TelemetryFields) -> SpanLink:
    return SpanLink(
        trace=_id(found.read_content(_TRACE), _TRACE_BYTES),
        span=_id(found.read_content(_SPAN), _SPAN_BYTES),
        state=found.read_text(_LINK_STATE),
        attributes=found.read_attributes(_LINK_ATTRIBUTES),
        flags=found.read_fixed(_LINK_FLAGS),
        dropped=found.count(_LINK_DROPPED),
    )


def _id(raw: bytes, size: int) -> str:
    """Return an id in hexadecimal digits. Raises TelemetryRefusedError for another length, or for zeros alone."""
    if len(raw) != size or not any(raw):
        raise TelemetryRefusedError("id")
    return raw.hex()


def _choose_member(values: tuple[T, ...], number: int) -> T:
    """Return the member of an enumeration; an unknown number gives the first one, which means unspecified."""
    return values[number] if 0 <= number < len(values) else values[0]
