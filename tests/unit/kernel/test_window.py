"""Tests of the kernel's page reads against NumPy, and of its buckets against the reducer."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.kernel import window as kernel
from jobmeter.model.batch import References, SampleBatch, SampleColumns, SeriesKeys
from jobmeter.model.catalog import Aggregate
from jobmeter.model.time import TimeRange
from jobmeter.query.reduce import FIELDS, build_buckets
from jobmeter.query.table import ResultTable, join
from jobmeter.store.window.window import Window

NOW = 10_000_000
SAMPLES = st.dictionaries(
    st.tuples(st.integers(0, 3), st.integers(0, 20_000)), st.integers(-50, 50).map(lambda number: number / 4)
)


def _window(writes: list[dict[tuple[int, int], float]]) -> tuple[Window, SeriesKeys, dict[tuple[int, int], float]]:
    window = Window(NOW, 2**20)
    keys = SeriesKeys(np.array([1, 1, 2, 2], np.uint64), np.array([11, 12, 13, 14], np.uint64))
    window.adopt(keys, SampleColumns.make_empty(), 0)
    expected: dict[tuple[int, int], float] = {}
    for rows in writes:
        expected.update(rows)
        index = np.array([series for series, _ in rows], np.uint32)
        time = np.array([time for _, time in rows], np.int64)
        window.write_all([SampleBatch([], index, time, np.array(list(rows.values()), np.float64), keys)], NOW)
    return window, keys, expected


def _columns(expected: dict[tuple[int, int], float], span: TimeRange) -> SampleColumns:
    rows = sorted((series, time) for series, time in expected if span.start_ms <= time < span.end_ms)
    return SampleColumns(
        np.array([series for series, _ in rows], np.uint32),
        np.array([time for _, time in rows], np.int64),
        np.array([expected[row] for row in rows], np.float64),
    )


@given(st.lists(SAMPLES, max_size=6), st.integers(0, 20_000), st.integers(0, 20_000), st.integers(1, 9_000))
def test_samples_and_buckets_are_those_of_the_slow_way(writes, start, length, step):
    window, keys, expected = _window(writes)
    span = TimeRange(start, start + length)
    columns = _columns(expected, span)
    found = window.read(keys, span)
    assert found is not None
    for name in ("index", "time", "value"):
        assert np.array_equal(getattr(found, name), getattr(columns, name))
    counters = np.array([True, False, True, False])
    ours, theirs = References.make_empty(4), References.make_empty(4)
    made = window.read_buckets(keys, span, step, counters, ours)
    assert made is not None
    wanted = build_buckets(columns, step, counters, theirs)
    for name in FIELDS:
        assert np.allclose(getattr(made, name).astype(float), getattr(wanted, name).astype(float)), name
    assert np.array_equal(ours.time, theirs.time)


_JOINS = {kernel.MEAN: Aggregate.MEAN, kernel.SUM: Aggregate.SUM, kernel.MIN: Aggregate.MIN, kernel.MAX: Aggregate.MAX}


@given(
    st.lists(SAMPLES, max_size=6),
    st.integers(0, 20_000),
    st.integers(1, 20_000),
    st.integers(1, 9_000),
    st.lists(st.integers(0, 2), min_size=4, max_size=4),
    st.lists(st.sampled_from(sorted(_JOINS)), min_size=3, max_size=3),
)
def test_lines_are_the_joined_means_of_the_slow_way(writes, start, length, step, line, how):
    window, keys, expected = _window(writes)
    span = TimeRange(start, start + length)
    columns = _columns(expected, span)
    made = build_buckets(columns, step, np.zeros(4, np.bool_), References.make_empty(4))
    grid = kernel.WindowGrid(np.array(line), np.array(how, np.uint8))
    found = window.average_lines(keys, grid, span, step, 1_000)
    assert found is not None
    assert found.samples == len(columns)
    owners = np.array(line)[made.index]
    wanted: list[tuple[int, int, float]] = []
    for number, way in enumerate(how):
        chosen = owners == number
        own = ResultTable(owners[chosen], made.time[chosen], (made.sum / made.count)[chosen])
        joined = join(own, _JOINS[way], step)
        wanted += zip(joined.owner.tolist(), joined.time.tolist(), joined.value.tolist(), strict=True)
    owner = np.repeat(np.arange(3), np.diff(found.ends, prepend=0))
    assert list(zip(owner.tolist(), found.time.tolist(), found.value.tolist(), strict=True)) == wanted
    if found.samples:
        assert window.average_lines(keys, grid, span, step, found.samples - 1) is None


@given(st.lists(SAMPLES, max_size=6), st.integers(0, 20_001))
def test_the_last_sample_before_a_time_is_that_of_the_slow_way(writes, before):
    window, keys, expected = _window(writes)
    found = window.read_previous(keys, before)
    last = [max((time for one, time in expected if one == series and time < before), default=-1) for series in range(4)]
    if min(last) < 0:
        assert found is None
    else:
        assert found is not None
        assert found.time.tolist() == last
        assert found.value.tolist() == [expected[series, time] for series, time in enumerate(last)]


def test_more_samples_than_allowed_are_no_answer():
    window, keys, _ = _window([{(0, time): 1.0 for time in range(100)}])
    last = References.make_empty(4)
    span, gauges = TimeRange(0, 1000), np.zeros(4, np.bool_)
    assert window.read_buckets(keys, span, 10, gauges, last, most=99) is None
    assert window.read_buckets(keys, span, 10, gauges, last, most=100) is not None
