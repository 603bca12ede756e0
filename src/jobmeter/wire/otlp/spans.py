"""``ExportTraceServiceRequest`` in protocol buffers to spans.

https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/trace/v1/trace.proto
"""

from typing import TypeVar

from jobmeter.model.span import KINDS, STATUSES, Attributes, Span, SpanEvent, SpanLink, SpanScope
from jobmeter.wire.otlp.telemetry import (
    Sent,
    attributes,
    by_tag,
    check_many,
    collect,
    count32,
    fixed,
    identifier,
    merged,
    scopes,
    text,
    whole,
)

T = TypeVar("T")

_TRACE, _SPAN, _STATE, _PARENT, _NAME, _KIND = 0x0A, 0x12, 0x1A, 0x22, 0x2A, 0x30
_START, _END, _ATTRIBUTES, _DROPPED = 0x39, 0x41, 0x4A, 0x50
_EVENTS, _DROPPED_EVENTS, _LINKS, _DROPPED_LINKS, _STATUS, _FLAGS = 0x5A, 0x60, 0x6A, 0x70, 0x7A, 0x85
_STATUS_MESSAGE, _STATUS_CODE = 0x12, 0x18
_EVENT_TIME, _EVENT_NAME, _EVENT_ATTRIBUTES, _EVENT_DROPPED = 0x09, 0x12, 0x1A, 0x20
_LINK_STATE, _LINK_ATTRIBUTES, _LINK_DROPPED, _LINK_FLAGS = 0x1A, 0x22, 0x28, 0x35
_TRACE_DIGITS, _SPAN_DIGITS = 32, 16


def decode(data: bytes, most: int) -> Sent[Span]:
    """The spans of a request, at most ``most``; job, replica and service are found later.

    Raises InvalidRequestError (field ``body``) for what is no such message, LimitExceededError for too much of it.
    """
    sent: Sent[Span] = Sent(most)
    return collect(sent, scopes(data, sent), span, repeated=True)


def span(data: bytes, resource: Attributes, scope: SpanScope) -> Span:
    """A span of its message. Raises RefusedError."""
    found = by_tag(data)
    status = merged(data, found.get(_STATUS, [(0, 0)]))
    ended = by_tag(status)
    events, links = found.get(_EVENTS, ()), found.get(_LINKS, ())
    check_many(max(len(events), len(links)))
    return Span(
        trace=identifier(_hex(data, found, _TRACE), _TRACE_DIGITS),
        span=identifier(_hex(data, found, _SPAN), _SPAN_DIGITS),
        parent=identifier(_hex(data, found, _PARENT), _SPAN_DIGITS, empty=True),
        name=text(data, found, _NAME),
        kind=_one_of(KINDS, count32(whole(data, found, _KIND))),
        start_ns=fixed(data, found, _START),
        end_ns=fixed(data, found, _END),
        status=_one_of(STATUSES, count32(whole(status, ended, _STATUS_CODE))),
        message=text(status, ended, _STATUS_MESSAGE),
        attributes=attributes(data, found.get(_ATTRIBUTES, ())),
        resource=resource,
        scope=scope,
        events=tuple(_event(data, *place) for place in events),
        links=tuple(_link(data, *place) for place in links),
        state=text(data, found, _STATE),
        flags=fixed(data, found, _FLAGS),
        dropped=(
            count32(whole(data, found, _DROPPED)),
            count32(whole(data, found, _DROPPED_EVENTS)),
            count32(whole(data, found, _DROPPED_LINKS)),
        ),
    )


def _event(data: bytes, at: int, end: int) -> SpanEvent:
    found = by_tag(data, at, end)
    return SpanEvent(
        time_ns=fixed(data, found, _EVENT_TIME),
        name=text(data, found, _EVENT_NAME),
        attributes=attributes(data, found.get(_EVENT_ATTRIBUTES, ())),
        dropped=count32(whole(data, found, _EVENT_DROPPED)),
    )


def _link(data: bytes, at: int, end: int) -> SpanLink:
    found = by_tag(data, at, end)
    return SpanLink(
        trace=identifier(_hex(data, found, _TRACE), _TRACE_DIGITS),
        span=identifier(_hex(data, found, _SPAN), _SPAN_DIGITS),
        state=text(data, found, _LINK_STATE),
        attributes=attributes(data, found.get(_LINK_ATTRIBUTES, ())),
        flags=fixed(data, found, _LINK_FLAGS),
        dropped=count32(whole(data, found, _LINK_DROPPED)),
    )


def _hex(data: bytes, found: dict[int, list[tuple[int, int]]], tag: int) -> str:
    if tag not in found:
        return ""
    at, end = found[tag][-1]
    return data[at : min(end, at + 17)].hex()


def _one_of(values: tuple[T, ...], number: int) -> T:
    """The member of an enumeration; the first one, which means unspecified, for an unknown number."""
    return values[number] if 0 <= number < len(values) else values[0]
