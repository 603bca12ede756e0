"""Spans and log records in JSON: ``jobmeter.wire.otlp.spans`` and ``records`` in their other encoding.

https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding: ids are hexadecimal digits, numbers of 64 bits texts
or numbers, enumerations numbers, bytes base64.
"""

import base64
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import msgspec

from jobmeter.errors import InvalidRequestError
from jobmeter.model.span import KINDS, STATUSES, Attributes, Span, SpanEvent, SpanLink, SpanScope
from jobmeter.wire.otlp.json import AnyValue, Attributed, KeyValue, Scope
from jobmeter.wire.otlp.records import Record
from jobmeter.wire.otlp.spans import SPAN_DIGITS, TRACE_DIGITS, one_of
from jobmeter.wire.otlp.telemetry import (
    MOST_SHARED,
    Group,
    RefusedError,
    Sent,
    check_many,
    check_size,
    count32,
    identifier,
    plain,
)
from jobmeter.wire.otlp.values import encode_text
from jobmeter.wire.otlp.written import check_signed, check_unsigned

T = TypeVar("T")
S = TypeVar("S")
_MOST_DEEP = 8


class _Part(msgspec.Struct, rename="camel", gc=False):
    """Unknown fields are ignored; ``null`` counts as absent."""


class _Event(_Part):
    time_unix_nano: int | None = None
    name: str | None = None
    attributes: list[KeyValue] | None = None
    dropped_attributes_count: int | None = None


class _Link(_Part):
    trace_id: str | None = None
    span_id: str | None = None
    trace_state: str | None = None
    attributes: list[KeyValue] | None = None
    dropped_attributes_count: int | None = None
    flags: int | None = None


class _Status(_Part):
    message: str | None = None
    code: int | None = None


class _Span(_Part):
    trace_id: str | None = None
    span_id: str | None = None
    trace_state: str | None = None
    parent_span_id: str | None = None
    name: str | None = None
    kind: int | None = None
    start_time_unix_nano: int | None = None
    end_time_unix_nano: int | None = None
    attributes: list[KeyValue] | None = None
    dropped_attributes_count: int | None = None
    events: list[_Event] | None = None
    dropped_events_count: int | None = None
    links: list[_Link] | None = None
    dropped_links_count: int | None = None
    status: _Status | None = None
    flags: int | None = None


class _Record(_Part):
    time_unix_nano: int | None = None
    observed_time_unix_nano: int | None = None
    severity_number: int | None = None
    severity_text: str | None = None
    body: AnyValue | None = None
    attributes: list[KeyValue] | None = None
    trace_id: str | None = None
    span_id: str | None = None
    event_name: str | None = None


class _ScopeItems(_Part):
    """The items are read one by one, so that each is as large as it was sent."""

    scope: msgspec.Raw = msgspec.Raw(b"null")
    spans: list[msgspec.Raw] | None = None
    log_records: list[msgspec.Raw] | None = None


class _ResourceItems(_Part):
    resource: msgspec.Raw = msgspec.Raw(b"null")
    scope_spans: list[_ScopeItems] | None = None
    scope_logs: list[_ScopeItems] | None = None


class _Request(_Part):
    resource_spans: list[_ResourceItems] | None = None
    resource_logs: list[_ResourceItems] | None = None


def decode_spans(data: bytes, most: int) -> Sent[Span]:
    """The spans of a request. Raises as ``jobmeter.wire.otlp.spans.decode``."""
    sent: Sent[Span] = Sent(most)
    for part in _read(data, _Request).resource_spans or ():
        for scoped in part.scope_spans or ():
            _group(sent, (part.resource, scoped.scope), scoped.spans or (), _span, repeated=True)
    return sent


def decode_records(data: bytes, most: int) -> Sent[Record]:
    """The records of a request. Raises as ``jobmeter.wire.otlp.records.decode``."""
    sent: Sent[Record] = Sent(most)
    for part in _read(data, _Request).resource_logs or ():
        for scoped in part.scope_logs or ():
            _group(sent, (part.resource, scoped.scope), scoped.log_records or (), _record, repeated=False)
    return sent


def _group(
    sent: Sent[T],
    shared: tuple[msgspec.Raw, msgspec.Raw],
    items: Sequence[msgspec.Raw],
    make: Callable[[msgspec.Raw, Attributes, SpanScope], T],
    *,
    repeated: bool,
) -> None:
    """``repeated``: each item is stored with the shared fields."""
    sent.count(0)
    size = sum(map(len, shared))
    try:
        resource, scope = _shared(*shared)
    except RefusedError as error:
        sent.check(len(items))
        sent.refused[error.reason] += len(items)
        return
    group: Group[T] = Group(resource, scope, [])
    for item in items:
        sent.count(len(item) + size * repeated)
        try:
            check_size(len(item))
            group.items.append(make(item, resource, scope))
        except RefusedError as error:
            sent.refuse(error.reason)
    sent.groups.append(group)


