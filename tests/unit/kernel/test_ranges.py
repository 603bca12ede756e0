"""Tests of the kernel's windows against a search in each series, and of its sums against exact arithmetic."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.kernel import ranges

TIMES = st.integers(-1_000, 1_000)
SERIES = st.lists(st.lists(TIMES, max_size=30, unique=True).map(sorted), max_size=5)


@given(SERIES, st.lists(TIMES, max_size=12), st.integers(0, 500), st.booleans())
def test_a_window_begins_after_its_start_and_ends_with_its_end(series, ends, length, ordered):
    ends = sorted(ends) if ordered else ends
    starts = np.concatenate(([0], np.cumsum([len(one) for one in series]))).astype(np.int64)
    times = np.array([time for one in series for time in one], np.int64)
    low, high = ranges.find(times, starts, np.array(ends, np.int64), length)
    assert low.shape == high.shape == (len(series), len(ends))
    for row, one in enumerate(series):
        for column, end in enumerate(ends):
            chosen = times[low[row, column] : max(low[row, column], high[row, column])].tolist()
            assert chosen == [time for time in one if end - length < time <= end]


@given(
    st.lists(st.floats(-1e6, 1e6), max_size=60),
    st.lists(st.tuples(st.integers(0, 70), st.integers(0, 70)), max_size=20),
)
def test_a_sum_is_the_exact_sum_rounded(values, windows):
    low, high = (np.array([one[at] for one in windows], np.int64) for at in (0, 1))
    numbers = np.array(values)
    if any(low < high and high > len(values) for low, high in windows):
        with pytest.raises(ValueError, match="beyond"):
            ranges.add(numbers, low, high)
        return
    for found, begin, end in zip(ranges.add(numbers, low, high), low.tolist(), high.tolist(), strict=True):
        if begin >= end:
            assert math.isnan(found)
        else:
            assert found == pytest.approx(math.fsum(values[begin:end]), rel=1e-15, abs=1e-11)


def test_many_samples_are_found_and_added_as_few_are():
    times = np.arange(40_000, dtype=np.int64)
    ends = np.arange(0, 40_000, 7, dtype=np.int64)
    low, high = ranges.find(times, np.array([0, 40_000]), ends, 20)
    assert (high[0] == ends + 1).all()
    assert (low[0] == np.maximum(ends - 19, 0)).all()
    sums = ranges.add(np.ones(40_000), low, high)
    assert (sums == high - low).all()


@pytest.mark.parametrize("starts", [[0, 4], [2, 1], [-1, 2]])
def test_series_beyond_the_times_are_refused(starts):
    with pytest.raises(ValueError, match="beyond"):
        ranges.find(np.arange(3), np.array(starts), np.arange(2), 5)
