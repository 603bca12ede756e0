"""Tests of both OTLP encodings against the classes generated from the published schema."""

import base64
import contextlib
import itertools
import json as plain_json
import math
import struct
from collections import Counter
from typing import Any
from unittest import mock

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.otlp import CUMULATIVE, DELTA, Request, add, as_json, fill, metric, points_of, request

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.kernel.otlp import scan
from jobmeter.wire.otlp import json, protobuf
from jobmeter.wire.otlp.answers import encode_response, encode_status
from jobmeter.wire.otlp.shapes import LEAST, RequestShape, Shapes
from jobmeter.wire.otlp.values import parse_attributes
from jobmeter.wire.otlp.written import MOST_OWN, MOST_PARTS, Builder, WrittenKind, WrittenTelemetry

T = 1_767_225_600_000
NS = T * 1_000_000


SHAPES = Shapes()


def from_protobuf(data: bytes) -> WrittenTelemetry:
    """Decode protocol buffers with shared shapes, like a server with successive requests."""
    return protobuf.decode(data, SHAPES)


def from_json(data: bytes) -> WrittenTelemetry:
    """Decode JSON with shared shapes."""
    return json.decode(data, SHAPES)


def in_python(data: bytes) -> WrittenTelemetry:
    """Decode protocol buffers without the compiled scan."""
    with mock.patch.object(protobuf, "scan", return_value=None):
        return from_protobuf(data)


def by_shape(data: bytes) -> WrittenTelemetry:
    """Decode after an earlier request with the same shape and other times and values."""
    with mock.patch.object(protobuf, "LEAST", 0):
        from_protobuf(others_alike(data))
        return from_protobuf(data)


def others_alike(data: bytes) -> bytes:
    """Return the request with other times, and other values of the same kinds."""
    try:
        message = Request.FromString(data)
    except DecodeError:
        return data
    for _, _, one, point in points_of(message):
        if one.WhichOneof("data") in {"gauge", "sum"}:
            kind = point.WhichOneof("value")
            point.time_unix_nano += 5 if point.time_unix_nano < 2**63 else -5
            if kind is not None:
                setattr(point, kind, 77)
    changed: bytes = message.SerializeToString()
    return changed


