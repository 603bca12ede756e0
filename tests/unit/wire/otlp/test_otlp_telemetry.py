"""Tests of spans and log records in both encodings against the classes generated from the published schema."""

import base64
import contextlib
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.support.otlp import as_ids, fill, fill_value

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.model.span import KINDS, MOST_BYTES, MOST_PARTS, STATUSES
from jobmeter.wire.otlp import records, spans, telemetry_json

MOST = 10_000
WAYS = {
    "protobuf": (spans.decode, records.decode, lambda message: message.SerializeToString()),
    "json": (telemetry_json.decode_spans, telemetry_json.decode_records, as_ids),
}
both = pytest.mark.parametrize("way", WAYS)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
values: Any = st.recursive(
    st.one_of(texts, st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(), st.binary(max_size=4)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=4,
)
attribute_sets = st.dictionaries(texts, values, max_size=3)
moments = st.integers(0, 2**64 - 1)
numbers = st.integers(0, 2**32 - 1)
traces = st.binary(min_size=16, max_size=16)
ids = st.binary(min_size=8, max_size=8)


def plain(value: Any) -> Any:
    """Return a value in its stored form."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case bytes():
            return base64.b64encode(value).decode()
        case list():
            return [plain(one) for one in value]
        case dict():
            return {key: plain(one) for key, one in value.items()}
        case _:
            return value


@st.composite
def sent_spans(draw):
    """Return a request, and the expected form of each of its spans, computed from the published classes."""
    message, expected = ExportTraceServiceRequest(), []
    for _ in range(draw(st.integers(0, 2))):
        part = message.resource_spans.add()
        resource = draw(attribute_sets)
        fill(part.resource.attributes, resource)
        for _ in range(draw(st.integers(0, 2))):
            scoped = part.scope_spans.add()
            scoped.scope.name = draw(texts)
            for _ in range(draw(st.integers(0, 2))):
                made, attributes = scoped.spans.add(), draw(attribute_sets)
                made.trace_id, made.span_id = draw(traces), draw(ids)
                made.parent_span_id = draw(st.one_of(st.just(b""), ids))
                made.name, made.trace_state = draw(texts), draw(texts)
                made.kind, made.status.code = draw(st.integers(0, 5)), draw(st.integers(0, 2))
                made.status.message = draw(texts)
                made.start_time_unix_nano, made.end_time_unix_nano = draw(moments), draw(moments)
                made.flags, made.dropped_events_count = draw(numbers), draw(numbers)
                fill(made.attributes, attributes)
                events, links = [], []
                for _ in range(draw(st.integers(0, 2))):
                    event, own = made.events.add(time_unix_nano=draw(moments), name=draw(texts)), draw(attribute_sets)
                    fill(event.attributes, own)
                    events.append((event.time_unix_nano, event.name, plain(own)))
                for _ in range(draw(st.integers(0, 2))):
                    link, own = made.links.add(trace_id=draw(traces), span_id=draw(ids)), draw(attribute_sets)
                    fill(link.attributes, own)
                    links.append((link.trace_id, link.span_id, plain(own)))
                expected.append((made, plain(attributes), plain(resource), scoped.scope.name, events, links))
    return message, expected


def is_id(raw: bytes) -> bool:
    return any(raw)


@both
@given(sent=sent_spans())
def test_spans_are_read_as_the_published_classes_wrote_them(way, sent):
    message, expected = sent
    decode, _, encode = WAYS[way]
    found = decode(encode(message), MOST)
    accepted = [
        one
        for one in expected
        if is_id(one[0].trace_id) and is_id(one[0].span_id) and all(is_id(t) and is_id(s) for t, s, _ in one[5])
    ]
    assert found.refused.total() == len(expected) - len(accepted)
    read = [span for group in found.groups for span in group.items]
    for span, (made, attributes, resource, scope, events, links) in zip(read, accepted, strict=True):
        assert (span.trace, span.span) == (made.trace_id.hex(), made.span_id.hex())
        assert span.parent == (made.parent_span_id.hex() if any(made.parent_span_id) else "")
        assert (span.name, span.state, span.message) == (made.name, made.trace_state, made.status.message)
        assert (span.kind, span.status) == (KINDS[made.kind], STATUSES[made.status.code])
        assert (span.start_ns, span.end_ns) == (made.start_time_unix_nano, made.end_time_unix_nano)
        assert (span.flags, span.dropped) == (made.flags, (0, made.dropped_events_count, 0))
        assert (span.attributes, span.resource, span.scope.name) == (attributes, resource, scope)
        assert [(one.time_ns, one.name, one.attributes) for one in span.events] == events
        assert [(bytes.fromhex(o.trace), bytes.fromhex(o.span), o.attributes) for o in span.links] == links


@both
@given(
    body=values,
    attributes=attribute_sets,
    moment=moments,
    observed=moments,
    severity=st.integers(0, 24),
    word=texts,
    trace=st.one_of(st.just(b""), traces),
)
def test_log_records_are_read_as_the_published_classes_wrote_them(
    way, body, attributes, moment, observed, severity, word, trace
):
    _, decode, encode = WAYS[way]
    message = ExportLogsServiceRequest()
    part = message.resource_logs.add()
    fill(part.resource.attributes, {"service.name": "s"})
    made = part.scope_logs.add().log_records.add(
        time_unix_nano=moment,
        observed_time_unix_nano=observed,
        severity_number=severity,
        severity_text=word,
        trace_id=trace,
    )
    fill_value(made.body, body)
    fill(made.attributes, attributes)
    (group,) = decode(encode(message), MOST).groups
    (record,) = group.items
    assert (group.resource, record.time_ns) == ({"service.name": "s"}, moment or observed)
    assert (record.severity, record.word, record.body) == (severity, word, plain(body))
    assert record.attributes == plain(attributes)
    assert record.trace == (trace.hex() if any(trace) else "")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_by_name(data):
    for decode in (spans.decode, records.decode):
        with contextlib.suppress(InvalidRequestError):
            decode(data, MOST)


def one_span(**more):
    message = ExportTraceServiceRequest()
    made = message.resource_spans.add().scope_spans.add().spans.add(trace_id=b"t" * 16, span_id=b"s" * 8, **more)
    return message, made


@both
def test_what_is_too_large_is_refused_and_the_rest_stored(way):
    decode, _, encode = WAYS[way]
    message, large = one_span(name="large")
    fill(large.attributes, {"text": "x" * MOST_BYTES})
    many = message.resource_spans[0].scope_spans[0].spans.add(trace_id=b"t" * 16, span_id=b"m" * 8)
    fill(many.attributes, {f"key{number}": number for number in range(MOST_PARTS + 1)})
    eventful = message.resource_spans[0].scope_spans[0].spans.add(trace_id=b"t" * 16, span_id=b"e" * 8)
    for _ in range(MOST_PARTS + 1):
        eventful.events.add(name="again")
    message.resource_spans[0].scope_spans[0].spans.add(trace_id=b"t" * 16, span_id=b"k" * 8, name="kept")
    heavy = message.resource_spans.add()
    fill(heavy.resource.attributes, {"text": "x" * 40_000})
    heavy.scope_spans.add().spans.add(trace_id=b"t" * 16, span_id=b"h" * 8)
    found = decode(encode(message), MOST)
    assert [span.name for group in found.groups for span in group.items] == ["kept"]
    assert found.refused == {"too-large": 1, "too-many-parts": 2, "resource-too-large": 1}


@both
@pytest.mark.parametrize("trace", [b"", b"\0" * 16, b"short", b"x" * 17])
def test_a_span_without_an_id_is_refused(way, trace):
    decode, _, encode = WAYS[way]
    message, made = one_span()
    made.trace_id = trace
    assert decode(encode(message), MOST).refused == {"id": 1}


@both
def test_too_many_spans_are_refused_as_a_whole(way):
    decode, _, encode = WAYS[way]
    message, _ = one_span()
    message.resource_spans[0].scope_spans[0].spans.extend([message.resource_spans[0].scope_spans[0].spans[0]] * 20)
    with pytest.raises(LimitExceededError):
        decode(encode(message), 20)


@pytest.mark.parametrize("part", [b"\x0a\x00", b"\x0a\x02\x12\x00", b"\x0a\x04\x12\x02\x12\x00"])
def test_a_body_of_empty_parts_costs_little(part):
    with pytest.raises(LimitExceededError):
        spans.decode(part * 100_000, MOST)


@both
def test_an_attribute_that_is_nested_deeply_refuses_its_span(way):
    decode, _, encode = WAYS[way]
    deep: Any = "x"
    for _ in range(12):
        deep = [deep]
    message, made = one_span()
    fill(made.attributes, {"deep": deep})
    assert decode(encode(message), MOST).refused == {"attributes": 1}


@pytest.mark.parametrize("body", [b"[]", b'{"resourceSpans": 1}', b"\xff", b"{", b"[" * 100_000])
def test_json_that_is_no_message_is_refused(body):
    with pytest.raises(InvalidRequestError):
        telemetry_json.decode_spans(body, MOST)
