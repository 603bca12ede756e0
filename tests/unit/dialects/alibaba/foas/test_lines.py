import importlib.util
import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.dialects.alibaba.foas.lines import Drawn, draw, limit_lines
from jobmeter.dialects.alibaba.foas.metric_json import LineLimit, MetricRequest, Take
from jobmeter.dialects.alibaba.foas.series import tag_series
from jobmeter.model.series import Series
from jobmeter.model.time import TimeRange
from jobmeter.query.tsdb.columns import SeriesColumns
from jobmeter.query.tsdb.compute import select_tagged
from jobmeter.query.tsdb.downsample import parse
from jobmeter.query.tsdb.filters import parse_tag_filter
from jobmeter.query.tsdb.functions import AGGREGATORS
from jobmeter.query.tsdb.rate import RateOptions

_SPEC = importlib.util.spec_from_file_location(
    "tsdb_oracle", Path(__file__).parents[3] / "query" / "tsdb" / "oracle.py"
)
assert _SPEC is not None
assert _SPEC.loader is not None
oracle = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(oracle)

JUDGES: dict[str, Callable[[list[float]], float]] = {
    "avg": lambda values: math.fsum(values) / len(values),
    "max": max,
    "min": min,
}
T0 = 1_574_247_000
VALUES = st.integers(-1000, 1000).map(float)
SERIES = st.dictionaries(st.integers(0, 50), VALUES, min_size=1, max_size=20)
SPAN = TimeRange(T0 * 1000, T0 * 1000 + 1_200_000)


def _request(step_s=20, granularity_s=20, how="avg", tags=(), fill="", rate=None):
    return MetricRequest(
        metric="m",
        name="delay",
        downsample=parse(f"{step_s}s-avg{fill}", ZoneInfo("UTC"), calendar=False),
        granularity_ms=granularity_s * 1000,
        aggregator=how,
        rate=rate,
        filters=tuple(parse_tag_filter(name, value, group_by=True) for name, value in tags),
    )


def _draw(request, series, limit=None, span=SPAN):
    """Draw the lines of series, each a dictionary of points (step of 20 s to value) and tags."""
    all_of_them = [tag_series(Series("m", "p", **tags)) for _, tags in series]
    own = select_tagged(all_of_them, request, frozenset())
    rows = [
        (at, T0 * 1000 + step * 20_000, value)
        for at, one in enumerate(own)
        for step, value in sorted(series[all_of_them.index(one)][0].items())
    ]
    index, time, value = zip(*rows, strict=True) if rows else ((), (), ())
    columns = SeriesColumns(np.array(index, np.int64), np.array(time, np.int64), np.array(value, np.float64))
    return draw(request, own, columns, span, limit)


def _points(line):
    return dict(zip(line.seconds.tolist(), line.values.tolist(), strict=True))


@given(
    st.lists(SERIES, min_size=1, max_size=5),
    st.sampled_from(sorted(set(AGGREGATORS) - {"none"})),
    st.sampled_from([20, 40, 60, 7, 300]),
)
def test_one_line_joins_all_points_of_a_granularity(series, how, granularity):
    (drawn,) = _draw(
        _request(20, granularity, how), [(points, {"replica": f"tm-{at}"}) for at, points in enumerate(series)]
    )
    expected = defaultdict(list)
    order = sorted((at, number, value) for number, one in enumerate(series) for at, value in one.items())
    for at, _, value in order:
        second = T0 + at * 20
        expected[second - second % granularity].append(value)
    values = {second: oracle.apply(how, values) for second, values in expected.items()}
    assert _points(drawn) == pytest.approx(values, rel=1e-9, abs=1e-6)
    assert drawn.seconds.tolist() == sorted(expected)
    assert drawn.summary == pytest.approx(np.mean(drawn.values))
    assert drawn.tags == {}