DECODERS = [
    (from_protobuf, Request.SerializeToString),
    (by_shape, Request.SerializeToString),
    (in_python, Request.SerializeToString),
    (from_json, as_json),
]
both = pytest.mark.parametrize(("decode", "encode"), DECODERS, ids=["protobuf", "shape", "python", "json"])

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
floats = st.floats(allow_nan=True)
# JSON has a single NaN; another test covers NaNs with other bits.
plain_floats = floats.map(lambda value: math.nan if math.isnan(value) else value)
values: Any = st.recursive(
    st.one_of(texts, st.booleans(), st.integers(-(2**63), 2**63 - 1), plain_floats, st.binary(max_size=6)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=4,
)
attribute_sets = st.dictionaries(texts, values, max_size=4)
times = st.one_of(st.just(0), st.integers(1, 2**64 - 1), st.integers(NS - 10**12, NS + 10**12))
flag = st.sampled_from([0, 0, 0, 1, 2, 3])


@st.composite
def numbers(draw: Any) -> Any:
    kind = draw(st.sampled_from(["gauge", "sum"]))
    made = metric(draw(texts), kind, draw(texts), temporality=draw(st.integers(0, 2)), monotonic=draw(st.booleans()))
    for _ in range(draw(st.integers(0, 4))):
        value = draw(st.one_of(st.none(), floats, st.integers(-(2**63), 2**63 - 1)))
        add(made, draw(times), value, draw(flag))
        point = getattr(made, kind).data_points[-1]
        fill(point.attributes, draw(attribute_sets))
        if draw(st.booleans()):
            point.exemplars.add(as_double=1.0)
        if draw(st.booleans()):
            point.ClearField("start_time_unix_nano")
    return made


@st.composite
def histograms(draw: Any) -> Any:
    made = metric(draw(texts), "histogram", temporality=draw(st.sampled_from([CUMULATIVE, CUMULATIVE, DELTA])))
    for _ in range(draw(st.integers(0, 3))):
        bounds = sorted(draw(st.sets(st.floats(-1e9, 1e9), max_size=4)))
        counts = draw(st.lists(st.integers(0, 2**40), min_size=len(bounds) + 1, max_size=len(bounds) + 1))
        if draw(st.booleans()) and not bounds:
            counts = []
        point = made.histogram.data_points.add(time_unix_nano=draw(times), flags=draw(flag))
        point.count = sum(counts) + (draw(st.integers(0, 1)) if counts else 5)
        point.bucket_counts.extend(counts)
        point.explicit_bounds.extend(bounds)
        if draw(st.booleans()):
            point.sum = draw(floats)
        if draw(st.booleans()):
            point.min = 1.0
        fill(point.attributes, draw(attribute_sets))
    return made


@st.composite
def others(draw: Any) -> Any:
    kind = draw(st.sampled_from(["summary", "exponential_histogram"]))
    made = metric(draw(texts), kind)
    for _ in range(draw(st.integers(0, 3))):
        point = getattr(made, kind).data_points.add(time_unix_nano=draw(times), flags=draw(flag), count=3)
        fill(point.attributes, draw(attribute_sets))
        if kind == "summary":
            point.sum = draw(floats)
            for _ in range(draw(st.integers(0, 3))):
                point.quantile_values.add(quantile=draw(st.floats(0, 1)), value=draw(floats))
    return made


@st.composite
def requests(draw: Any) -> Any:
    message = Request()
    for _ in range(draw(st.integers(0, 2))):
        part = message.resource_metrics.add(schema_url=draw(texts))
        fill(part.resource.attributes, draw(attribute_sets))
        for _ in range(draw(st.integers(0, 2))):
            scoped = part.scope_metrics.add()
            if draw(st.booleans()):
                scoped.scope.name, scoped.scope.version = draw(texts), draw(texts)
                fill(scoped.scope.attributes, draw(attribute_sets))
            scoped.metrics.extend(draw(st.lists(st.one_of(numbers(), histograms(), others()), max_size=3)))
    return message


def to_plain(value: Any) -> Any:
    """Convert an AnyValue to its JSON form."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    inner = getattr(value, kind)
    if kind == "array_value":
        return [to_plain(one) for one in inner.values]
    if kind == "kvlist_value":
        return {one.key: to_plain(one.value) for one in inner.values}
    return base64.b64encode(inner).decode() if kind == "bytes_value" else inner


def to_text(value: Any) -> Any:
    found = to_plain(value)
    if found is None:
        return ""
    if isinstance(found, float) and not math.isfinite(found):
        return "NaN" if math.isnan(found) else "Infinity" if found > 0 else "-Infinity"
    return found


def words(pairs: Any) -> dict[str, Any]:
    found = {one.key: to_text(one.value) for one in pairs}
    return {key: one for key, one in found.items() if one != ""}


def millis(time_ns: int) -> int:
    return time_ns // 1_000_000 if time_ns else -1


def reason(one: Any, point: Any) -> str:
    """Return the reason for dropping a data point; empty for a stored one."""
    kind = one.WhichOneof("data")
    temporality = getattr(getattr(one, kind), "aggregation_temporality", CUMULATIVE)
    if kind == "exponential_histogram":
        return "exponential-histogram"
    if temporality != CUMULATIVE:
        return "delta" if temporality == DELTA else "temporality"
    if point.flags & 1:
        return "stale"
    if kind in {"gauge", "sum"}:
        value = point.WhichOneof("value")
        return "no-value" if value is None else "" if math.isfinite(getattr(point, value)) else "not-a-number"
    wrong = kind == "histogram" and point.bucket_counts and sum(point.bucket_counts) != point.count
    return "buckets" if wrong else ""


def further(one: Any, point: Any) -> list[Any]:
    """Return (suffix, value, label) of the further samples of a data point."""
    if one.WhichOneof("data") == "summary":
        quantiles = [("", each.value, ("quantile", str(each.quantile))) for each in point.quantile_values]
        return [("_sum", point.sum, None), *quantiles]
    sums = [("_sum", point.sum, None)] if point.HasField("sum") else []
    totals = itertools.accumulate(point.bucket_counts)
    pairs = zip(point.explicit_bounds, totals, strict=False)
    buckets = [("_bucket", total, ("le", str(bound))) for bound, total in pairs]
    return [*sums, *buckets, ("_bucket", point.count, ("le", "+Inf"))]


def decoded_by_the_library(message: Any) -> tuple[list[Any], list[Any], Counter[str], int]:
    """Return (first samples of data points, further ones, refusals by reason, stale), straight from the schema."""
    heads: list[Any] = []
    rest: list[Any] = []
    refused: Counter[str] = Counter()
    for resource, scope, one, point in points_of(message):
        place = (words(resource.attributes), (scope.name, scope.version, words(scope.attributes)))
        own, time = words(point.attributes), millis(point.time_unix_nano)
        why = reason(one, point)
        if why:
            refused[why] += 1
            continue
        plain = one.WhichOneof("data") in {"gauge", "sum"}
        suffix, value = ("", getattr(point, point.WhichOneof("value"))) if plain else ("_count", point.count)
        heads.append((one.name + suffix if one.name else "", place, own, time, float(value)))
        for suffix, value, label in [] if plain else further(one, point):
            name = one.name + suffix if one.name else ""
            rest.append((name, place, {**own, **dict([label] if label else [])}, time, float(value)))
    stale = refused.pop("stale", 0)
    return heads, [row for row in rest if math.isfinite(row[-1])], refused, stale


def rows(written: Any, columns: Any) -> list[Any]:
    found = []
    for index, time, value in zip(*(column.tolist() for column in columns), strict=True):
        one = written.describe(index)
        found.append((one.name, (one.resource, one.scope), one.attributes, time, value))
    return found


def same(found: Any, expected: Any) -> bool:
    """Compare found texts with values; a text for a value that is no string is compared as JSON."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return found.keys() == expected.keys() and all(same(found[key], expected[key]) for key in expected)
    if isinstance(expected, list | tuple) and type(found) is type(expected):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(found, str) and not isinstance(expected, str):
        return bool(plain_json.loads(found) == plain_json.loads(plain_json.dumps(finite(expected))))
    return bool(found == expected)


def finite(value: Any) -> Any:
    """Replace numbers that JSON lacks by null, inside of a list or a map."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [finite(one) for one in value]
    return {key: finite(one) for key, one in value.items()} if isinstance(value, dict) else value


@both
@settings(max_examples=80)
@given(message=requests())
def test_a_request_is_read_as_the_schema_says(decode, encode, message):
    written = decode(encode(message))
    heads, rest, refused, stale = decoded_by_the_library(message)
    assert same(rows(written, written.heads), heads)
    assert same(rows(written, written.rest), rest)
    assert (written.refused, written.stale) == (refused, stale)
    assert len(points_of(message)) == len(heads) + refused.total() + stale


def keys_of(written: WrittenTelemetry) -> list[bytes]:
    """Return the keys of stored samples, because a number that is not finite may leave an unused key."""
    return [written.keys[at] for at in sorted({*written.heads[0].tolist(), *written.rest[0].tolist()})]


@settings(max_examples=40)
@given(message=requests())
@example(message=request({}, add(add(metric("m"), NS, math.inf, a="b"), NS, 1.0)))
@example(message=request({"a": math.nan}, add(metric("m"), NS, 1.0, b=math.nan)))
def test_a_series_has_one_key_in_either_encoding_and_in_every_request(message):
    first, again = from_protobuf(message.SerializeToString()), from_protobuf(message.SerializeToString())
    alone, text = in_python(message.SerializeToString()), from_json(as_json(message))
    assert first.keys == again.keys == alone.keys
    assert keys_of(first) == keys_of(text)
    described: dict[bytes, Any] = {}
    for place, key in enumerate(first.keys):
        assert described.setdefault(key, first.describe(place)) == first.describe(place)


@pytest.mark.parametrize("bits", [0x7FF8000000000001, 0xFFF8000000000000, 0x7FF0000000000001])
def test_a_nan_of_other_bits_is_the_same_attribute(bits):
    """JSON has only one NaN, but protocol buffers have several: they must not create different series."""
    (other,) = struct.unpack("<d", struct.pack("<Q", bits))
    one, another = (request({}, add(metric("m"), NS, 1.0, a=value)) for value in (math.nan, other))
    decoded_by_the_library = from_protobuf(one.SerializeToString()).describe(0)
    assert decoded_by_the_library.attributes == {"a": "NaN"}
    for decode, encode in DECODERS:
        assert decode(encode(another)).describe(0) == decoded_by_the_library


def outcome(decode: Any, body: bytes) -> Any:
    """Return the decoded body; None for a refused one."""
    try:
        written = decode(body)
    except InvalidRequestError:
        return None
    words = []
    for at in range(len(written.keys)):
        with contextlib.suppress(InvalidRequestError):
            words.append((at, written.describe(at)))
    columns = [column.tolist() for column in (*written.heads, *written.rest)]
    return written.keys, columns, written.refused, written.stale, words


@settings(max_examples=150)
@given(message=requests(), data=st.data())
def test_a_damaged_body_is_refused_or_read_but_never_a_failure(message, data):
    """The results with and without the compiled scan are equal."""
    for encode in (Request.SerializeToString, as_json):
        body = encode(message)
        cut = body[: data.draw(st.integers(0, len(body)))]
        changed = bytearray(body)
        for _ in range(data.draw(st.integers(0, 4)) if body else 0):
            changed[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
        for damaged in (cut, bytes(changed)):
            outcome(from_json, damaged)
            assert outcome(from_protobuf, damaged) == outcome(in_python, damaged)
            with mock.patch.object(protobuf, "LEAST", 0):  # as after many others, some of the same shape
                assert outcome(from_protobuf, damaged) == outcome(in_python, damaged)


@given(body=st.binary(max_size=200))
def test_noise_is_refused_or_read_but_never_a_failure(body):
    outcome(from_json, body)
    assert outcome(from_protobuf, body) == outcome(in_python, body)


def split_message(message: Any) -> bytes:
    """Encode each field of a message as a separate message, which is legal."""
    out = b""
    for part in message.resource_metrics:
        for scoped in part.scope_metrics:
            for one in scoped.metrics:
                only = Request()
                added = only.resource_metrics.add(resource=part.resource)
                added.scope_metrics.add(scope=scoped.scope).metrics.append(one)
                out += only.SerializeToString()
    return out


@settings(max_examples=40)
@given(message=requests())
def test_requests_that_are_joined_are_one(message):
    written = from_protobuf(split_message(message))
    heads, rest, _, _ = decoded_by_the_library(message)
    assert same(rows(written, written.heads), heads)
    assert same(rows(written, written.rest), rest)


def gauge(count: int, **own: Any) -> Any:
    made = metric("m")
    for at in range(count):
        add(made, NS + at, 1.0, **own)
    return request({}, made)


@both
def test_the_later_of_two_samples_at_one_time_comes_later(decode, encode):
    made = metric("m")
    add(made, NS, 1.0, flags=2)
    add(made, NS, 2.0)
    add(made, NS, 3.0, flags=2)
    assert decode(encode(request({}, made))).heads[2].tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("decode", [from_protobuf, in_python])
def test_what_is_encoded_in_an_unusual_way_is_read_alike(decode):
    body = gauge(1, a="b").SerializeToString()
    point = body[body.index(b"\x11") :]
    attribute, rest = point[27:], point[:27]
    turned = attribute + rest[18:] + rest[9:18] + rest[:9]  # fields in another order
    other = body[: -len(point)] + turned
    written, usual = decode(other), decode(body)
    assert written.keys == usual.keys
    assert [column.tolist() for column in written.heads] == [column.tolist() for column in usual.heads]


@pytest.mark.parametrize("decode", [from_protobuf, in_python])
def test_a_gauge_is_none_the_more_a_counter_for_a_field_that_it_does_not_have(decode):
    point = gauge(1).resource_metrics[0].scope_metrics[0].metrics[0].gauge.SerializeToString()
    body = b"".join(bytes((tag, len(inner))) + inner for tag, inner in ((0x0A, b"m"), (0x2A, point + b"\x18\x01")))
    for _ in range(3):
        body = bytes((0x12 if _ < 2 else 0x0A, len(body))) + body
    assert decode(body).describe(0).kind is WrittenKind.GAUGE


@both
def test_long_attributes_are_read(decode, encode):
    written = decode(encode(gauge(2, a="x" * 200, b="y" * 20_000)))
    assert written.describe(1).attributes == {"a": "x" * 200, "b": "y" * 20_000}


@both
def test_attributes_without_end_are_refused_and_not_remembered(decode, encode):
    made = metric("m")
    add(made, NS, 1.0, a="x" * MOST_OWN)
    add(made, NS, 1.0, a="x")
    written = decode(encode(request({}, made)))
    assert (len(written.keys), dict(written.refused)) == (1, {"labels": 1})


@pytest.mark.parametrize("resource", [{f"a{at}": "x" for at in range(129)}, {"a": [[[[[[[[[[1]]]]]]]]]]}])
def test_a_resource_out_of_bounds_is_refused_by_its_series(resource):
    written = from_protobuf(request(resource, metric("m")).SerializeToString())
    assert not written.keys
    assert not written.refused
    written = from_protobuf(request(resource, add(metric("m"), NS, 1.0)).SerializeToString())
    for _ in range(2):
        with pytest.raises(InvalidRequestError) as error:
            written.describe(0)
        assert error.value.field == "labels"


def test_an_attribute_that_is_there_twice_is_refused():
    message = gauge(1, a="b")
    fill(message.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0].attributes, {"a": "c"})
    with pytest.raises(InvalidRequestError, match="twice"):
        from_protobuf(message.SerializeToString()).describe(0)


HUGE = "1" + "0" * 400


@pytest.mark.parametrize(
    ("kind", "point"),
    [
        ("gauge", {"asInt": HUGE}),
        ("gauge", {"asInt": str(2**63)}),
        ("sum", {"asInt": str(-(2**63) - 1)}),
        ("histogram", {"count": HUGE}),
        ("histogram", {"count": "-5"}),
        ("histogram", {"count": HUGE, "bucketCounts": [HUGE], "explicitBounds": []}),
        ("histogram", {"count": "1", "bucketCounts": ["2", "-1"], "explicitBounds": [1.0]}),
        ("summary", {"count": HUGE}),
        ("gauge", {"timeUnixNano": HUGE, "asInt": 1}),
        ("gauge", {"timeUnixNano": -1, "asInt": 1}),
    ],
)
def test_a_number_of_json_that_no_field_can_hold_is_refused(kind, point):
    whole = {"dataPoints": [{"timeUnixNano": str(NS), **point}], "aggregationTemporality": 2}
    metrics = [{"name": "m", kind: whole}]
    body = plain_json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]}).encode()
    with pytest.raises(InvalidRequestError, match="64 bits") as error:
        from_json(body)
    assert error.value.field == "body"


@pytest.mark.parametrize("whole", [2**63 - 1, -(2**63)])
def test_the_largest_numbers_are_read_alike(whole):
    message = request({}, add(metric("m"), NS, whole))
    found = [decode(encode(message)).heads[2].tolist() for decode, encode in DECODERS]
    assert found == [[float(whole)]] * len(found)


def test_the_compiled_scan_is_there():
    """Without it, the tests above would compare Python with itself."""
    assert scan(gauge(1).SerializeToString(), 10, 10) is not None


def test_the_compiled_scan_finds_no_more_than_it_may():
    body = gauge(3, a="b").SerializeToString()
    assert scan(body, 3, 10) is not None
    assert scan(body, 2, 10) is None


@pytest.mark.parametrize("unit", [b"\x0a\x00", b"\x0a\x02\x12\x00"])
def test_a_body_of_very_many_parts_is_refused(unit):
    with pytest.raises(LimitExceededError):
        in_python(unit * (MOST_PARTS + 1))


def test_a_body_of_very_many_data_points_is_refused():
    made = gauge(1)
    body = made.resource_metrics[0].scope_metrics[0].metrics[0].gauge.SerializeToString() * (MOST_PARTS + 1)
    made.resource_metrics[0].scope_metrics[0].metrics[0].gauge.ParseFromString(body)
    with pytest.raises(LimitExceededError):
        from_protobuf(made.SerializeToString())


@pytest.mark.parametrize("body", [b"{" * 3_000_000, b" " * (65 * 2**20)])
def test_json_of_very_many_parts_is_refused(body):
    with pytest.raises(LimitExceededError):
        from_json(body)


@pytest.mark.parametrize("body", [b'{"a":' * 100_000, b"[" * 100_000, b"[]", b"", b'{"resourceMetrics": 1}', b'"\xff"'])
def test_json_of_another_form_is_refused(body):
    with pytest.raises(InvalidRequestError):
        from_json(body)


def test_json_as_it_is_written_by_hand():
    """Test numbers for texts and texts for numbers, nulls, and unknown names such as the ones in snake_case."""
    body = b"""{"resourceMetrics": [{"resource": null, "other": {"a": [1]}, "scopeMetrics": [{"metrics": [
        {"name": "m", "gauge": {"dataPoints": [
            {"timeUnixNano": 1767225600000000000, "asInt": 7, "attributes": [{"key": "n", "value": {"intValue": 5}}]},
            {"timeUnixNano": "1767225600000000000", "asInt": "8", "as_double": 1, "flags": null},
            {"timeUnixNano": "1767225600000000000", "asDouble": "9.5"},
            {"timeUnixNano": "1767225600000000000", "asDouble": "NaN"}]}}]}]}]}"""
    written = from_json(body)
    assert [column.tolist() for column in written.heads[1:]] == [[T, T, T], [7.0, 8.0, 9.5]]
    assert written.describe(0).attributes == {"n": "5"}
    assert dict(written.refused) == {"not-a-number": 1}


@pytest.mark.parametrize(("rejected", "message"), [(0, ""), (3, "why"), (2**40, "ü"), (0, "a warning")])
def test_a_response_is_what_the_schema_reads(rejected, message):
    from google.protobuf import json_format
    from tests.support.otlp import Response

    for found in (
        Response.FromString(encode_response(rejected, message, json=False)),
        json_format.Parse(encode_response(rejected, message, json=True), Response()),
    ):
        assert found.partial_success.rejected_data_points == rejected
        assert found.partial_success.error_message == message
        assert found.HasField("partial_success") == bool(rejected or message)


def test_a_status_is_what_the_schema_reads():
    """Fields of https://github.com/googleapis/googleapis/blob/master/google/rpc/status.proto."""
    from google.protobuf.any_pb2 import Any as Detail
    from google.protobuf.duration_pb2 import Duration

    assert encode_status(3, "no") == b"\x08\x03\x12\x02no"
    head, delay = b"\x08\x08\x12\x05later\x1a", Duration(seconds=1, nanos=500_000_000).SerializeToString()
    status_of = encode_status(8, "later", 1_500)
    assert status_of.startswith(head)
    detail = Detail.FromString(status_of[len(head) + 1 :])
    assert detail.type_url == "type.googleapis.com/google.rpc.RetryInfo"
    assert detail.value == b"\x0a" + bytes([len(delay)]) + delay
    assert plain_json.loads(encode_status(8, "later", 1_500, json=True)) == {
        "code": 8,
        "message": "later",
        "details": [{"@type": detail.type_url, "retryDelay": "1.5s"}],
    }


def test_the_next_request_of_a_sender_is_read_by_its_shape():
    first, later = (from_protobuf(gauge(LEAST, a="b").SerializeToString()) for _ in range(2))
    assert first.keys is later.keys
    made = gauge(LEAST, a="b")
    for place, point in enumerate(made.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points):
        point.time_unix_nano, point.as_double = NS + place * 10**9, math.nan if place % 2 else float(place)
    again = from_protobuf(made.SerializeToString())
    assert again.keys is first.keys
    assert again.heads[0].tolist() == list(range(0, LEAST, 2))
    assert again.heads[1].tolist() == [T + place * 1000 for place in range(0, LEAST, 2)]
    assert again.heads[2].tolist() == [float(place) for place in range(0, LEAST, 2)]
    assert again.refused == {"not-a-number": LEAST // 2}
    whole = gauge(LEAST, a="b")
    whole.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[3].as_int = 4
    assert from_protobuf(whole.SerializeToString()).keys is not first.keys


def test_shapes_that_did_not_come_for_longest_are_forgotten(monkeypatch):
    monkeypatch.setattr("jobmeter.wire.otlp.shapes._MOST_BYTES", 400)
    shapes, one = Shapes(), RequestShape.from_request(Builder())
    for text in (b"a" * 40, b"b" * 40, b"c" * 40, b"d" * 40, b"e" * 40):
        shapes.put(text, one)
    assert shapes.get(b"a" * 40) is one
    shapes.put(b"f" * 40, one)
    assert (shapes.get(b"a" * 40), shapes.get(b"b" * 40)) == (one, None)
    shapes.put(b"g" * 60, one)
    assert shapes.get(b"g" * 60) is None


def test_attributes_of_another_field_are_passed_over():
    assert parse_attributes(b"\x0a\x00\x12\x00", 0x0A) == {}
