"""Requests of spans and of log records in JSON, converted for ``jobmeter.wire.otlp.spans`` and ``records``."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import msgspec

from jobmeter.model.span import Span
from jobmeter.wire.otlp.json import (
    AnyValue,
    OtlpKeyValue,
    OtlpMessage,
    OtlpResource,
    OtlpScope,
    encode,
    make_any_value_encoder,
    make_bits32_encoder,
    make_fixed_encoder,
    make_identifier_encoder,
    make_message_encoder,
    make_messages_encoder,
    make_pairs_encoder,
    make_text_encoder,
    make_varint_encoder,
    read,
)
from jobmeter.wire.otlp.records import OtlpRecord, parse_record
from jobmeter.wire.otlp.spans import parse_span
from jobmeter.wire.otlp.telemetry import Scoped, Sent, collect


class _Event(OtlpMessage):
    time_unix_nano: Annotated[int | None, make_fixed_encoder(0x09, "Q")] = None
    name: Annotated[str | None, make_text_encoder(0x12)] = None
    attributes: Annotated[list[OtlpKeyValue] | None, make_pairs_encoder(0x1A)] = None
    dropped_attributes_count: Annotated[int | None, make_varint_encoder(0x20)] = None


class _Link(OtlpMessage):
    trace_id: Annotated[str | None, make_identifier_encoder(0x0A)] = None
    span_id: Annotated[str | None, make_identifier_encoder(0x12)] = None
    trace_state: Annotated[str | None, make_text_encoder(0x1A)] = None
    attributes: Annotated[list[OtlpKeyValue] | None, make_pairs_encoder(0x22)] = None
    dropped_attributes_count: Annotated[int | None, make_varint_encoder(0x28)] = None
    flags: Annotated[int | None, make_bits32_encoder(0x35)] = None


class _Status(OtlpMessage):
    message: Annotated[str | None, make_text_encoder(0x12)] = None
    code: Annotated[int | None, make_varint_encoder(0x18)] = None


class _Span(OtlpMessage):
    trace_id: Annotated[str | None, make_identifier_encoder(0x0A)] = None
    span_id: Annotated[str | None, make_identifier_encoder(0x12)] = None
    trace_state: Annotated[str | None, make_text_encoder(0x1A)] = None
    parent_span_id: Annotated[str | None, make_identifier_encoder(0x22)] = None
    name: Annotated[str | None, make_text_encoder(0x2A)] = None
    kind: Annotated[int | None, make_varint_encoder(0x30)] = None
    start_time_unix_nano: Annotated[int | None, make_fixed_encoder(0x39, "Q")] = None
    end_time_unix_nano: Annotated[int | None, make_fixed_encoder(0x41, "Q")] = None
    attributes: Annotated[list[OtlpKeyValue] | None, make_pairs_encoder(0x4A)] = None
    dropped_attributes_count: Annotated[int | None, make_varint_encoder(0x50)] = None
    events: Annotated[list[_Event] | None, make_messages_encoder(0x5A)] = None
    dropped_events_count: Annotated[int | None, make_varint_encoder(0x60)] = None
    links: Annotated[list[_Link] | None, make_messages_encoder(0x6A)] = None
    dropped_links_count: Annotated[int | None, make_varint_encoder(0x70)] = None
    status: Annotated[_Status | None, make_message_encoder(0x7A)] = None
    flags: Annotated[int | None, make_bits32_encoder(0x85)] = None


class _Record(OtlpMessage):
    time_unix_nano: Annotated[int | None, make_fixed_encoder(0x09, "Q")] = None
    observed_time_unix_nano: Annotated[int | None, make_fixed_encoder(0x59, "Q")] = None
    severity_number: Annotated[int | None, make_varint_encoder(0x10)] = None
    severity_text: Annotated[str | None, make_text_encoder(0x1A)] = None
    body: Annotated[AnyValue | None, make_any_value_encoder(0x2A)] = None
    attributes: Annotated[list[OtlpKeyValue] | None, make_pairs_encoder(0x32)] = None
    trace_id: Annotated[str | None, make_identifier_encoder(0x4A)] = None
    span_id: Annotated[str | None, make_identifier_encoder(0x52)] = None
    event_name: Annotated[str | None, make_text_encoder(0x62)] = None


class _ScopeItems(OtlpMessage):
    """A scope whose items stay raw, so that each item keeps its original size."""

    scope: msgspec.Raw = msgspec.Raw(b"{}")
    spans: list[msgspec.Raw] | None = None
    log_records: list[msgspec.Raw] | None = None


class _ResourceItems(OtlpMessage):
    resource: msgspec.Raw = msgspec.Raw(b"{}")
    scope_spans: list[_ScopeItems] | None = None
    scope_logs: list[_ScopeItems] | None = None


class _Request(OtlpMessage):
    resource_spans: list[_ResourceItems] | None = None
    resource_logs: list[_ResourceItems] | None = None


class _Part:
    """A message of that shape in JSON; implements ``jobmeter.wire.otlp.telemetry.TelemetryPart``."""

    def __init__(self, sent: msgspec.Raw, shape: type[OtlpMessage]) -> None:
        self._sent = sent
        self._shape = shape

    def __len__(self) -> int:
        return len(self._sent)

    def __bytes__(self) -> bytes:
        return encode(read(self._sent, self._shape))


def decode_spans(data: bytes, most: int) -> Sent[Span]:
    """Return the spans of a request. Raises as ``jobmeter.wire.otlp.spans.decode``."""
    sent: Sent[Span] = Sent(most)
    parts = read(data, _Request).resource_spans or ()
    scopes = [(part, scope, scope.spans or ()) for part in parts for scope in part.scope_spans or ()]
    return collect(sent, _scopes(sent, scopes, _Span), parse_span, repeated=True)


def decode_records(data: bytes, most: int) -> Sent[OtlpRecord]:
    """Return the records of a request. Raises as ``jobmeter.wire.otlp.records.decode``."""
    sent: Sent[OtlpRecord] = Sent(most)
    parts = read(data, _Request).resource_logs or ()
    scopes = [(part, scope, scope.log_records or ()) for part in parts for scope in part.scope_logs or ()]
    return collect(sent, _scopes(sent, scopes, _Record), parse_record, repeated=False)


def _scopes(
    sent: Sent[Any],
    scopes: Sequence[tuple[_ResourceItems, _ScopeItems, Sequence[msgspec.Raw]]],
    shape: type[OtlpMessage],
) -> Iterator[Scoped]:
    for part, scope, items in scopes:
        sent.count(0)
        yield (
            _read_shared(part.resource, OtlpResource),
            _read_shared(scope.scope, OtlpScope),
            [_Part(item, shape) for item in items],
        )


def _read_shared(sent: msgspec.Raw, shape: type[OtlpMessage]) -> _Part:
    return _Part(msgspec.Raw(b"{}") if bytes(sent) == b"null" else sent, shape)
