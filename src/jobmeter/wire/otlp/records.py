"""Reads ``ExportLogsServiceRequest`` in protocol buffers to log records.

https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/logs/v1/logs.proto
"""

from typing import Any

import msgspec

from jobmeter.errors import InvalidRequestError
from jobmeter.model.span import Attributes, SpanScope
from jobmeter.wire.otlp.telemetry import Sent, TelemetryFields, TelemetryRefusedError, collect, list_scopes, simplify
from jobmeter.wire.otlp.values import read_any_value

_TIME, _NUMBER, _TEXT, _BODY, _ATTRIBUTES = 0x09, 0x10, 0x1A, 0x2A, 0x32
_TRACE, _SPAN, _OBSERVED, _EVENT = 0x4A, 0x52, 0x59, 0x62


class OtlpRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A log record. ``time_ns`` is 0 if the record has neither its own time nor the time of its observation.

    ``severity`` is OTLP's number, 0 if unset; ``trace`` and ``span`` are hexadecimal digits or empty.
    """

    time_ns: int
    severity: int
    word: str
    body: Any
    attributes: Attributes
    event: str
    trace: str
    span: str


def decode(data: bytes, most: int) -> Sent[OtlpRecord]:
    """Return the records of a request, at most ``most``. Raises as ``jobmeter.wire.otlp.spans.decode``."""
    sent: Sent[OtlpRecord] = Sent(most)
    return collect(sent, list_scopes(data, sent), parse_record, repeated=False)


def parse_record(data: bytes, resource: Attributes, scope: SpanScope) -> OtlpRecord:  # noqa: ARG001 - as of spans
    """Parse the message of a record. Raises TelemetryRefusedError."""
    found = TelemetryFields(data)
    return OtlpRecord(
        time_ns=found.read_fixed(_TIME) or found.read_fixed(_OBSERVED),
        severity=found.count(_NUMBER),
        word=found.read_text(_TEXT),
        body=_body(found.read_message(_BODY)),
        attributes=found.read_attributes(_ATTRIBUTES),
        event=found.read_text(_EVENT),
        trace=_hex(found.read_content(_TRACE), 16),
        span=_hex(found.read_content(_SPAN), 8),
    )


def _body(message: bytes) -> Any:  # noqa: ANN401 - any value of JSON
    try:
        return simplify(read_any_value(message, 0, len(message)))
    except InvalidRequestError as error:
        if error.field == "body":
            raise
        raise TelemetryRefusedError("body") from error


def _hex(raw: bytes, size: int) -> str:
    """Return an id in hexadecimal. An invalid id counts as absent, so that the record is stored."""
    return raw.hex() if len(raw) == size and any(raw) else ""
