"""``ExportLogsServiceRequest`` in protocol buffers to log records.

https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/logs/v1/logs.proto
"""

from typing import Any

import msgspec

from jobmeter.errors import InvalidRequestError
from jobmeter.model.span import Attributes, SpanScope
from jobmeter.wire.otlp.telemetry import (
    RefusedError,
    Sent,
    attributes,
    by_tag,
    collect,
    count32,
    fixed,
    merged,
    plain,
    scopes,
    text,
    whole,
)
from jobmeter.wire.otlp.values import any_value

_TIME, _NUMBER, _TEXT, _BODY, _ATTRIBUTES = 0x09, 0x10, 0x1A, 0x2A, 0x32
_TRACE, _SPAN, _OBSERVED, _EVENT = 0x4A, 0x52, 0x59, 0x62


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One log record. ``time_ns`` is 0 where neither the record nor its observer has a time.

    ``severity`` is OTLP's number, 0 where there is none; ``trace`` and ``span`` are hexadecimal digits or empty.
    """

    time_ns: int
    severity: int
    word: str
    body: Any
    attributes: Attributes
    event: str
    trace: str
    span: str


def decode(data: bytes, most: int) -> Sent[Record]:
    """The records of a request, at most ``most``. Raises as ``jobmeter.wire.otlp.spans.decode``."""
    sent: Sent[Record] = Sent(most)
    return collect(sent, scopes(data, sent), record, repeated=False)


def record(data: bytes, resource: Attributes, scope: SpanScope) -> Record:  # noqa: ARG001 - as of spans
    """A record of its message. Raises RefusedError."""
    found = by_tag(data)
    return Record(
        time_ns=fixed(data, found, _TIME) or fixed(data, found, _OBSERVED),
        severity=count32(whole(data, found, _NUMBER)),
        word=text(data, found, _TEXT),
        body=_body(merged(data, found.get(_BODY, [(0, 0)]))),
        attributes=attributes(data, found.get(_ATTRIBUTES, ())),
        event=text(data, found, _EVENT),
        trace=_hex(data, found, _TRACE, 16),
        span=_hex(data, found, _SPAN, 8),
    )


def _body(message: bytes) -> Any:  # noqa: ANN401 - any value of JSON
    try:
        return plain(any_value(message, 0, len(message)))
    except InvalidRequestError as error:
        if error.field == "body":
            raise
        raise RefusedError("body") from error


def _hex(data: bytes, found: dict[int, list[tuple[int, int]]], tag: int, size: int) -> str:
    """An id; an invalid one counts as absent, and the record is stored."""
    if tag not in found:
        return ""
    at, end = found[tag][-1]
    return data[at:end].hex() if end - at == size and any(data[at:end]) else ""
