"""Tests of remote read against the protocol's messages, encoded and decoded by a protocol buffers library."""

import contextlib

import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.errors import InvalidRequestError
from jobmeter.wire.remote_read import decode, encode, encode_series

TYPES = descriptor_pb2.FieldDescriptorProto
MESSAGES = {
    "LabelMatcher": [("type", 1, TYPES.TYPE_INT32), ("name", 2, TYPES.TYPE_STRING), ("value", 3, TYPES.TYPE_STRING)],
    "Query": [("start", 1, TYPES.TYPE_INT64), ("end", 2, TYPES.TYPE_INT64), ("matchers", 3, "LabelMatcher")],
    "ReadRequest": [("queries", 1, "Query")],
    "Label": [("name", 1, TYPES.TYPE_STRING), ("value", 2, TYPES.TYPE_STRING)],
    "Sample": [("value", 1, TYPES.TYPE_DOUBLE), ("timestamp", 2, TYPES.TYPE_INT64)],
    "TimeSeries": [("labels", 1, "Label"), ("samples", 2, "Sample")],
    "QueryResult": [("timeseries", 1, "TimeSeries")],
    "ReadResponse": [("results", 1, "QueryResult")],
}


def messages():
    """Return the used classes of ``prompb/remote.proto``."""
    file = descriptor_pb2.FileDescriptorProto(name="remote.proto", package="p", syntax="proto3")
    for name, entries in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in entries:
            added = message.field.add(name=field, number=number, label=TYPES.LABEL_OPTIONAL)
            if isinstance(kind, str):
                added.label, added.type, added.type_name = TYPES.LABEL_REPEATED, TYPES.TYPE_MESSAGE, f".p.{kind}"
            else:
                added.type = kind
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"p.{name}")) for name in MESSAGES}


CLASSES = messages()
TIMES = st.integers(-(2**62), 2**62)
MATCHERS = st.lists(st.tuples(st.text(max_size=5), st.integers(0, 3), st.text(max_size=5)), max_size=4)


@given(st.lists(st.tuples(TIMES, TIMES, MATCHERS), max_size=3))
def test_requests_are_read_as_they_were_written(queries):
    request = CLASSES["ReadRequest"]()
    for start, end, matchers in queries:
        query = request.queries.add(start=start, end=end)
        for name, kind, value in matchers:
            query.matchers.add(name=name, type=kind, value=value)
    found = decode(request.SerializeToString()).queries
    assert [(one.start_ms, one.end_ms) for one in found] == [(start, end) for start, end, _ in queries]
    kinds = ("=", "!=", "=~", "!~")
    for one, (_, _, matchers) in zip(found, queries, strict=True):
        assert one.matchers == tuple((name, kinds[kind], value) for name, kind, value in matchers)


SAMPLES = st.lists(st.tuples(st.integers(0, 2**43), st.floats()), max_size=5)


@given(st.lists(st.tuples(st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3), SAMPLES), max_size=3))
def test_answers_are_what_a_library_reads(series):
    encoded = [
        encode_series(
            list(labels.items()),
            np.array([time for time, _ in rows], np.int64),
            np.array([value for _, value in rows], np.float64),
        )
        for labels, rows in series
    ]
    packed = encode([encoded])
    answer = CLASSES["ReadResponse"].FromString(_unpacked(packed))
    found = [
        (
            {one.name: one.value for one in row.labels},
            np.array([one.timestamp for one in row.samples], np.int64),
            np.array([one.value for one in row.samples], np.float64),
        )
        for row in answer.results[0].timeseries
    ]
    assert [labels for labels, _, _ in found] == [labels for labels, _ in series]
    for (_, times, values), (_, rows) in zip(found, series, strict=True):
        assert times.tolist() == [time for time, _ in rows]
        np.testing.assert_array_equal(values, np.array([value for _, value in rows], np.float64))


def _unpacked(packed):
    size = shift = at = 0
    while True:
        byte = packed[at]
        size |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return pa.decompress(packed, size, codec="snappy", asbytes=True) if size else b""


@given(st.binary(max_size=40))
def test_damaged_requests_are_refused(data):
    with contextlib.suppress(InvalidRequestError):
        decode(data)


def test_an_unknown_comparison_is_refused():
    request = CLASSES["ReadRequest"]()
    request.queries.add().matchers.add(name="a", type=7, value="b")
    with pytest.raises(InvalidRequestError, match="unknown type 7"):
        decode(request.SerializeToString())
