import math
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.dialects.foas.lines import Drawn, Points, chosen, draw
from jobmeter.dialects.foas.metric_json import LineLimit, MetricRequest, Take
from jobmeter.query.request import Statistic

FUNCTIONS: dict[Statistic, Callable[[list[float]], float]] = {
    Statistic.MEAN: lambda values: math.fsum(values) / len(values),
    Statistic.SUM: sum,
    Statistic.MIN: min,
    Statistic.MAX: max,
}
JUDGES: dict[str, Callable[[list[float]], float]] = {
    "avg": lambda values: math.fsum(values) / len(values),
    "max": max,
    "min": min,
}
VALUES = st.integers(-1000, 1000).map(float)
SERIES = st.dictionaries(st.integers(0, 50), VALUES, min_size=1, max_size=20)


def _request(step_s=20, granularity_s=20, how=Statistic.MEAN, tags=()):
    return MetricRequest("m", "delay", step_s * 1000, Statistic.MEAN, granularity_s * 1000, how, tags)


def _line(points, **tags):
    times = sorted(points)
    return Points(tags, np.array(times, np.int64), np.array([points[time] for time in times], np.float64))


@given(
    st.lists(SERIES, min_size=1, max_size=5), st.sampled_from(list(FUNCTIONS)), st.sampled_from([20, 40, 60, 7, 300])
)
def test_one_line_joins_all_points_of_a_granularity(series, how, granularity):
    lines = [_line({1574247000000 + at * 20_000: value for at, value in points.items()}) for points in series]
    (drawn,) = draw(_request(20, granularity, how), lines, None)
    expected = defaultdict(list)
    for points in series:
        for at, value in points.items():
            second = 1574247000 + at * 20
            expected[second - second % granularity].append(value)
    assert dict(zip(drawn.seconds.tolist(), drawn.values.tolist(), strict=True)) == pytest.approx(
        {second: FUNCTIONS[how](values) for second, values in expected.items()}
    )
    assert drawn.seconds.tolist() == sorted(expected)
    assert drawn.summary == pytest.approx(np.mean(drawn.values))
    assert drawn.tags == {}


def test_tags_distinguish_lines_or_choose_series():
    lines = [_line({0: float(at)}, replica=f"tm-{at}", node=f"n{at % 2}") for at in range(4)]
    by_node = draw(_request(tags=(("node", ()),), how=Statistic.SUM), lines, None)
    assert [(line.tags, line.values.tolist()) for line in by_node] == [({"node": "n0"}, [2.0]), ({"node": "n1"}, [4.0])]
    some = draw(_request(tags=(("replica", ("tm-1", "tm-3")),)), lines, None)
    assert [line.tags["replica"] for line in some] == ["tm-1", "tm-3"]
    assert draw(_request(tags=(("replica", ("tm-9",)),)), lines, None) == []
    assert draw(_request(tags=(("task", ()),)), lines, None) == []


def test_no_series_is_no_line():
    assert draw(_request(), [], LineLimit("avg", Take.SAMPLE, 5)) == []


def test_a_sum_beyond_all_numbers_is_no_point():
    lines = [_line({0: 1.7e308, 20_000: 1.0}), _line({0: 1.7e308, 20_000: 2.0})]
    (drawn,) = draw(_request(how=Statistic.SUM), lines, None)
    assert (drawn.seconds.tolist(), drawn.values.tolist()) == ([20], [3.0])
    (line,) = draw(_request(), [_line({0: 1.7e308, 20_000: 1.7e308})], None)
    assert line.summary == 1.7e308


@given(
    st.lists(st.lists(VALUES, min_size=1, max_size=4), min_size=1, max_size=12),
    st.sampled_from(sorted(JUDGES)),
    st.sampled_from(list(Take)),
    st.integers(1, 14),
)
def test_a_limit_takes_so_many_by_their_value(values, judge, take, count):
    lines = [
        Drawn("m", {"replica": str(at)}, np.arange(len(own), dtype=np.int64), np.array(own))
        for at, own in enumerate(values)
    ]
    taken = chosen(lines, LineLimit(judge, take, count))
    names = [int(line.tags["replica"]) for line in taken]
    assert len(names) == len(set(names)) == min(count, len(lines))
    assert names == sorted(names)
    judged = [JUDGES[judge](own) for own in values]
    inside = [judged[at] for at in names]
    outside = [judged[at] for at in range(len(lines)) if at not in names]
    if take is Take.ABOVE and outside:
        assert min(inside) >= max(outside)
    elif take is Take.BOTTOM and outside:
        assert max(inside) <= min(outside)
    elif count > 1:
        assert {min(judged), max(judged)} <= set(inside) or len(lines) == 1
