"""Tests of the agent's reader of OTLP against the classes generated from the published schema."""

import json as plain_json
import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.otlp import DELTA, add, as_json, metric, request

from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.wire.otlp.points import MOST_POINTS, MetricNumber, decode

TIMES = st.integers(0, 2**63)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False)
WORDS = st.text("abc.", min_size=1, max_size=6)


@st.composite
def messages(draw):
    """Draw a request, and return it with its numbers."""
    made, wanted, refused = [], [], 0
    for _ in range(draw(st.integers(0, 4))):
        name, kind, temporality = (
            draw(WORDS),
            draw(st.sampled_from(["gauge", "sum"])),
            draw(st.sampled_from([2, DELTA])),
        )
        one = metric(name, kind, temporality=temporality, monotonic=draw(st.booleans()))
        for _ in range(draw(st.integers(0, 3))):
            time, value, own = draw(TIMES), draw(NUMBERS), draw(st.dictionaries(WORDS, WORDS, max_size=3))
            flags = draw(st.sampled_from([0, 1]))
            add(one, time, value, flags, **own)
            if flags or (kind == "sum" and temporality == DELTA):
                refused += 1
            else:
                wanted.append(MetricNumber(name, time, float(value), own))
        made.append(one)
    return request({"service.name": "x"}, *made), wanted, refused


@given(messages())
def test_both_encodings_give_the_numbers_that_were_put_in(case):
    message, wanted, refused = case
    for found in (decode(message.SerializeToString(), json=False), decode(as_json(message), json=True)):
        assert found == (wanted, refused)


def test_a_histogram_has_a_count_and_a_sum():
    one = metric("t", "histogram")
    point = one.histogram.data_points.add(time_unix_nano=5, count=3, sum=1.5)
    point.bucket_counts.extend([1, 2])
    point.explicit_bounds.append(1.0)
    message = request({}, one, metric("s", "summary"))
    message.resource_metrics[0].scope_metrics[0].metrics[1].summary.data_points.add(time_unix_nano=5, count=3)
    wanted = [MetricNumber("t_count", 5, 3.0, {}), MetricNumber("t_sum", 5, 1.5, {})]
    for found in (decode(message.SerializeToString(), json=False), decode(as_json(message), json=True)):
        assert found == (wanted, 1)


@given(st.binary(max_size=200), st.booleans())
def test_any_other_bytes_are_refused_or_read(data, json):
    with suppress(InvalidRequestError):
        decode(data, json=json)


@given(
    st.recursive(st.none() | st.booleans() | st.text(max_size=3) | st.integers(), lambda of: st.lists(of, max_size=2))
)
def test_json_of_other_shapes_is_refused_or_read(odd):
    for shape in (
        {"resourceMetrics": odd},
        {"resourceMetrics": [{"scopeMetrics": odd}]},
        {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "x", "gauge": odd}]}]}]},
        {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"gauge": {"dataPoints": [{"asDouble": odd}]}}]}]}]},
    ):
        with suppress(InvalidRequestError):
            decode(plain_json.dumps(shape).encode(), json=True)


def test_values_that_are_not_finite_are_read():
    message = request({}, add(metric("x"), 1, math.inf))
    for found in (decode(message.SerializeToString(), json=False), decode(as_json(message), json=True)):
        assert found.numbers[0].value == math.inf


def test_data_points_are_bounded():
    one = metric("x")
    for at in range(MOST_POINTS + 1):
        add(one, at, 1.0)
    with pytest.raises(LimitExceededError):
        decode(request({}, one).SerializeToString(), json=False)
