"""Points as text are what the json module writes of the same numbers."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobmeter.kernel import points

pytestmark = pytest.mark.skipif(not points.AVAILABLE, reason="there is no compiled kernel")

TIMES = st.integers(-(2**63), 2**63 - 1)
VALUES = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(st.lists(st.tuples(TIMES, VALUES), max_size=12), max_size=6))
def test_the_text_reads_as_the_same_points(lines):
    ends = list(itertools.accumulate(map(len, lines)))
    times = np.array([time for line in lines for time, _ in line], np.int64)
    values = np.array([value for line in lines for _, value in line], np.float64)
    assert [json.loads(text) for text in points.encode(ends, times, values)] == [
        [[time, value] for time, value in line] for line in lines
    ]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_null_and_never_shifts_the_others(value):
    (text,) = points.encode([2], np.array([1, 2], np.int64), np.array([value, 0.5]))
    assert json.loads(text) == [[1, None], [2, 0.5]]


def test_no_lines_are_no_text():
    none = np.empty(0, np.int64)
    assert points.encode([], none, none.astype(float)) == []


def test_lines_that_end_elsewhere_than_their_points_are_refused():
    with pytest.raises(ValueError, match="do not end"):
        points.encode([1], np.array([1, 2], np.int64), np.array([1.0, 2.0]))
