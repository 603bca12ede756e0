"""``ExportLogsServiceRequest`` in protocol buffers to log records.

https://github.com/open-telemetry/opentelemetry-proto/blob/main/opentelemetry/proto/logs/v1/logs.proto
"""

from typing import Any

import msgspec

from jobmeter.errors import InvalidRequestError
from jobmeter.model.span import Attributes
from jobmeter.wire.otlp.telemetry import (
    Group,
    RefusedError,
    Sent,
    attributes,
    by_tag,
    check_size,
    count32,
    fixed,
    items,
    merged,
    plain,
    shared,
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
    for resource, scope, places in items(data, sent):
        try:
            own, made, _ = shared(resource, scope)
        except RefusedError as error:
            sent.refused[error.reason] += len(places)
            continue
        group: Group[Record] = Group(own, made, [])
        for at, end in places:
            sent.count(end - at)
            try:
                group.items.append(_record(data, at, end))
            except RefusedError as error:
                sent.refuse(error.reason)
        sent.groups.append(group)
    return sent


def _record(data: bytes, at: int, end: int) -> Record:
    check_size(end - at)
    found = by_tag(data, at, end)
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