def _shared(resource: msgspec.Raw, scope: msgspec.Raw) -> tuple[Attributes, SpanScope]:
    if max(len(resource), len(scope)) > MOST_SHARED:
        raise RefusedError("resource-too-large")
    own, named = _present(resource, Attributed), _present(scope, Scope)
    return _attributes(own.attributes), SpanScope(
        name=_text(named.name), version=_text(named.version), attributes=_attributes(named.attributes)
    )


def _span(raw: msgspec.Raw, resource: Attributes, scope: SpanScope) -> Span:
    sent = _read(raw, _Span)
    check_many(max(len(sent.events or ()), len(sent.links or ())))
    status = sent.status or _Status()
    return Span(
        trace=identifier(sent.trace_id or "", TRACE_DIGITS),
        span=identifier(sent.span_id or "", SPAN_DIGITS),
        parent=identifier(sent.parent_span_id or "", SPAN_DIGITS, empty=True),
        name=_text(sent.name),
        kind=one_of(KINDS, sent.kind or 0),
        start_ns=check_unsigned(sent.start_time_unix_nano or 0, "startTimeUnixNano"),
        end_ns=check_unsigned(sent.end_time_unix_nano or 0, "endTimeUnixNano"),
        status=one_of(STATUSES, status.code or 0),
        message=_text(status.message),
        attributes=_attributes(sent.attributes),
        resource=resource,
        scope=scope,
        events=tuple(_event(one) for one in sent.events or ()),
        links=tuple(_link(one) for one in sent.links or ()),
        state=_text(sent.trace_state),
        flags=count32(sent.flags or 0),
        dropped=(
            count32(sent.dropped_attributes_count or 0),
            count32(sent.dropped_events_count or 0),
            count32(sent.dropped_links_count or 0),
        ),
    )


def _event(sent: _Event) -> SpanEvent:
    return SpanEvent(
        time_ns=check_unsigned(sent.time_unix_nano or 0, "timeUnixNano"),
        name=_text(sent.name),
        attributes=_attributes(sent.attributes),
        dropped=count32(sent.dropped_attributes_count or 0),
    )


def _link(sent: _Link) -> SpanLink:
    return SpanLink(
        trace=identifier(sent.trace_id or "", TRACE_DIGITS),
        span=identifier(sent.span_id or "", SPAN_DIGITS),
        state=_text(sent.trace_state),
        attributes=_attributes(sent.attributes),
        flags=count32(sent.flags or 0),
        dropped=count32(sent.dropped_attributes_count or 0),
    )


def _record(raw: msgspec.Raw, resource: Attributes, scope: SpanScope) -> Record:  # noqa: ARG001 - as of spans
    sent = _read(raw, _Record)
    moment = sent.time_unix_nano or sent.observed_time_unix_nano or 0
    return Record(
        time_ns=check_unsigned(moment, "timeUnixNano"),
        severity=count32(sent.severity_number or 0),
        word=_text(sent.severity_text),
        body=_value(sent.body, 0),
        attributes=_attributes(sent.attributes),
        event=_text(sent.event_name),
        trace=_id(sent.trace_id, TRACE_DIGITS),
        span=_id(sent.span_id, SPAN_DIGITS),
    )


def _id(sent: str | None, digits: int) -> str:
    """An id; an invalid one counts as absent, and the record is stored."""
    try:
        return identifier(sent or "", digits)
    except RefusedError:
        return ""


def _attributes(pairs: Iterable[KeyValue] | None) -> dict[str, Any]:
    found = {_text(pair.key): _value(pair.value, 0) for pair in pairs or ()}
    check_many(len(found))
    return found


def _value(value: AnyValue | None, deep: int) -> Any:  # noqa: ANN401 - any value of JSON, one line a kind
    if deep > _MOST_DEEP:
        raise RefusedError("attributes")
    if value is None:
        return None
    if value.string_value is not None:
        return _text(value.string_value)
    if value.array_value is not None:
        return [_value(one, deep + 1) for one in value.array_value.values or ()]
    if value.kvlist_value is not None:
        return {_text(one.key): _value(one.value, deep + 1) for one in value.kvlist_value.values or ()}
    if value.int_value is not None:
        return check_signed(value.int_value, "intValue")
    if value.bool_value is not None:
        return value.bool_value
    if value.bytes_value is not None:
        return base64.b64encode(value.bytes_value).decode()
    return plain(value.double_value)


def _text(text: str | None) -> str:
    encode_text(text, "body")
    return text or ""


def _present(data: msgspec.Raw, shape: type[S]) -> S:
    return shape() if bytes(data) == b"null" else _read(data, shape)


def _read(data: bytes | msgspec.Raw, shape: type[S]) -> S:
    try:
        # Numbers may be texts, as the JSON of protocol buffers has them.
        return msgspec.json.decode(data, type=shape, strict=False)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"the body is not the message that Content-Type says: {error}", "body") from error