@given(st.lists(SERIES, min_size=1, max_size=4), st.booleans())
def test_a_rate_is_made_of_each_series_before_they_are_joined(series, counter):
    options = RateOptions(counter=counter, counter_max=10_000)
    lines = _draw(
        _request(how="sum", rate=options), [(points, {"replica": f"tm-{at}"}) for at, points in enumerate(series)]
    )
    expected: dict[int, float] = defaultdict(float)
    for one in series:
        points = [(T0 * 1000 + at * 20_000, value) for at, value in sorted(one.items())]
        for time, rate in oracle.rated(points, counter=counter, counter_max=10_000):
            expected[time // 1000] += rate
    assert (_points(lines[0]) if lines else {}) == pytest.approx(dict(expected), rel=1e-9, abs=1e-9)


def test_tags_distinguish_lines_or_choose_series():
    series = [({0: float(at)}, {"replica": f"tm-{at}", "node": f"n{at % 2}"}) for at in range(4)]
    by_node = _draw(_request(tags=(("node", "*"),), how="sum"), series)
    assert [(line.tags, line.values.tolist()) for line in by_node] == [({"node": "n0"}, [2.0]), ({"node": "n1"}, [4.0])]
    some = _draw(_request(tags=(("replica", "tm-1|tm-3"),)), series)
    assert [line.tags["replica"] for line in some] == ["tm-1", "tm-3"]
    wild = _draw(_request(tags=(("replica", "tm-*"),)), series)
    assert [line.tags["replica"] for line in wild] == ["tm-0", "tm-1", "tm-2", "tm-3"]
    assert _draw(_request(tags=(("replica", "tm-9"),)), series) == []
    assert _draw(_request(tags=(("task", "*"),)), series) == []


def test_lines_are_in_the_natural_order_of_their_series():
    series = [({0: float(at)}, {"replica": f"tm-{at}"}) for at in (2, 10, 1)]
    assert [line.values.tolist() for line in _draw(_request(tags=(("replica", "*"),)), series)] == [
        [2.0],
        [10.0],
        [1.0],
    ]


def test_none_gives_every_series_by_itself_with_its_tags():
    series = [({0: float(at)}, {"replica": "tm", "labels": (("task", f"t{at}"),)}) for at in range(3)]
    lines = _draw(_request(how="none"), series)
    assert [(line.tags, line.values.tolist()) for line in lines] == [
        ({"replica": "tm", "task": f"t{at}"}, [float(at)]) for at in range(3)
    ]


@pytest.mark.parametrize(("fill", "missing"), [("-zero", 0.0), ("-scalar#5", 5.0), ("-nan", None), ("-null", None)])
def test_a_fill_policy_gives_every_step_a_point(fill, missing):
    span = TimeRange(T0 * 1000, T0 * 1000 + 60_001)
    (line,) = _draw(_request(fill=fill, how="sum"), [({0: 1.0, 2: 2.0}, {"replica": "a"})], span=span)
    found = [None if math.isnan(value) else value for value in line.values.tolist()]
    assert (line.seconds.tolist(), found) == ([T0, T0 + 20, T0 + 40, T0 + 60], [1.0, missing, 2.0, missing])
    assert line.summary == pytest.approx(np.nanmean(line.values))
    assert line.null == (fill == "-null")


def test_no_series_is_no_line():
    assert _draw(_request(), [], LineLimit("avg", Take.SAMPLE, 5)) == []


def test_a_sum_beyond_all_numbers_is_no_point():
    series = [({0: 1.7e308, 1: 1.0}, {"replica": "a"}), ({0: 1.7e308, 1: 2.0}, {"replica": "b"})]
    (drawn,) = _draw(_request(how="sum"), series)
    assert (drawn.seconds.tolist(), drawn.values.tolist()) == ([T0 + 20], [3.0])
    (line,) = _draw(_request(), [({0: 1.7e308, 1: 1.7e308}, {"replica": "a"})])
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
    taken = limit_lines(lines, LineLimit(judge, take, count))
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


def test_a_line_without_any_value_counts_as_the_smallest():
    lines = [
        Drawn("m", {"replica": str(at)}, np.zeros(1, np.int64), np.array([value]))
        for at, value in enumerate([3.0, np.nan, -5.0])
    ]
    assert [line.tags["replica"] for line in limit_lines(lines, LineLimit("max", Take.BOTTOM, 1))] == ["1"]
    assert [line.tags["replica"] for line in limit_lines(lines, LineLimit("max", Take.ABOVE, 2))] == ["0", "2"]
