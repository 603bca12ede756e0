import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.dialects.foas.metric_json import MAX_POINTS, read
from jobmeter.dialects.foas.names import METRICS
from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.query.request import Statistic

START = 1574247000000
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "": 1}
STATISTICS = {"avg": Statistic.MEAN, "max": Statistic.MAX, "min": Statistic.MIN, "sum": Statistic.SUM}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
STEPS = st.tuples(st.integers(1, 50), st.sampled_from(sorted(SECONDS)))


def _read(prefix="blink.p.j.", **given):
    return read(json.dumps({"start": START, "end": START + 100_000, **given}), prefix, METRICS, START + 500_000)


@given(STEPS, STEPS, st.sampled_from(sorted(STATISTICS)), st.sampled_from(sorted(STATISTICS)))
def test_steps_and_functions(downsample, granularity, function, aggregator):
    query = {
        "metric": "delay",
        "downsample": f"{downsample[0]}{downsample[1]}-{function}",
        "granularity": f"{granularity[0]}{granularity[1]}",
        "aggregator": aggregator,
    }
    (asked,) = _read(queries=[query]).queries
    assert asked.downsample_ms == downsample[0] * SECONDS[downsample[1]] * 1000
    assert asked.granularity_ms == granularity[0] * SECONDS[granularity[1]] * 1000
    assert (asked.downsample, asked.aggregator) == (STATISTICS[function], STATISTICS[aggregator])


@pytest.mark.parametrize(
    ("query", "downsample_ms", "granularity_ms"),
    [
        ({}, 20_000, 20_000),
        ({"granularity": "1m"}, 60_000, 60_000),
        ({"downsample": "30s-max"}, 30_000, 30_000),
        ({"downsample": "max", "granularity": "5m"}, 300_000, 300_000),
        ({"downsample": "10s-max-none", "granularity": "5m"}, 10_000, 300_000),
    ],
)
def test_what_is_left_out(query, downsample_ms, granularity_ms):
    (asked,) = _read(queries=[{"metric": "delay", **query}]).queries
    assert (asked.downsample_ms, asked.granularity_ms) == (downsample_ms, granularity_ms)


@given(st.integers(10**12, 4_102_444_799_999), st.integers(0, 10**9))
def test_the_end_is_included(start, length):
    query = {"metric": "delay", "granularity": "52w"}
    span = _read(start=start, end=min(start + length, 4_102_444_799_999), queries=[query]).span
    assert (span.start_ms, span.end_ms) == (start, min(start + length, 4_102_444_799_999) + 1)


@given(st.integers(1, 200), st.integers(1, 3))
def test_points_are_bounded_in_all(step, queries):
    length = 100_000 * 1000
    asked = {"end": START + length, "queries": [{"metric": "delay", "granularity": f"{step}s"}] * queries}
    points = sum((START + length) // (step * 1000) - START // (step * 1000) + 1 for _ in range(queries))
    if points <= MAX_POINTS:
        assert len(_read(**asked).queries) == queries
    else:
        with pytest.raises(LimitExceededError, match="granularity"):
            _read(**asked)


@given(
    st.dictionaries(st.sampled_from(["start", "end", "limit", "queries"]), JSON),
    st.dictionaries(
        st.sampled_from(["metric", "downsample", "granularity", "aggregator", "tags", "rate", "filters"]), JSON
    ),
)
def test_whatever_is_wrong_is_reported(whole, query):
    for body in (whole, {"queries": [query]}, {"queries": [{"metric": "delay", **query}]}):
        problem = _problem(body)
        assert problem is None or "metricJson" in problem


def _problem(body):
    try:
        _read(**body)
    except InvalidRequestError as error:
        return error.message
    return None


@pytest.mark.parametrize("text", ["", "[]", "nul", '{"a":' + "[" * 200_000, '{"start": NaN}'])
def test_what_is_no_json_object(text):
    with pytest.raises(InvalidRequestError, match="metricJson is not a JSON object"):
        read(text, "", METRICS, START)
