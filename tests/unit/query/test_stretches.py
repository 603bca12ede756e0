"""Tests of stretches of time in which a condition held, against an exhaustive search."""

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jobmeter.query.stretches import find_steady_stretches


@st.composite
def conditions(draw):
    """Draw points with gaps between some of them, and the truth of a condition at each."""
    pauses = draw(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4)), min_size=1, max_size=22))
    width = np.array([length * 10 for length, _ in pauses], np.int64)
    unseen = np.array([gap * 10 if gap > 2 else 0 for _, gap in pauses], np.int64)
    time = np.cumsum(width + unseen) - width - unseen
    true = draw(st.lists(st.sampled_from([True, True, True, False]), min_size=len(time), max_size=len(time)))
    return time, time + width, np.array(true, np.bool_)


def share_of(time, until, true, first, last):
    own = slice(first, last + 1)
    return float((until - time)[own][true[own]].sum()) / float(until[last] - time[first])


@settings(max_examples=300, deadline=None)
@given(conditions(), st.sampled_from([0.6, 0.75, 0.9]), st.sampled_from([20, 60, 110]))
def test_stretches_are_dense_long_and_apart(drawn, share, hold):
    time, until, true = drawn
    found = find_steady_stretches(time, until, true, hold, share)
    for one in found:
        assert true[one.first]
        assert true[one.last]
        assert (one.start, one.end) == (time[one.first], until[one.last])
        assert one.length >= hold
        assert share_of(time, until, true, one.first, one.last) >= share - 1e-9
    assert all(one.last < other.first for one, other in pairwise(found))


@settings(max_examples=300, deadline=None)
@given(conditions(), st.sampled_from([0.6, 0.75, 0.9]))
def test_no_longer_stretch_was_overlooked(drawn, share):
    time, until, true = drawn
    hold = 10_000  # exceptions of any length are bridged: only the share decides
    shifted = until.copy()
    shifted[-1] += hold * 10  # the last point is long enough for any exception
    true[-1] = True
    places = np.flatnonzero(true)
    longest = max(
        shifted[last] - time[first]
        for first in places
        for last in places
        if first <= last and share_of(time, shifted, true, first, last) >= share - 1e-9
    )
    found = find_steady_stretches(time, shifted, true, hold, share)
    assert max(one.length for one in found) == longest


def test_a_moment_in_between_does_not_end_a_stretch_and_a_long_exception_does():
    time = np.arange(0, 3_600, 10, dtype=np.int64)
    true = np.ones(len(time), np.bool_)
    true[100] = False
    [one] = find_steady_stretches(time, time + 10, true, 600, 0.9)
    assert (one.start, one.end) == (0, 3_600)
    true[200:210] = False
    first, second = find_steady_stretches(time, time + 10, true, 600, 0.9)
    assert (first.start, first.end, second.start, second.end) == (0, 2_000, 2_100, 3_600)
    assert find_steady_stretches(time, time + 10, true, 2_500, 0.999) == []


def test_time_that_nobody_measured_counts_for_nothing():
    time = np.array([0, 10, 20, 500, 510, 520], np.int64)
    true = np.ones(6, np.bool_)
    assert find_steady_stretches(time, time + 10, true, 100, 0.9) == []
    assert [one.length for one in find_steady_stretches(time, time + 10, true, 30, 0.9)] == [30, 30]
