import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.dialects.alibaba.foas.metric_json import MAX_POINTS, read
from jobmeter.dialects.alibaba.foas.names import METRICS
from jobmeter.errors import InvalidRequestError, LimitExceededError
from jobmeter.query.tsdb.functions import AGGREGATORS

START = 1574247000000
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "": 1}
FUNCTIONS = sorted(set(AGGREGATORS) - {"none"})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
STEPS = st.tuples(st.integers(1, 50), st.sampled_from(sorted(SECONDS)))


def _read(prefix="blink.p.j.", **given):
    return read(json.dumps({"start": START, "end": START + 100_000, **given}), prefix, METRICS, START + 500_000)


@given(STEPS, STEPS, st.sampled_from(FUNCTIONS), st.sampled_from(sorted(AGGREGATORS)))
def test_steps_and_functions(downsample, granularity, function, aggregator):
    query = {
        "metric": "delay",
        "downsample": f"{downsample[0]}{downsample[1]}-{function}",
        "granularity": f"{granularity[0]}{granularity[1]}",
        "aggregator": aggregator,
    }
    (asked,) = _read(queries=[query]).queries
    assert asked.downsample.interval_ms == downsample[0] * SECONDS[downsample[1]] * 1000
    assert asked.granularity_ms == granularity[0] * SECONDS[granularity[1]] * 1000
    assert (asked.downsample.function.name, asked.aggregator) == (function, aggregator)


@pytest.mark.parametrize(
    ("query", "downsample_ms", "granularity_ms"),
    [
        ({}, 20_000, 20_000),
        ({"granularity": "1m"}, 60_000, 60_000),
        ({"downsample": "30s-max"}, 30_000, 30_000),
        ({"downsample": "max", "granularity": "5m"}, 300_000, 300_000),
        ({"downsample": "10s-max-none", "granularity": "5m"}, 10_000, 300_000),
        ({"downsample": "AVG-zero"}, 20_000, 20_000),
        ({"downsample": "0all-max"}, 0, 0),
        ({"downsample": "all-max", "granularity": "1m"}, 0, 60_000),
    ],
)
def test_what_is_left_out(query, downsample_ms, granularity_ms):
    (asked,) = _read(queries=[{"metric": "delay", **query}]).queries
    assert (asked.downsample.interval_ms, asked.granularity_ms) == (downsample_ms, granularity_ms)


@given(st.integers(10**12, 4_102_444_799_999), st.integers(0, 10**9))
def test_the_end_is_included(start, length):
    query = {"metric": "delay", "granularity": "52w"}
    span = _read(start=start, end=min(start + length, 4_102_444_799_999), queries=[query]).span
    assert (span.start_ms, span.end_ms) == (start, min(start + length, 4_102_444_799_999) + 1)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (1574247000, 1574250000, (1574247000000, 1574250000001)),
        ("1574247000", "1574250000000", (1574247000000, 1574250000001)),
        ("10m-ago", None, (START + 500_000 - 600_000, START + 500_001)),
        ("1h-ago", "30s-ago", (START + 500_000 - 3_600_000, START + 470_001)),
        ("2019/11/20-18:50:00", "2019/11/20 18:51", (START, START + 60_001)),
        (START, "now", (START, START + 500_001)),
    ],
)
def test_a_time_has_every_form_of_opentsdbs(start, end, expected):
    """Formatted times use the time zone of the document."""
    queries = [{"metric": "delay"}]
    span = _read(start=start, end=end, timezone="Asia/Shanghai", queries=queries).span
    assert (span.start_ms, span.end_ms) == expected


def test_a_day_of_a_calendar_is_one_of_the_document_s_zone():
    (asked,) = _read(queries=[{"metric": "delay", "downsample": "1dc-sum"}], timezone="Asia/Shanghai").queries
    (other,) = _read(queries=[{"metric": "delay", "downsample": "1d-sum"}], useCalendar=True).queries
    assert (str(asked.downsample.zone), asked.downsample.unit, asked.granularity_ms) == ("Asia/Shanghai", "d", 0)
    assert (str(other.downsample.zone), other.downsample.unit) == ("UTC", "d")


def test_filters_take_precedence_over_tags_and_rates_have_options():
    query = {
        "metric": "delay",
        "tags": {"node": "*"},
        "filters": [
            {"type": "wildcard", "tagk": "replica", "filter": "tm-*", "groupBy": True},
            {"type": "not_literal_or", "tagk": "task", "filter": "sink"},
        ],
        "rate": True,
        "rateOptions": {"counter": True, "counterMax": 100, "dropResets": "true"},
        "explicitTags": True,
    }
    (asked,) = _read(queries=[query]).queries
    assert [(one.tag, one.kind, one.pattern, one.group_by) for one in asked.filters] == [
        ("replica", "wildcard", "tm-*", True),
        ("task", "not_literal_or", "sink", False),
    ]
    assert asked.rate is not None
    assert (asked.rate.counter, asked.rate.counter_max, asked.rate.drop_resets) == (True, 100, True)
    assert asked.explicit_tags
    (plain,) = _read(queries=[{"metric": "delay", "rateOptions": {"counter": True}, "tags": {"node": "n*"}}]).queries
    assert plain.rate is None
    assert [(one.tag, one.kind, one.group_by) for one in plain.filters] == [("node", "iwildcard", True)]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"filters": [{"type": "like", "tagk": "replica", "filter": "x"}]}, "queries[0].filters"),
        ({"filters": [{"type": "regexp", "tagk": "replica", "filter": "("}]}, "queries[0].filters"),
        ({"filters": {"type": "wildcard"}}, "queries[0].filters"),
        ({"tags": {"replica": "like(x)"}}, "queries[0].tags"),
        ({"rate": True, "rateOptions": {"counterMax": -1}}, "queries[0].rateOptions"),
        ({"rate": True, "rateOptions": []}, "queries[0].rateOptions"),
        ({"rate": {}}, "queries[0].rate"),
        ({"downsample": "20s-avg-often"}, "queries[0].downsample"),
        ({"downsample": "20s"}, "queries[0].downsample"),
        ({"downsample": "500ms-avg"}, "queries[0].downsample"),
        ({"downsample": "20s-none"}, "queries[0].downsample"),
        ({"percentiles": [99]}, "queries[0].percentiles"),
        ({"tsuids": ["00"]}, "queries[0].tsuids"),
    ],
)
def test_what_is_wrong_is_named_where_it_stands(query, field):
    with pytest.raises(InvalidRequestError) as caught:
        _read(queries=[{"metric": "delay", **query}])
    assert caught.value.field == f"metricJson.{field}"
    assert caught.value.message.startswith(f"metricJson.{field} ")


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
    st.dictionaries(st.sampled_from(["start", "end", "limit", "queries", "timezone", "useCalendar"]), JSON),
    st.dictionaries(
        st.sampled_from(
            [
                "metric",
                "downsample",
                "granularity",
                "aggregator",
                "tags",
                "rate",
                "rateOptions",
                "filters",
                "explicitTags",
            ]
        ),
        JSON,
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
