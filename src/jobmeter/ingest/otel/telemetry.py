"""Converts spans and log records of OpenTelemetry: their owners, their times and the text of a line.

The job of a span or record is named by Jobmeter's or Kubernetes' attributes, as for a series. Otherwise the service is
the job: https://opentelemetry.io/docs/specs/semconv/resource/#service.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from jobmeter.errors import InvalidRequestError
from jobmeter.ingest.otel.owner import find_resource_owner
from jobmeter.model.event import Level
from jobmeter.model.line_level import find_level
from jobmeter.model.log import LogLine, parse_level
from jobmeter.model.series import check_job_id, check_name
from jobmeter.model.span import Span
from jobmeter.model.time import MAX_TIME_MS, NS_PER_MS
from jobmeter.wire.otlp.records import OtlpRecord
from jobmeter.wire.otlp.telemetry import Sent
from jobmeter.wire.otlp.values import convert_text

STREAM = "otlp"
"""The stream of lines that come from log records."""
_Item = TypeVar("_Item")
_SERVICE, _UNKNOWN = "service.name", "unknown_service"
_MAX_TIME_NS = MAX_TIME_MS * NS_PER_MS
_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:/@+-")


def resolve_spans(sent: Sent[Span], project: str) -> tuple[list[Span], Counter[str]]:
    """Return the spans with their owners, and the number of rejected ones by reason."""
    refused, found = Counter(sent.refused), list[Span]()
    for owned_by, service, spans in _find_owners(sent, refused):
        for span in spans:
            late = any(event.time_ns > _MAX_TIME_NS for event in span.events)
            if late or not 0 < span.start_ns <= span.end_ns <= _MAX_TIME_NS:
                refused["time"] += 1
            else:
                found.append(replace(span, project=project, service=service, **owned_by))
    return found, refused


def resolve_lines(sent: Sent[OtlpRecord], project: str, now_ns: int) -> tuple[list[LogLine], Counter[str]]:
    """Return the records as lines, and the number of rejected ones by reason. ``now_ns`` replaces a missing time."""
    refused, found = Counter(sent.refused), list[LogLine]()
    for owned_by, _, records in _find_owners(sent, refused):
        for record in records:
            reason = "no-job" if not owned_by["job"] else "time" if record.time_ns > _MAX_TIME_NS else ""
            if reason:
                refused[reason] += 1
                continue
            time_ns, text = record.time_ns or now_ns, " ".join(_words(record))
            level = _level(record) or find_level(text)
            found.append(LogLine(time_ns=time_ns, text=text, project=project, stream=STREAM, level=level, **owned_by))
    return found, refused


def _find_owners(sent: Sent[_Item], refused: Counter[str]) -> Iterator[tuple[dict[str, Any], str, Sequence[_Item]]]:
    """Yield the items of each resource with the fields of their owner, and their service.

    Items whose owner is invalid are counted as rejected.
    """
    for group in sent.groups:
        try:
            owned_by, service = _owner(group.resource)
        except InvalidRequestError as error:
            refused[error.field] += len(group.items)
        else:
            yield owned_by, service, group.items


def _owner(resource: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Return the owner of a resource's items, and their service. Raises InvalidRequestError naming the invalid name."""
    texts = {key: convert_text(value) for key, value in resource.items()}
    found = find_resource_owner(texts)
    service = texts.get(_SERVICE, "")
    job = found.job or ("" if service.startswith(_UNKNOWN) else service)
    if job:
        check_job_id(job, "job")
    if found.replica:
        check_name(found.replica, "replica")
    return {"job": job, "replica": found.replica, "attempt": found.attempt, "node": found.node}, service


def _words(record: OtlpRecord) -> Iterator[str]:
    """Yield the body, then the rest of the record as ``key=value``, so that no part is lost."""
    body = convert_text(record.body)
    if body:
        yield body
    if record.event:
        yield f"event={_value(record.event)}"
    for key, value in record.attributes.items():
        yield f"{_value(key)}={_value(convert_text(value))}"
    if record.trace:
        yield f"trace_id={record.trace}"
    if record.span:
        yield f"span_id={record.span}"


def _value(text: str) -> str:
    """Return the text bare if it is unambiguous, else as JSON on one line."""
    return text if text and _BARE.issuperset(text) else msgspec.json.encode(text).decode()


def _level(record: OtlpRecord) -> Level | None:
    """Return the level of a record from its number, else from its word; None if both are unknown.

    ``Error2`` is a short name of the specification:
    https://opentelemetry.io/docs/specs/otel/logs/data-model/#field-severitynumber.
    """
    for least, level in ((17, Level.ERROR), (13, Level.WARNING), (9, Level.INFO), (1, Level.DEBUG)):
        if least <= record.severity <= 24:
            return level
    return parse_level(record.word) or parse_level(record.word.rstrip("1234"))
